//! A job's `vendor` options against the vendor's list.

use crate::connector::VendorFile;
use crate::nearest::unknown_key;
use crate::path::join;
use crate::values::{Wanted, check};
use crate::vocabulary::Problem;
use serde_json::{Map, Value};

/// What is wrong with the options of a job: unknown keys (naming the nearest known one), types, values that
/// are not allowed, ranges and lengths. Which model takes which option, the vendor's module says.
#[must_use]
pub fn check_options(vendor: &VendorFile, options: &Map<String, Value>) -> Vec<Problem> {
    let known: Vec<_> = vendor.options.keys().map(String::as_str).collect();
    let mut problems = Vec::new();
    for (key, value) in options {
        let path = join("vendor", key);
        match vendor.options.get(key) {
            None => problems.push(unknown_key(path, key, &known)),
            Some(spec) => {
                let wanted = Wanted {
                    kind: &spec.kind,
                    allowed: &spec.allowed,
                    min: spec.min,
                    max: spec.max,
                    max_chars: spec.max_chars,
                };
                problems.extend(check(&path, value, &wanted));
            }
        }
    }
    problems
}
