//! The runs.

use super::plant::Plant;
use super::run::run;
use super::world::Ran;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds in one run of the tests.
const SEEDS: u64 = 1_000;
/// The last lines of a trace that are shown.
const TAIL: usize = 150;

#[allow(clippy::disallowed_methods)]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs seeds on every processor until one fails: the first that did, by its number.
fn first_wrong(seeds: std::ops::Range<u64>, plant: Option<Plant>) -> Option<u64> {
    let (next, wrong) = (AtomicU64::new(seeds.start), Mutex::new(None::<u64>));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || wrong.lock().unwrap().is_some() {
                        return;
                    }
                    if !run(seed, plant, false).wrong.is_empty() {
                        let mut wrong = wrong.lock().unwrap();
                        *wrong = Some(wrong.map_or(seed, |before| before.min(seed)));
                    }
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

fn show(seed: u64) {
    let Ran { wrong, trace, .. } = run(seed, None, true);
    for line in &trace[trace.len().saturating_sub(TAIL)..] {
        println!("{line}");
    }
    println!("seed {seed}: {wrong:#?}");
    assert!(wrong.is_empty(), "seed {seed} fails; LONGHAUL_SIM_SEED={seed} runs it alone");
}

#[test]
fn seeds() {
    if let Some(seed) = number("LONGHAUL_SIM_SEED") {
        return show(seed);
    }
    let count = number("LONGHAUL_SIM_SEEDS").unwrap_or(SEEDS);
    if let Some(seed) = first_wrong(0..count, None) {
        show(seed);
        panic!("seed {seed} failed and does not fail again: the simulation does not repeat itself");
    }
}

/// Seeds within which each planted fault must be found.
const FOUND_WITHIN: u64 = 100;

#[test]
fn planted_faults_are_found() {
    for plant in Plant::ALL {
        let found = first_wrong(0..FOUND_WITHIN, Some(plant));
        println!("{plant:?}: {:?} {:?}", found, found.map(|seed| run(seed, Some(plant), false).wrong.swap_remove(0)));
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..200 {
        let (one, other) = (run(seed, None, true), run(seed, None, true));
        assert!(one.trace.len() > 20, "{:?}", one.trace);
        if let Some(at) = one.trace.iter().zip(&other.trace).position(|(one, other)| one != other) {
            panic!("seed {seed} differs: {:#?} and {:#?}", &one.trace[at.saturating_sub(9)..=at], other.trace[at]);
        }
        assert_eq!(one.trace.len(), other.trace.len());
    }
}

#[test]
fn runs_reach_every_corner() {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..300 {
        for (what, times) in run(seed, None, false).seen {
            *seen.entry(what).or_insert(0) += times;
        }
    }
    println!("{seen:#?}");
}
