//! The agent's card: which interface a job uses, and whether the connector's key may go there.

use super::errors::classify;
use super::wire::{Card, CardInterface};
use crate::reading::read_json;
use crate::{Call, Context};
use longhaul_registry::{Connector, Failure, FailureKind, Retry};
use serde::{Deserialize, Serialize};
use url::Url;

/// The version spoken.
pub(super) const VERSION: &str = "1.0";
/// The header that names it; without one, servers take a request for 0.3.
pub(super) const VERSION_HEADER: &str = "A2A-Version";
/// Where a card stands.
const CARD_PATH: &str = "/.well-known/agent-card.json";
/// Where older agents have it.
const OLD_CARD_PATH: &str = "/.well-known/agent.json";

/// How an agent is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Binding {
    #[serde(rename = "JSONRPC")]
    JsonRpc,
    #[serde(rename = "HTTP+JSON")]
    HttpJson,
}

impl Binding {
    /// Reads the card's word; `None` for one that is not spoken here.
    pub(super) fn read(word: &str) -> Option<Self> {
        match word.to_ascii_uppercase().as_str() {
            "JSONRPC" => Some(Self::JsonRpc),
            "HTTP+JSON" => Some(Self::HttpJson),
            _ => None,
        }
    }
}

/// The interface a job was started on: it is kept for the job's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Interface {
    /// Used as the card has it.
    pub(super) url: String,
    pub(super) binding: Binding,
    /// Goes with every request where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<String>,
}

/// Reads the card and takes its first interface that we speak, other than `not`. The settings `endpoint`,
/// `binding` and `tenant` go before the card; with `endpoint` no card is read at all.
pub(super) async fn discover(cx: &Context<'_>, not: Option<&Interface>) -> Result<Interface, Failure> {
    let connector = cx.connector;
    let wanted = connector.setting_str("binding").and_then(Binding::read);
    if let Some(endpoint) = connector.setting_str("endpoint") {
        let interface = Interface {
            url: endpoint.to_owned(),
            binding: wanted.unwrap_or(Binding::JsonRpc),
            tenant: connector.setting_str("tenant").map(str::to_owned),
        };
        return if Some(&interface) == not {
            Err(no_interface("the address in `endpoint` alone"))
        } else {
            Ok(interface)
        };
    }
    let card = read_card(cx).await?;
    if let Some(uri) = required_extension(&card) {
        let message = format!("the agent requires the extension {uri}, which Longhaul does not have");
        return Err(Failure::new(FailureKind::CapabilityMissing, Retry::Never, message).vendor_code(uri));
    }
    choose(&card, connector, wanted, not)
}

async fn read_card(cx: &Context<'_>) -> Result<Card, Failure> {
    let call = Call::get("get_card", CARD_PATH);
    let call = match cx.connector.setting_str("card_url") {
        Some(url) if !may_have_key(cx.connector, url) => call.at(url).without_key(),
        Some(url) => call.at(url),
        None => call,
    };
    let configured = cx.connector.setting_str("card_url").is_some();
    let mut reply = cx.send(call.header(VERSION_HEADER, VERSION)).await?;
    if reply.status == 404 && !configured {
        reply = cx.send(Call::get("get_card", OLD_CARD_PATH).header(VERSION_HEADER, VERSION)).await?;
    }
    if reply.is_success() {
        return read_json(&reply, false);
    }
    let mut failure = classify(&reply, false);
    if failure.kind == FailureKind::NotFound {
        failure.kind = FailureKind::InvalidRequest;
        failure.code = FailureKind::InvalidRequest.as_str().to_owned();
        failure.message =
            "there is no agent card at the connector's address; check base_url, or set `card_url`".to_owned();
    }
    Err(failure)
}

fn required_extension(card: &Card) -> Option<&str> {
    let extensions = card.capabilities.as_ref()?.extensions.as_deref()?;
    let required = extensions.iter().find(|extension| extension.required == Some(true))?;
    Some(required.uri.as_deref().unwrap_or("without a name"))
}

/// The first entry that we speak and may reach. One that must not be reached is not one we speak; if there is
/// nothing else, it is the reason.
fn choose(
    card: &Card,
    connector: &Connector,
    wanted: Option<Binding>,
    not: Option<&Interface>,
) -> Result<Interface, Failure> {
    let mut refused = None;
    for entry in card.supported_interfaces.iter().flatten() {
        let Some(interface) = spoken(entry, connector, wanted).filter(|interface| Some(interface) != not) else {
            continue;
        };
        match with_key(connector, &interface.url) {
            Ok(_) => return Ok(interface),
            Err(failure) => refused = refused.or(Some(failure)),
        }
    }
    Err(refused.unwrap_or_else(|| no_interface(&offered(card))))
}

/// An entry as an interface, where its binding and version are spoken here.
fn spoken(entry: &CardInterface, connector: &Connector, wanted: Option<Binding>) -> Option<Interface> {
    // A missing version in a card of 1.0's shape is 1.0; only the first number tells versions apart.
    let version = entry.protocol_version.as_deref().filter(|version| !version.is_empty()).unwrap_or(VERSION);
    let binding = Binding::read(entry.protocol_binding.as_deref()?)?;
    let fits = version.split('.').next() == Some("1") && wanted.is_none_or(|wanted| wanted == binding);
    let tenant = connector.setting_str("tenant").or(entry.tenant.as_deref()).filter(|tenant| !tenant.is_empty());
    let url = entry.url.clone()?;
    fits.then(|| Interface { url, binding, tenant: tenant.map(str::to_owned) })
}

/// What a card offers, for the operator.
fn offered(card: &Card) -> String {
    let name = |binding: Option<&str>, version: Option<&str>| {
        format!("{} {}", binding.unwrap_or("JSONRPC"), version.unwrap_or("of no version"))
    };
    let entries = card.supported_interfaces.iter().flatten();
    let mut offers: Vec<String> =
        entries.map(|entry| name(entry.protocol_binding.as_deref(), entry.protocol_version.as_deref())).collect();
    if card.supported_interfaces.is_none() && card.url.is_some() {
        offers.push(name(card.preferred_transport.as_deref(), card.protocol_version.as_deref().or(Some("0.3"))));
    }
    if offers.is_empty() { "no interface".to_owned() } else { offers.join(", ") }
}

fn no_interface(offered: &str) -> Failure {
    let message = format!("the agent offers {offered}; Longhaul speaks JSONRPC and HTTP+JSON of A2A 1.0");
    Failure::new(FailureKind::CapabilityMissing, Retry::Never, message)
}

/// Whether the key goes along to an interface.
///
/// # Errors
/// An address that must not be spoken to: no HTTP, plain HTTP below an https base URL, or another origin while
/// the connector has a key (the key must not go there, and without it there is no talking).
pub(super) fn with_key(connector: &Connector, url: &str) -> Result<bool, Failure> {
    let refuse = |why: &str| {
        let message = format!("the agent's card names an address {why}; set `endpoint` to the one that is meant");
        Err(Failure::new(FailureKind::VendorError, Retry::Never, message).code("address_refused"))
    };
    // The operator's own word; the guard checks it like every other address.
    if connector.setting_str("endpoint") == Some(url) {
        return Ok(true);
    }
    let Ok(address) = Url::parse(url) else { return refuse("that is no URL") };
    if !matches!(address.scheme(), "https" | "http") {
        return refuse("that is not HTTP");
    }
    if address.scheme() == "http" && connector.base_url.starts_with("https:") {
        return refuse("of plain HTTP below an https base URL");
    }
    match (may_have_key(connector, url), &connector.credential) {
        (true, _) => Ok(true),
        (false, None) => Ok(false),
        (false, Some(_)) => refuse("of another origin than base_url, where the key must not go"),
    }
}

/// The key goes to base_url's origin, and over https on the usual port to the hosts that are listed beside it:
/// the same rule as the guard's, told before a call is made of it.
pub(super) fn may_have_key(connector: &Connector, url: &str) -> bool {
    let (Ok(address), Ok(base)) = (Url::parse(url), Url::parse(&connector.base_url)) else { return false };
    if address.origin() == base.origin() {
        return true;
    }
    let host = address.host_str().unwrap_or_default();
    let is_listed = |known: &String| {
        let known = known.to_ascii_lowercase();
        match known.strip_prefix("*.") {
            Some(domain) => host.strip_suffix(domain).is_some_and(|front| front.ends_with('.')),
            None => host == known,
        }
    };
    address.scheme() == "https" && address.port().is_none() && connector.vendor.key_hosts.iter().any(is_listed)
}
