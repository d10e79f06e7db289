//! What a quantity costs, in exact decimals.

use crate::connector::Connector;
use crate::nearest::unknown_key;
use crate::path::join;
use crate::vocabulary::{Problem, Unit};
use rust_decimal::Decimal;
use serde_json::Value;
use std::collections::BTreeMap;

/// Money for a quantity of a unit, or `None` where nobody names a price.
///
/// The connector's `price_override` comes first, then the vendor's price for the model, then its price for
/// every model. Dollars are themselves.
#[must_use]
pub fn price(connector: &Connector, model: Option<&str>, unit: Unit, quantity: Decimal) -> Option<Decimal> {
    if unit == Unit::Usd {
        return Some(quantity.normalize());
    }
    quantity.checked_mul(unit_price(connector, model, unit)?).map(|usd| usd.normalize())
}

/// Money for one unit, by the same order.
#[must_use]
pub fn unit_price(connector: &Connector, model: Option<&str>, unit: Unit) -> Option<Decimal> {
    if unit == Unit::Usd {
        return Some(Decimal::ONE);
    }
    let listed = |wanted: Option<&str>| {
        let prices = connector.vendor.prices.iter();
        prices.filter(|price| price.unit == unit && price.model.as_deref() == wanted).map(|price| price.usd).next()
    };
    let own = connector.price_override.get(&unit).copied();
    own.or_else(|| model.and_then(|model| listed(Some(model)))).or_else(|| listed(None))
}

/// The key of a unit's price in `price_override`: `credit_usd`, `token_in_usd`, …; none for dollars.
#[must_use]
pub fn override_key(unit: Unit) -> Option<&'static str> {
    Some(match unit {
        Unit::Credits => "credit_usd",
        Unit::Usd => return None,
        Unit::TokensIn => "token_in_usd",
        Unit::TokensOut => "token_out_usd",
        Unit::Characters => "character_usd",
        Unit::Seconds => "second_usd",
        Unit::Images => "image_usd",
        Unit::Megapixels => "megapixel_usd",
        Unit::Requests => "request_usd",
        Unit::Acu => "acu_usd",
        Unit::Units => "unit_usd",
    })
}

/// Reads `price_override`.
pub(crate) fn read_override(
    path: &str,
    given: &BTreeMap<String, Value>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<Unit, Decimal> {
    let known: Vec<_> = Unit::ALL.iter().filter_map(|unit| override_key(*unit)).collect();
    let mut prices = BTreeMap::new();
    for (key, value) in given {
        let path = join(path, key);
        let Some(unit) = Unit::ALL.into_iter().find(|unit| override_key(*unit) == Some(key.as_str())) else {
            problems.push(unknown_key(path, key, &known));
            continue;
        };
        let Some(text) = value.as_str() else {
            let message = "a price is a decimal in quotes, such as \"0.01\", so that no digit is lost";
            problems.push(Problem::new(path, "wrong_type", message));
            continue;
        };
        match text.parse::<Decimal>() {
            Ok(usd) if (Decimal::ZERO..=Decimal::ONE_THOUSAND).contains(&usd) => {
                prices.insert(unit, usd);
            }
            Ok(_) => problems.push(Problem::new(path, "out_of_range", "a price is 0 to 1000 dollars for one unit")),
            Err(_) => {
                let message = "a price is a decimal number, such as \"0.01\"";
                problems.push(Problem::new(path, "not_allowed", message));
            }
        }
    }
    prices
}
