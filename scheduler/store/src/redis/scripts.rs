//! The scripts, each with what it shares.

use super::script::Script;

const COMMON: &str = include_str!("lua/common.lua");
const SERVER: &str = include_str!("lua/server.lua");
const SEGMENTS: &str = include_str!("lua/segments.lua");
const LEASE: &str = include_str!("lua/lease.lua");

/// Every script.
pub(super) struct Scripts {
    pub(super) submit: Script,
    pub(super) claim: Script,
    pub(super) take: Script,
    pub(super) seen: Script,
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
    pub(super) charge: Script,
    pub(super) circuits: Script,
    pub(super) decided: Script,
    pub(super) meter: Script,
    pub(super) key: Script,
    pub(super) lead: Script,
    pub(super) step_down: Script,
    pub(super) path: Script,
    pub(super) paths: Script,
    pub(super) load: Script,
    pub(super) load_events: Script,
    pub(super) load_exchange: Script,
    pub(super) load_artifact: Script,
    pub(super) load_chore: Script,
    pub(super) load_usage: Script,
    pub(super) settle: Script,
    pub(super) prune_usage: Script,
    pub(super) prune_key: Script,
    pub(super) durations: Script,
    pub(super) segment: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        let shard = |body: &str| Script::new(&[COMMON, body]);
        let leasing = |body: &str| Script::new(&[COMMON, LEASE, body]);
        Self {
            submit: shard(include_str!("lua/submit.lua")),
            claim: Script::new(&[COMMON, SERVER, LEASE, include_str!("lua/claim.lua")]),
            seen: Script::new(&[COMMON, SERVER, include_str!("lua/seen.lua")]),
            take: leasing(include_str!("lua/take.lua")),
            renew: shard(include_str!("lua/renew.lua")),
            release: leasing(include_str!("lua/release.lua")),
            commit: Script::new(&[COMMON, SEGMENTS, include_str!("lua/commit.lua")]),
            get: shard(include_str!("lua/get.lua")),
            append: shard(include_str!("lua/append.lua")),
            enqueue: shard(include_str!("lua/enqueue.lua")),
            chores: shard(include_str!("lua/chores.lua")),
            finish: shard(include_str!("lua/finish.lua")),
            remove: Script::new(&[COMMON, SEGMENTS, include_str!("lua/remove.lua")]),
            late: shard(include_str!("lua/late.lua")),
            paths: shard(include_str!("lua/paths.lua")),
            load: shard(include_str!("lua/load.lua")),
            load_events: shard(include_str!("lua/load_events.lua")),
            load_exchange: shard(include_str!("lua/load_exchange.lua")),
            load_artifact: shard(include_str!("lua/load_artifact.lua")),
            load_chore: shard(include_str!("lua/load_chore.lua")),
            load_usage: shard(include_str!("lua/load_usage.lua")),
            settle: shard(include_str!("lua/settle.lua")),
            prune_usage: shard(include_str!("lua/prune_usage.lua")),
            prune_key: Script::new(&[include_str!("lua/prune_key.lua")]),
            lead: Script::new(&[include_str!("lua/lead.lua")]),
            step_down: Script::new(&[include_str!("lua/step_down.lua")]),
            meter: shard(include_str!("lua/meter.lua")),
            durations: shard(include_str!("lua/durations.lua")),
            segment: shard(include_str!("lua/segment.lua")),
            gate: Script::new(&[include_str!("lua/gate.lua")]),
            circuits: Script::new(&[include_str!("lua/circuits.lua")]),
            decided: Script::new(&[include_str!("lua/decided.lua")]),
            charge: Script::new(&[include_str!("lua/charge.lua")]),
            ungate: Script::new(&[include_str!("lua/ungate.lua")]),
            key: Script::new(&[include_str!("lua/key.lua")]),
            path: Script::new(&[include_str!("lua/path.lua")]),
        }
    }
}
