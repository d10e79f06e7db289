//! Faults on demand: which request is spoiled next, and how.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What goes wrong. The names are those of `PUT /_control/faults`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The vendor reads the request and acts on it; the connection ends (FIN) before any answer.
    DropAfterRead,
    /// The same with the connection's earlier requests answered: the kept connection ends under this one.
    ReadRequestThenFin,
    /// The connection is reset (RST); the vendor did not act on the request.
    Reset,
    /// A kept connection is reset at the moment of its reuse; a fresh one is left alone and uses up no count.
    CloseIdleOnReuse,
    /// Too many requests; not acted on.
    #[serde(rename = "429")]
    TooMany,
    /// A server error; not acted on unless `processed` says so.
    #[serde(rename = "5xx")]
    ServerError,
    /// The right answer, `hold_s` late.
    Slow,
    /// The right head, half of the body, then the end of the connection.
    Truncate,
    /// An HTML page in place of the answer, with status 200 unless `status` says otherwise.
    Html,
    /// Bytes without meaning in place of the answer, under its own content type.
    Garbage,
}

impl FaultKind {
    /// Whether the vendor acts on a request that meets this fault, unless the rule says otherwise.
    #[must_use]
    pub fn processed_by_default(self) -> bool {
        match self {
            Self::DropAfterRead
            | Self::ReadRequestThenFin
            | Self::Slow
            | Self::Truncate
            | Self::Html
            | Self::Garbage => true,
            Self::Reset | Self::CloseIdleOnReuse | Self::TooMany | Self::ServerError => false,
        }
    }

    /// The name used on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DropAfterRead => "drop_after_read",
            Self::ReadRequestThenFin => "read_request_then_fin",
            Self::Reset => "reset",
            Self::CloseIdleOnReuse => "close_idle_on_reuse",
            Self::TooMany => "429",
            Self::ServerError => "5xx",
            Self::Slow => "slow",
            Self::Truncate => "truncate",
            Self::Html => "html",
            Self::Garbage => "garbage",
        }
    }
}

/// One rule: spoil the next `count` requests of this vendor and route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Vendor name, or `any`.
    pub vendor: String,
    /// Route name (`start`, `poll`, `cancel`, `outputs`, `download`, `check`, `find`, `answer`, …), or `any`.
    #[serde(default = "any")]
    pub route: String,
    /// What goes wrong.
    pub fault: FaultKind,
    /// How many requests are spoiled.
    #[serde(default = "one")]
    pub count: u64,
    /// How many matching requests pass unharmed first.
    #[serde(default)]
    pub skip: u64,
    /// Status of the answer, for `429`, `5xx`, `html` and `garbage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Value of the `Retry-After` header, word for word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<String>,
    /// Seconds to wait before the fault shows. `slow` waits 3 s when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_s: Option<f64>,
    /// Extra headers of the answer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Body of the answer in place of the default one: a text is sent as it is, anything else as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<serde_json::Value>,
    /// Whether the vendor acts on the request. Each fault has its own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processed: Option<bool>,
}

fn any() -> String {
    "any".to_owned()
}

fn one() -> u64 {
    1
}

impl Fault {
    /// A rule that spoils one request and leaves everything else at its default.
    #[must_use]
    pub fn once(vendor: &str, route: &str, fault: FaultKind) -> Self {
        Self {
            vendor: vendor.to_owned(),
            route: route.to_owned(),
            fault,
            count: 1,
            skip: 0,
            status: None,
            retry_after: None,
            hold_s: None,
            headers: BTreeMap::new(),
            body: None,
            processed: None,
        }
    }

    /// Whether the vendor acts on the request.
    #[must_use]
    pub fn acts(&self) -> bool {
        self.processed.unwrap_or_else(|| self.fault.processed_by_default())
    }

    fn matches(&self, vendor: &str, route: &str) -> bool {
        (self.vendor == "any" || self.vendor == vendor) && (self.route == "any" || self.route == route)
    }
}

/// The rules in force, oldest first. A rule that has used up its count is gone.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a rule behind the others.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Takes every rule away.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The rules that are left.
    #[must_use]
    pub(crate) fn list(&self) -> &[Fault] {
        &self.0
    }

    /// The fault that this request meets, if any; uses up one of its count.
    ///
    /// `reused` says that the connection answered an earlier request.
    pub(crate) fn take(&mut self, vendor: &str, route: &str, reused: bool) -> Option<Fault> {
        let at = self
            .0
            .iter()
            .position(|fault| fault.matches(vendor, route) && (reused || fault.fault != FaultKind::CloseIdleOnReuse))?;
        let rule = self.0.get_mut(at)?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        let met = rule.clone();
        rule.count = rule.count.saturating_sub(1);
        if rule.count == 0 {
            self.0.remove(at);
        }
        Some(met)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_used_up_after_its_count() {
        let mut faults = Faults::default();
        faults.add(Fault { count: 2, skip: 1, ..Fault::once("flux", "poll", FaultKind::Slow) });
        assert!(faults.take("flux", "start", false).is_none());
        assert!(faults.take("flux", "poll", false).is_none(), "the first passes");
        assert!(faults.take("flux", "poll", false).is_some());
        assert!(faults.take("flux", "poll", false).is_some());
        assert!(faults.take("flux", "poll", false).is_none());
        assert!(faults.list().is_empty());
    }

    #[test]
    fn a_fresh_connection_is_never_an_idle_one() {
        let mut faults = Faults::default();
        faults.add(Fault::once("any", "any", FaultKind::CloseIdleOnReuse));
        assert!(faults.take("runway", "poll", false).is_none());
        assert!(faults.take("runway", "poll", true).is_some());
    }

    #[test]
    fn the_names_on_the_wire_are_the_documented_ones() {
        for name in ["drop_after_read", "reset", "429", "5xx", "slow", "truncate", "html", "garbage"] {
            let text = format!(r#"{{"vendor":"flux","route":"start","fault":"{name}","count":1}}"#);
            let fault: Fault = serde_json::from_str(&text).unwrap();
            assert_eq!(fault.fault.name(), name);
        }
    }
}
