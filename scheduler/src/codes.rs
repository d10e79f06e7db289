//! Where a code's page is, and what it advises.

/// A code's advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The next thing to try.
    pub(crate) hint: String,
    /// The page's path in the documentation.
    pub(crate) docs: String,
}

/// The page of a code, or of the kind it belongs to where the code itself has none.
pub(crate) fn page(_code: &str, _kind: &str) -> Option<Page> {
    None
}
