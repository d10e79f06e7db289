//! The scripts, each with what it shares.

use super::link::Script;

const COMMON: &str = include_str!("lua/common.lua");
const LEASE: &str = include_str!("lua/lease.lua");

/// Every script.
pub(super) struct Scripts {
    pub(super) submit: Script,
    pub(super) claim: Script,
    pub(super) take: Script,
    pub(super) renew: Script,
    pub(super) release: Script,
    pub(super) commit: Script,
    pub(super) get: Script,
    pub(super) append: Script,
    pub(super) enqueue: Script,
    pub(super) chores: Script,
    pub(super) finish: Script,
    pub(super) remove: Script,
    pub(super) late: Script,
    pub(super) gate: Script,
    pub(super) ungate: Script,
    pub(super) key: Script,
    pub(super) path: Script,
    pub(super) paths: Script,
    pub(super) durations: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        let shard = |body: &str| Script::new(&[COMMON, body]);
        let leasing = |body: &str| Script::new(&[COMMON, LEASE, body]);
        Self {
            submit: shard(include_str!("lua/submit.lua")),
            claim: leasing(include_str!("lua/claim.lua")),
            take: leasing(include_str!("lua/take.lua")),
            renew: shard(include_str!("lua/renew.lua")),
            release: leasing(include_str!("lua/release.lua")),
            commit: shard(include_str!("lua/commit.lua")),
            get: shard(include_str!("lua/get.lua")),
            append: shard(include_str!("lua/append.lua")),
            enqueue: shard(include_str!("lua/enqueue.lua")),
            chores: shard(include_str!("lua/chores.lua")),
            finish: shard(include_str!("lua/finish.lua")),
            remove: shard(include_str!("lua/remove.lua")),
            late: shard(include_str!("lua/late.lua")),
            paths: shard(include_str!("lua/paths.lua")),
            durations: shard(include_str!("lua/durations.lua")),
            gate: Script::new(&[include_str!("lua/gate.lua")]),
            ungate: Script::new(&[include_str!("lua/ungate.lua")]),
            key: Script::new(&[include_str!("lua/key.lua")]),
            path: Script::new(&[include_str!("lua/path.lua")]),
        }
    }
}
