//! Whose turn it is: weighted fair sharing of a connector's fresh starts among tenants (stride scheduling).

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// How far a start of weight 1 moves a tenant on.
const STEP: u64 = 1_000_000;

/// How far one start moves a tenant of this weight on: the more weight, the less.
#[must_use]
pub fn stride(weight: u32) -> u64 {
    (STEP / u64::from(weight.max(1))).max(1)
}

/// The tenants with a start waiting at one connector, each at its own virtual time. The one that is furthest behind goes
/// first; one that comes back begins at the present time, so that nobody saves turns up.
#[derive(Clone, Debug)]
pub struct Turns<K> {
    waiting: BTreeSet<(u64, K)>,
    times: HashMap<K, u64>,
    now: u64,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self { waiting: BTreeSet::new(), times: HashMap::new(), now: 0 }
    }
}

impl<K: Copy + Ord + Hash> Turns<K> {
    /// The tenant waits from now on; one that waits already keeps its place.
    pub fn join(&mut self, tenant: K) {
        let time = self.times.get(&tenant).copied().unwrap_or(self.now);
        if self.waiting.contains(&(time, tenant)) {
            return;
        }
        let time = time.max(self.now);
        self.times.insert(tenant, time);
        self.waiting.insert((time, tenant));
    }

    /// The tenant waits no longer. What it is ahead of others it stays.
    pub fn leave(&mut self, tenant: K) {
        if let Some(time) = self.times.get(&tenant) {
            self.waiting.remove(&(*time, tenant));
        }
        // Those that are not ahead begin at the present time in any case.
        if self.times.len() > 64 + 2 * self.waiting.len() {
            let (now, waiting) = (self.now, &self.waiting);
            self.times.retain(|tenant, time| *time > now || waiting.contains(&(*time, *tenant)));
        }
    }

    /// Whose turn it is.
    #[must_use]
    pub fn first(&self) -> Option<K> {
        self.waiting.first().map(|(_, tenant)| *tenant)
    }

    /// One start of the tenant was handed out.
    pub fn took(&mut self, tenant: K, weight: u32) {
        let time = self.times.get(&tenant).copied().unwrap_or(self.now);
        let waits = self.waiting.remove(&(time, tenant));
        self.now = self.now.max(time);
        let next = time.saturating_add(stride(weight));
        self.times.insert(tenant, next);
        if waits {
            self.waiting.insert((next, tenant));
        }
    }

    /// Nobody waits any more; what tenants are ahead they stay.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Those who wait, in the order of their turns.
    pub fn iter(&self) -> impl Iterator<Item = K> + '_ {
        self.waiting.iter().map(|(_, tenant)| *tenant)
    }

    /// How many tenants wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
