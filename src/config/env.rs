//! The one module that reads the environment.

#![allow(clippy::disallowed_methods)]

/// A variable's value, where it is set and is text.
#[must_use]
pub fn lookup(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Every `LONGHAUL__…` variable with its value.
#[must_use]
pub fn overrides() -> Vec<(String, String)> {
    let vars =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut found: Vec<_> = vars.filter(|(name, _)| name.starts_with("LONGHAUL__")).collect();
    found.sort();
    found
}
