//! The runs.

use super::plant::Plant;
use super::run::run;
use super::world::Ran;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds in one run of the tests: about fifteen seconds on two processors.
const SEEDS: u64 = 2_000;
/// Seeds that once failed, with what they found. They are run before all others for as long as they lead there; each fault has
/// an example of its own beside the code that was mended.
const KEPT: [(u64, &str); 1] =
    [(233, "a worker that was frozen sent its answer after its lease, to the next question")];
/// Seeds that are looked at for what they reach.
const CORNER_SEEDS: u64 = 400;
/// Seeds that are run twice.
const TWICE: u64 = 30;
/// The last lines of a trace that are shown.
const TAIL: usize = 150;

#[allow(clippy::disallowed_methods)]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs seeds on every processor until one fails: the first that did, by its number.
fn first_wrong(seeds: std::ops::Range<u64>, plant: Option<Plant>, words: &str) -> Option<u64> {
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
                    if run(seed, plant, false).wrong.iter().any(|wrong| wrong.contains(words)) {
                        let mut wrong = wrong.lock().unwrap();
                        *wrong = Some(wrong.map_or(seed, |before| before.min(seed)));
                    }
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

/// Runs a seed with its trace, and fails where it does.
fn show(seed: u64) {
    let Ran { wrong, trace, .. } = run(seed, None, true);
    if !wrong.is_empty() || number("LONGHAUL_SIM_SEED").is_some() {
        for line in &trace[trace.len().saturating_sub(TAIL)..] {
            println!("{line}");
        }
        println!("seed {seed}: {wrong:#?}");
    }
    assert!(wrong.is_empty(), "seed {seed} fails; LONGHAUL_SIM_SEED={seed} runs it alone");
}

#[test]
fn seeds() {
    if let Some(seed) = number("LONGHAUL_SIM_SEED") {
        return show(seed);
    }
    for (seed, found) in KEPT {
        println!("kept seed {seed}: {found}");
        show(seed);
    }
    let count = number("LONGHAUL_SIM_SEEDS").unwrap_or(SEEDS);
    if let Some(seed) = first_wrong(0..count, None, "") {
        show(seed);
        panic!("seed {seed} failed and does not fail again: the simulation does not repeat itself");
    }
}

/// Planted faults: within how many seeds one must show, and how it shows.
const PLANTS: [(Plant, u64, &str); 14] = [
    (Plant::CommitsDropped, 10, "is not there"),
    (Plant::FencesIgnored, 100, "the newest is"),
    (Plant::RevisionsIgnored, 60, ""),
    (Plant::HistoryGaps, 10, "has lines"),
    (Plant::LimitsIgnored, 60, "run at the vendor"),
    (Plant::LeasesEternal, 60, "rests as"),
    (Plant::SubmitsDropped, 10, "is lost"),
    (Plant::KeysIgnored, 100, "was bought twice"),
    (Plant::SearchBlind, 100, "was bought twice"),
    (Plant::AnswersBlind, 400, "went to"),
    (Plant::BillsDoubled, 10, "which is not its own"),
    (Plant::FenceUnchecked, 400, "whose lease had ended"),
    (Plant::OutputsUnfetched, 10, "which is not its own"),
    (Plant::SignalsDropped, 60, "is forgotten"),
];

/// A simulation that cannot fail proves nothing.
#[test]
fn planted_faults_are_found() {
    for (plant, within, words) in PLANTS {
        let seed = first_wrong(0..within, Some(plant), words);
        let seed = seed.unwrap_or_else(|| panic!("{plant:?} is not found by {words:?} within {within} seeds"));
        assert!(run(seed, None, false).wrong.is_empty(), "seed {seed} fails without {plant:?} too");
    }
}

/// What a few hundred runs must come by, or they prove less than they seem to.
const CORNERS: [&str; 36] = [
    "answer a person",
    "answer timeout",
    "cancel Confirmed",
    "cancel TooLate",
    "cancel Unsupported",
    "commit changed",
    "commit lost",
    "error auth",
    "error lease_ran_out",
    "error lost_at_vendor",
    "error network",
    "error not_found",
    "error poison",
    "error quota",
    "error rate_limited",
    "error start_unknown",
    "error timeout",
    "error vendor_error",
    "operator cancel",
    "operator replay",
    "operator resolve",
    "rests with content_policy",
    "rests with limit_exceeded",
    "rests with output_empty",
    "rests with poison",
    "rests with start_unknown",
    "state cancelled",
    "state failed",
    "state limit_exceeded",
    "state parked",
    "state succeeded",
    "step answer_delivered",
    "step fresh_link_asked",
    "step staged",
    "step start_absent",
    "step start_found",
];

#[test]
fn runs_reach_every_corner() {
    let mut seen = BTreeMap::new();
    for seed in 0..CORNER_SEEDS {
        for (what, times) in run(seed, None, false).seen {
            *seen.entry(what).or_insert(0) += times;
        }
    }
    let missed: Vec<_> = CORNERS.into_iter().filter(|corner| !seen.contains_key(*corner)).collect();
    assert!(missed.is_empty(), "{missed:?} of {seen:#?}");
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..TWICE {
        let (one, other) = (run(seed, None, true), run(seed, None, true));
        assert!(one.trace.len() > 20, "{:?}", one.trace);
        if let Some(at) = one.trace.iter().zip(&other.trace).position(|(one, other)| one != other) {
            panic!("seed {seed} differs: {:#?} and {:#?}", &one.trace[at.saturating_sub(9)..=at], other.trace[at]);
        }
        assert_eq!(one.trace.len(), other.trace.len());
    }
}
