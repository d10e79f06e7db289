//! Where a code's page is, and what it advises.

use longhaul_registry::codes;

/// The page of a code, or of the kind it belongs to where the code itself has none.
pub(crate) fn docs(code: &str, kind: &str) -> Option<String> {
    codes::get(code).or_else(|| codes::get(kind)).map(codes::Code::docs)
}

/// The next thing to try, by the same order.
pub(crate) fn hint(code: &str, kind: &str) -> Option<String> {
    codes::get(code).or_else(|| codes::get(kind)).map(|code| code.hint.to_owned())
}
