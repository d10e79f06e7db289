//! Whether a connector's vendor tells by itself when it is done.

/// So many ends in a row must have been announced before polls may slow down.
const PROOF: u32 = 8;

/// How many of a connector's last ends were announced before a poll saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    in_a_row: u32,
}

impl Announced {
    /// An end came: a webhook had made that poll due, or a poll found it by itself, which ends all trust.
    pub fn ended(&mut self, announced: bool) {
        self.in_a_row = if announced { self.in_a_row.saturating_add(1) } else { 0 };
    }

    /// Webhooks arrive.
    #[must_use]
    pub fn proven(self) -> bool {
        self.in_a_row >= PROOF
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_takes_eight_ends_and_is_lost_by_one() {
        let mut announced = Announced::default();
        (0..7).for_each(|_| announced.ended(true));
        assert!(!announced.proven());
        announced.ended(true);
        assert!(announced.proven());
        (0..1000).for_each(|_| announced.ended(true));
        announced.ended(false);
        assert!(!announced.proven(), "one that a poll found first");
        (0..8).for_each(|_| announced.ended(true));
        assert!(announced.proven(), "and it is won again");
    }
}
