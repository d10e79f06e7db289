//! Tenants: their numbers, what they spent this month, and what is set aside for their jobs at vendors.

use super::fault::Done;
use super::writer::Session;
use crate::limits::{Amounts, Month, TenantRow};

/// What tenants spent and set aside.
pub(super) fn rows(s: &mut Session<'_>, names: &[String]) -> Done<Vec<TenantRow>> {
    let month = Month::of(s.now_ms);
    let row = |tenant: &String| TenantRow {
        tenant: tenant.clone(),
        month,
        limits: s.board.limits().tenants.get(tenant).cloned().unwrap_or_default(),
        spent: Amounts::default(),
        reserved: Amounts::default(),
    };
    Ok(names.iter().map(row).collect())
}
