//! What a quantity costs.

use crate::{Connector, Unit};
use rust_decimal::Decimal;

/// Money for a quantity: the connector's own price, else the model's, else the vendor's; `usd` is itself.
#[must_use]
pub fn price(connector: &Connector, model: Option<&str>, unit: Unit, quantity: Decimal) -> Option<Decimal> {
    if unit == Unit::Usd {
        return Some(quantity);
    }
    let listed = |wanted: Option<&str>| {
        connector
            .vendor
            .prices
            .iter()
            .find(|price| price.unit == unit && price.model.as_deref() == wanted)
            .map(|price| price.usd)
    };
    let each = connector.price_override.get(&unit).copied();
    let each = each.or_else(|| model.and_then(|model| listed(Some(model)))).or_else(|| listed(None))?;
    each.checked_mul(quantity).map(|usd| usd.normalize())
}
