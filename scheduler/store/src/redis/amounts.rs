//! Money and units as scripts add them up: whole numbers and billionths, which never round where a figure has no more than nine
//! decimals.

use super::draft::Booked;
use crate::limits::{Amounts, Month};
use longhaul_registry::Unit;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use std::collections::BTreeMap;

/// The unit under which money stands.
const MONEY: &str = "$";
const BILLION: i128 = 1_000_000_000;

/// A figure in billionths; beyond what can be counted it is the largest that can.
fn billionths(figure: Decimal) -> i128 {
    let figure = figure.round_dp(9);
    let whole = figure.trunc().to_i128().unwrap_or(0);
    let part = (figure.fract() * Decimal::from(1_000_000_000)).trunc().to_i128().unwrap_or(0);
    (whole * BILLION + part).clamp(i128::from(i64::MIN) * BILLION, i128::from(i64::MAX) * BILLION)
}

fn decimal(whole: i64, part: i64) -> Decimal {
    let sum = i128::from(whole) * BILLION + i128::from(part);
    Decimal::try_from_i128_with_scale(sum, 9).unwrap_or(Decimal::MAX).normalize()
}

fn each(amounts: &Amounts) -> impl Iterator<Item = (&'static str, Decimal)> + '_ {
    let units = amounts.units.iter().map(|(unit, quantity)| (unit.as_str(), *quantity));
    units.chain([(MONEY, amounts.usd)]).filter(|(_, figure)| !figure.is_zero())
}

fn push(list: &mut Vec<String>, name: String, billionths: i128) {
    if billionths != 0 {
        list.extend([name, (billionths / BILLION).to_string(), (billionths % BILLION).to_string()]);
    }
}

/// Amounts as scripts read them: name, whole, billionths.
pub(super) fn written(amounts: &Amounts) -> Vec<String> {
    let mut list = Vec::new();
    for (unit, figure) in each(amounts) {
        push(&mut list, unit.to_owned(), billionths(figure));
    }
    list
}

/// What one ledger line adds to its month, where another stood or none did.
pub(super) fn difference(before: Option<&Booked>, after: &Booked, sums: &mut BTreeMap<String, i128>) {
    let month = Month::of(after.booked_ms).0;
    let mut add = |unit: &str, figure: Decimal, sign: i128| {
        let name = month_name(&after.tenant, month, unit);
        *sums.entry(name).or_default() += sign * billionths(figure);
    };
    for (booked, sign) in before.into_iter().map(|before| (before, -1)).chain([(after, 1)]) {
        add(booked.line.unit.as_str(), booked.line.quantity, sign);
        add(MONEY, booked.line.usd.unwrap_or_default(), sign);
    }
}

/// Differences as scripts read them.
pub(super) fn differences(sums: BTreeMap<String, i128>) -> Vec<String> {
    let mut list = Vec::new();
    for (name, sum) in sums {
        push(&mut list, name, sum);
    }
    list
}

fn month_name(tenant: &str, month: i64, unit: &str) -> String {
    format!("{tenant}\u{1f}{month}\u{1f}{unit}")
}

/// The fields that hold a tenant's month, in the order in which [`read`] wants them.
pub(super) fn month_fields(tenant: &str, month: Month) -> Vec<String> {
    fields(|unit| month_name(tenant, month.0, unit))
}

/// The fields that hold what is set aside.
pub(super) fn reserve_fields() -> Vec<String> {
    fields(str::to_owned)
}

fn fields(name: impl Fn(&str) -> String) -> Vec<String> {
    let units = Unit::ALL.iter().map(|unit| unit.as_str()).chain([MONEY]);
    units.flat_map(|unit| [format!("{}w", name(unit)), format!("{}n", name(unit))]).collect()
}

/// Amounts out of their fields, nothing where a field is missing.
pub(super) fn read(figures: &[Option<i64>]) -> Amounts {
    let mut amounts = Amounts::default();
    let names = Unit::ALL.iter().map(|unit| Some(*unit)).chain([None]);
    for (unit, pair) in names.zip(figures.chunks(2)) {
        let part = |at: usize| pair.get(at).copied().flatten().unwrap_or(0);
        let figure = decimal(part(0), part(1));
        match unit {
            None => amounts.usd = figure,
            Some(unit) if !figure.is_zero() => drop(amounts.units.insert(unit, figure)),
            Some(_) => {}
        }
    }
    amounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_back_as_they_were() {
        for text in ["0.1", "-0.1", "12345678901.000000001", "-3", "0.999999999", "9223372036854775806.5"] {
            let figure: Decimal = text.parse().unwrap();
            let all = billionths(figure);
            let (whole, part) = (i64::try_from(all / BILLION).unwrap(), i64::try_from(all % BILLION).unwrap());
            assert_eq!(decimal(whole, part), figure, "{text}");
        }
        assert_eq!(billionths("0.0000000004".parse().unwrap()), 0);
        assert_eq!(billionths(Decimal::MAX), i128::from(i64::MAX) * BILLION);
    }

    #[test]
    fn sums_of_parts_are_whole_again() {
        // Ten thirds, each booked apart: the parts carry over into nothing but the sum.
        let third = billionths("0.333333333".parse().unwrap());
        let (whole, part) = (10 * (third / BILLION), 10 * (third % BILLION));
        let sum = decimal(i64::try_from(whole).unwrap(), i64::try_from(part).unwrap());
        assert_eq!(sum, "3.33333333".parse().unwrap());
    }
}
