//! Names of keys.

/// Writes names below a prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
    shards: u32,
}

/// Parts of a name that come from people are told apart by this.
const APART: char = '\u{1f}';

impl Names {
    pub(super) fn new(prefix: &str, shards: u32) -> Self {
        Self { prefix: prefix.to_owned(), shards: shards.max(1) }
    }

    pub(super) fn shards(&self) -> u32 {
        self.shards
    }

    /// The shard that a job lies in. FNV-1a: short, and the same on every build.
    pub(super) fn shard_of(&self, job: &str) -> u32 {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in job.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        // FNV spreads names that differ in their last letters badly; this stirs them (the finish of MurmurHash3).
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        u32::try_from((hash ^ (hash >> 33)) % u64::from(self.shards)).unwrap_or(0)
    }

    /// A key of a shard.
    pub(super) fn at(&self, shard: u32, rest: &str) -> String {
        format!("{}{{{shard}}}:{rest}", self.prefix)
    }

    /// The key that scripts on a shard are given.
    pub(super) fn shard(&self, shard: u32) -> String {
        self.at(shard, "s")
    }

    /// A job's own key.
    pub(super) fn job(&self, job: &str) -> String {
        self.at(self.shard_of(job), &format!("j:{job}"))
    }

    fn plain(&self, kind: &str, parts: &[&str]) -> String {
        let mut name = format!("{}:{kind}:", self.prefix);
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                name.push(APART);
            }
            name.push_str(part);
        }
        name
    }

    /// Names of one kind outside shards: what they begin with, or all of them as a pattern.
    pub(super) fn loose(&self, kind: &str, rest: &str) -> String {
        self.plain(kind, &[rest])
    }

    pub(super) fn meta(&self) -> String {
        format!("{}:meta", self.prefix)
    }

    pub(super) fn tokens(&self) -> String {
        format!("{}:tokens", self.prefix)
    }

    pub(super) fn connectors(&self) -> String {
        format!("{}:connectors", self.prefix)
    }

    /// Who is here.
    pub(super) fn alive(&self) -> String {
        format!("{}:alive", self.prefix)
    }

    pub(super) fn channel(&self) -> String {
        format!("{}:changes", self.prefix)
    }

    pub(super) fn idempotency(&self, tenant: &str, key: &str) -> String {
        self.plain("i", &[tenant, key])
    }

    pub(super) fn path(&self, tenant: &str, path: &str) -> String {
        self.plain("p", &[tenant, path])
    }

    pub(super) fn vendor_id(&self, connector: &str, id: &str) -> String {
        self.plain("v", &[connector, id])
    }

    pub(super) fn artifact(&self, id: &str) -> String {
        self.plain("a", &[id])
    }

    pub(super) fn bytes(&self, tenant: &str, sha256: &str) -> String {
        self.plain("h", &[tenant, sha256])
    }

    /// A maintenance duty and who has it.
    pub(super) fn duty(&self, duty: &str) -> String {
        self.plain("d", &[duty])
    }

    /// Who holds a connector's places.
    pub(super) fn gate(&self, connector: &str) -> String {
        format!("{}:g:{{{connector}}}", self.prefix)
    }

    /// A connector's token buckets, on the slot of its places.
    pub(super) fn buckets(&self, connector: &str) -> String {
        format!("{}:b:{{{connector}}}", self.prefix)
    }

    /// Who decides about a tenant's budgets at the moment.
    pub(super) fn tenant(&self, tenant: &str) -> String {
        self.plain("t", &[tenant])
    }
}

/// The two parts of a name that come from people.
pub(super) fn split(rest: &str) -> Option<(&str, &str)> {
    rest.split_once(APART)
}

/// When a job was made, by its id: a UUID of version 7 behind `job_`.
pub(super) fn made_ms(job: &str) -> Option<i64> {
    let uuid = uuid::Uuid::parse_str(job.strip_prefix("job_")?).ok()?;
    let (seconds, nanos) = uuid.get_timestamp()?.to_unix();
    Some(i64::try_from(seconds).ok()?.saturating_mul(1_000) + i64::from(nanos / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_spread_over_shards_and_stay_where_they_are() {
        let names = Names::new("lh", 16);
        let mut counts = [0_u32; 16];
        for at in 0..16_000 {
            counts[usize::try_from(names.shard_of(&format!("job_{at:06}"))).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
        // Whoever changes this strands every job that is stored.
        assert_eq!(names.shard_of("job_01936f2e-7c1a-7000-8000-000000000001"), 11);
    }

    #[test]
    fn no_part_runs_into_the_next() {
        let names = Names::new("lh", 1);
        assert_ne!(names.path("a", "b/c"), names.path("a/b", "c"));
        assert_ne!(names.path("a", "bc"), names.path("ab", "c"));
    }
}
