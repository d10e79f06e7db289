//! Usage: a quantity in the vendor's own unit, booked once.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The unit a vendor bills or reports in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Vendor credits.
    Credits,
    /// US dollars.
    Usd,
    /// Input tokens.
    TokensIn,
    /// Output tokens.
    TokensOut,
    /// Characters of text.
    Characters,
    /// Seconds of media or of work.
    Seconds,
    /// Images.
    Images,
    /// Megapixels.
    Megapixels,
    /// Requests.
    Requests,
    /// Agent compute units.
    Acu,
    /// Anything else that is counted.
    Units,
}

impl Unit {
    /// Every unit.
    pub const ALL: [Unit; 11] = [
        Self::Credits,
        Self::Usd,
        Self::TokensIn,
        Self::TokensOut,
        Self::Characters,
        Self::Seconds,
        Self::Images,
        Self::Megapixels,
        Self::Requests,
        Self::Acu,
        Self::Units,
    ];

    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Credits => "credits",
            Self::Usd => "usd",
            Self::TokensIn => "tokens_in",
            Self::TokensOut => "tokens_out",
            Self::Characters => "characters",
            Self::Seconds => "seconds",
            Self::Images => "images",
            Self::Megapixels => "megapixels",
            Self::Requests => "requests",
            Self::Acu => "acu",
            Self::Units => "units",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a figure comes from. The order is the precedence: a later one replaces an earlier one
/// at the same key and is never replaced by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// A quote, or our guess from the request.
    Estimated,
    /// Reckoned by us from facts of the finished job.
    Computed,
    /// The vendor's own figure.
    Reported,
}

/// One quantity, as a vendor module reports it. The engine adds job and attempt; the ledger's key is
/// (job, attempt, record, unit).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The vendor's record that was billed: its job id, or a finer id where one job has several bills.
    pub record: String,
    /// The vendor's unit.
    pub unit: Unit,
    /// How much, exactly as reported.
    pub quantity: Decimal,
    /// Where the figure comes from.
    pub source: UsageSource,
    /// Money where the vendor says it, or where the unit is money. Left `None`, the engine prices the
    /// quantity from the connector; a detail line that money does not hang on stays unpriced there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<Decimal>,
}

/// The largest quantity that is believed; anything beyond is kept raw, flagged and not booked.
pub const ABSURD_QUANTITY: Decimal = Decimal::from_parts(2_764_472_320, 232_830, 0, false, 0);

/// Reads a decimal from a JSON number's or string's own digits, with no `f64` in between.
///
/// `None` where the text is no finite decimal, is below zero, or is absurdly large: such a figure is
/// unknown and must not be booked.
#[must_use]
pub fn quantity_from_text(text: &str) -> Option<Decimal> {
    let text = text.trim().trim_matches('"');
    let value = text.parse::<Decimal>().ok().or_else(|| Decimal::from_scientific(text).ok())?;
    (!value.is_sign_negative() || value.is_zero()).then_some(())?;
    (value <= ABSURD_QUANTITY).then_some(value.normalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_keep_their_digits_or_are_unknown() {
        let read = |text| quantity_from_text(text).map(|value| value.to_string());
        assert_eq!(read("5.000000000000000001").as_deref(), Some("5.000000000000000001"));
        assert_eq!(read("\"0.04\"").as_deref(), Some("0.04"));
        assert_eq!(read("4e-2").as_deref(), Some("0.04"));
        assert_eq!(read("4.0").as_deref(), Some("4"));
        for unknown in ["NaN", "Infinity", "1e400", "-1", "", "many", "1000000000000000000000"] {
            assert_eq!(read(unknown), None, "{unknown}");
        }
        assert_eq!(ABSURD_QUANTITY.to_string(), "1000000000000000");
    }
}
