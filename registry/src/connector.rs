//! What a vendor's file declares and what an installed connector makes of it.

use crate::vocabulary::{Task, Unit};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a lost start is dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostStart {
    /// The vendor honours an idempotency key or a client-chosen id: the same is sent again.
    Key,
    /// The vendor can be searched.
    Find,
    /// Neither: `start_unknown`.
    None,
}

/// How a credential is put on a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scheme", rename_all = "snake_case", deny_unknown_fields)]
pub enum AuthScheme {
    /// `Authorization: Bearer <key>`.
    Bearer,
    /// The key in a header of the vendor's own.
    Header {
        /// The header's name.
        name: String,
    },
    /// HTTP basic, the credential being `user:password`.
    Basic,
    /// No credential.
    None,
}

/// The free call that tells whether a credential works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeCheck {
    /// `GET` nearly always.
    pub method: String,
    /// Path below the base URL, with its query; a whole address where a setting named one.
    pub path: String,
    /// Tried where `path` answers 401 or 403: a scoped key may be allowed to read one and not the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub or_path: Option<String>,
    /// Fixed headers besides the vendor's common ones.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The call may be open to all: that it passes proves the vendor is there, and nothing of the credential.
    #[serde(default)]
    pub public: bool,
}

/// When polls come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cadence {
    /// Seconds from the start to the first poll.
    pub first_s: f64,
    /// Each delay is the one before times this.
    pub factor: f64,
    /// No delay is longer.
    pub ceiling_s: f64,
    /// Share of the delay by which it varies, 0 to 1.
    pub jitter: f64,
}

/// Caps of one connector, fleet-wide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectorLimits {
    /// Jobs at the vendor at one time.
    pub in_flight: Option<u32>,
    /// Paid starts a minute.
    pub starts_per_minute: Option<u32>,
    /// Requests a second.
    pub requests_per_second: Option<u32>,
}

/// One option that a job's `vendor` map may hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptionSpec {
    /// `string, integer, number, boolean, object, array`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it does, in the vendor's terms.
    pub about: String,
    /// The allowed values, of an array the allowed items; empty means open.
    #[serde(default)]
    pub allowed: Vec<serde_json::Value>,
    /// Smallest number allowed; of an array, the fewest items.
    #[serde(default)]
    pub min: Option<f64>,
    /// Largest number allowed; of an array, the most items.
    #[serde(default)]
    pub max: Option<f64>,
    /// Longest text allowed, in characters.
    #[serde(default)]
    pub max_chars: Option<usize>,
}

/// One setting of a connector, in `[connectors.NAME] settings`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingSpec {
    /// `string, url, integer, number, boolean, array`; a `url` is held to the same rules as `base_url`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it does.
    pub about: String,
    /// A job cannot run without it.
    #[serde(default)]
    pub required: bool,
    /// Its value where none is given.
    #[serde(default)]
    pub default: Option<serde_json::Value>,
    /// The allowed values, of an array the allowed items; empty means open.
    #[serde(default)]
    pub allowed: Vec<serde_json::Value>,
}

/// One price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The unit priced.
    pub unit: Unit,
    /// Money for one unit.
    pub usd: Decimal,
    /// Only this model; every model where left out.
    #[serde(default)]
    pub model: Option<String>,
    /// The day it was read, `YYYY-MM-DD`.
    pub as_of: String,
    /// Where it was read.
    pub source: String,
}

/// A model or API version with a last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retirement {
    /// What ends.
    pub what: String,
    /// `YYYY-MM-DD`.
    pub on: String,
    /// What to use instead.
    pub instead: String,
}

/// One vendor, as `registry/connectors/<vendor>.toml` declares it.
///
/// Headers, the auth header's name and the check's paths may hold `{setting}` or `{setting|otherwise}`:
/// the resolved connector has its setting there. A header whose setting has no value is left out.
///
/// Four settings have a meaning of their own wherever a file lists them: `region` chooses from `regions`, `auth`
/// from `auth_choices`, `key_hosts` adds to `key_hosts`, and so does the host of `endpoint`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VendorFile {
    /// `[a-z0-9_]+`, the file's own name.
    pub vendor: String,
    /// For people.
    pub title: String,
    /// The vendor's documentation.
    pub docs: String,
    /// The day the wire facts were last checked, `YYYY-MM-DD`.
    pub verified: String,
    /// What the wire facts were read from.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Default base URL; empty where each connector must name its own.
    pub base_url: String,
    /// Base URLs that the setting `region` chooses from.
    #[serde(default)]
    pub regions: BTreeMap<String, String>,
    /// How the credential travels.
    pub auth: AuthScheme,
    /// Other ways in which it may travel, chosen from by the setting `auth`.
    #[serde(default)]
    pub auth_choices: BTreeMap<String, AuthScheme>,
    /// Headers on every call.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Hosts besides the base URL's own that may see the credential: `example.com` or `*.example.com`.
    #[serde(default)]
    pub key_hosts: Vec<String>,
    /// The free check.
    pub check: FreeCheck,
    /// Task types it can do.
    pub tasks: Vec<Task>,
    /// Formats it can make.
    #[serde(default)]
    pub formats: Vec<String>,
    /// What a lost start means.
    pub lost_start: LostStart,
    /// How long a lost start is looked for, or sent again with its key: no longer than the vendor honours one.
    #[serde(default)]
    pub find_s: u64,
    /// Not being listed proves that a start never happened.
    #[serde(default)]
    pub absence_proves: bool,
    /// The vendor asks questions.
    #[serde(default)]
    pub asks: bool,
    /// The vendor can stop a job.
    #[serde(default)]
    pub cancels: bool,
    /// A cancel erases the record: read and book first.
    #[serde(default)]
    pub cancel_erases: bool,
    /// The answer to a start carries the outputs.
    #[serde(default)]
    pub synchronous: bool,
    /// Seconds a paid start may stay silent.
    pub start_silence_s: u64,
    /// The same for some models.
    #[serde(default)]
    pub model_silence_s: BTreeMap<String, u64>,
    /// Seconds for which a finished job's outputs can be fetched, counted from its end; left out where they do not die or
    /// where only the answer tells.
    #[serde(default)]
    pub outputs_live_s: Option<u64>,
    /// Minutes after which a job without `max_minutes` of its own is called a runaway.
    pub max_minutes: u32,
    /// The unit it bills in.
    pub unit: Unit,
    /// Prices with their dates.
    #[serde(default)]
    pub prices: Vec<Price>,
    /// Default cadence.
    pub cadence: Cadence,
    /// Default limits.
    #[serde(default)]
    pub limits: ConnectorLimits,
    /// Settings a connector may give.
    #[serde(default)]
    pub settings: BTreeMap<String, SettingSpec>,
    /// Options a job may give.
    #[serde(default)]
    pub options: BTreeMap<String, OptionSpec>,
    /// Retirements known.
    #[serde(default)]
    pub retirements: Vec<Retirement>,
}

/// One installed connector, resolved: the vendor's file with the user's settings over it.
/// It holds a reference to the credential, never the credential.
#[derive(Clone, Debug)]
pub struct Connector {
    /// `[a-z0-9_]+`.
    pub name: String,
    /// What the vendor's file declares, with this connector's settings in its headers, auth, key hosts and check.
    pub vendor: Arc<VendorFile>,
    /// `env:NAME`, `file:PATH`, or `None` where the vendor wants none.
    pub credential: Option<String>,
    /// No trailing slash.
    pub base_url: String,
    /// Opens exactly the base URL's own host and port although private.
    pub allow_private_network: bool,
    /// Further private `host:port` that may be reached.
    pub private_hosts: Vec<String>,
    /// Limits in force.
    pub limits: ConnectorLimits,
    /// Settings in force, defaults filled in.
    pub settings: BTreeMap<String, serde_json::Value>,
    /// Money for one unit, over the vendor's list.
    pub price_override: BTreeMap<Unit, Decimal>,
    /// Cadence in force.
    pub cadence: Cadence,
}

impl Connector {
    /// A setting's text, where it is one.
    #[must_use]
    pub fn setting_str(&self, key: &str) -> Option<&str> {
        self.settings.get(key).and_then(serde_json::Value::as_str)
    }

    /// The way in which the credential travels, the setting `auth` already heeded.
    #[must_use]
    pub fn auth(&self) -> &AuthScheme {
        &self.vendor.auth
    }

    /// The whole addresses of the free check, in order: it passes when the first answers well, or when the
    /// first answers 401 or 403 and the next answers well.
    #[must_use]
    pub fn check_urls(&self) -> Vec<String> {
        let whole = |path: &String| {
            let is_whole = path.starts_with("https://") || path.starts_with("http://");
            if is_whole { path.clone() } else { format!("{}{path}", self.base_url) }
        };
        std::iter::once(&self.vendor.check.path).chain(&self.vendor.check.or_path).map(whole).collect()
    }
}
