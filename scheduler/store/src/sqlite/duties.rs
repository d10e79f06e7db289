//! Who has which maintenance duty. One process has the file, so its memory is the place: a duty ends with it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Duties with their owners.
#[derive(Debug, Default)]
pub(super) struct Duties(Mutex<HashMap<String, Held>>);

#[derive(Debug)]
struct Held {
    owner: String,
    until_ms: i64,
}

impl Duties {
    pub(super) fn lead(&self, duty: &str, owner: &str, now_ms: i64, lease_ms: i64) -> bool {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let anothers = held.get(duty).is_some_and(|held| held.owner != owner && held.until_ms > now_ms);
        if !anothers {
            let until_ms = now_ms.saturating_add(lease_ms);
            held.insert(duty.to_owned(), Held { owner: owner.to_owned(), until_ms });
        }
        !anothers
    }

    pub(super) fn step_down(&self, duty: &str, owner: &str) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.get(duty).is_some_and(|held| held.owner == owner) {
            held.remove(duty);
        }
    }
}
