//! Circuits, by the times and shares that are documented: five calls in a minute, more than half of them failed, for two
//! seconds; tries after 2, 4, 8 … seconds; the way back at one a second, doubled every two.

use super::circuit::{Circuit, Circuits, TRY_MS, Try};
use super::{Rate, request_rate, start_rate};
use crate::{Pace, WaitReason};
use longhaul_registry::{ConnectorLimits, Step};
use proptest::prelude::*;

const NOW: i64 = 1_796_040_000_000;

/// Told so many milliseconds after now: answered, failed. The dice lie in the middle.
fn told(step: Step, told: &[(i64, u32, u32)]) -> Circuits {
    told.iter().fold(Circuits::default(), |circuits, (at, ok, failed)| {
        circuits.counted(step, NOW + at, *ok, *failed, 0.5).unwrap_or(circuits)
    })
}

fn open(since_ms: i64, tries: u32, next_ms: i64) -> Circuit {
    Circuit::Open { since_ms: NOW + since_ms, tries, next_ms: NOW + next_ms }
}

#[test]
fn it_opens_when_most_of_enough_calls_failed_for_long_enough() {
    let opened = |list: &[(i64, u32, u32)]| told(Step::Start, list).is_open(Step::Start);
    assert!(opened(&[(0, 0, 3), (2_000, 0, 2)]));
    assert!(!opened(&[(0, 0, 3), (2_000, 0, 1)]), "four calls say nothing");
    assert!(!opened(&[(0, 0, 300), (1_999, 0, 300)]), "a moment is no outage");
    assert!(!opened(&[(0, 3, 3), (2_000, 2, 2)]), "half is not most");
    assert!(opened(&[(0, 3, 3), (2_000, 2, 3)]));
    assert!(!opened(&[(0, 0, 300), (2_500, 4, 0)]), "what is over by then opens nothing");
    assert!(!opened(&[(0, 0, 4), (60_000, 0, 1)]), "a minute later counting begins anew");
    assert!(opened(&[(0, 0, 4), (59_999, 0, 1)]));
    // A worker whose network is broken beside three that are well: they are asked for what they saw.
    assert!(!opened(&[(0, 0, 10), (500, 30, 0), (1_000, 0, 10), (1_500, 30, 0), (2_000, 0, 10), (3_000, 0, 10)]));
    // One job that backs off alone: tries after 0, 1, 3, 7 and 15 seconds.
    assert!(opened(&[(0, 0, 1), (1_000, 0, 1), (3_000, 0, 1), (7_000, 0, 1), (15_000, 0, 1)]));
}

#[test]
fn good_answers_are_told_only_where_there_is_something_to_weigh_them_against() {
    assert_eq!(Circuits::default().counted(Step::Poll, NOW, 1_000, 0, 0.5), None);
    let failing = told(Step::Poll, &[(0, 0, 1)]);
    assert_eq!(failing.counted(Step::Start, NOW, 1_000, 0, 0.5), None, "another step's");
    let weighed = failing.counted(Step::Poll, NOW + 1_000, 1_000, 0, 0.5).unwrap();
    assert_eq!(weighed.rev, 2);
    // When the minute is over nobody tells any more.
    let over = weighed.counted(Step::Poll, NOW + 60_000, 1_000, 0, 0.5).unwrap();
    assert_eq!(over.counted(Step::Poll, NOW + 61_000, 1_000, 0, 0.5), None);
}

#[test]
fn tries_come_ever_later_and_a_good_one_closes_it() {
    let circuits = told(Step::Start, &[(0, 0, 5), (2_000, 0, 5)]);
    assert_eq!(circuits.of(Step::Start), open(2_000, 0, 4_000));
    let early = circuits.counted(Step::Start, NOW + 3_999, 9, 9, 0.5);
    assert_eq!(early, None, "those calls left before it opened");
    let mut circuit = circuits.of(Step::Start);
    let mut at = 4_000;
    for (tries, wait) in [(1, 4_000), (2, 8_000), (3, 16_000), (4, 32_000), (5, 60_000), (6, 60_000)] {
        circuit = circuit.counted(Step::Start, NOW + at, 0, 1, 0.5);
        assert_eq!(circuit, open(2_000, tries, at + wait));
        at += wait;
    }
    let closed = circuit.counted(Step::Start, NOW + at, 1, 0, 0.5);
    assert_eq!(closed, Circuit::Closed { ok: 0, failed: 0, since_ms: NOW + at, back_ms: Some(NOW + at) });
    // A free step is tried more often than a paid one.
    let polls = open(0, 30, 0).counted(Step::Poll, NOW, 0, 1, 0.5);
    assert_eq!(polls, open(0, 31, 15_000));
    // The dice spread a try by a quarter either way.
    assert_eq!(open(0, 0, 0).counted(Step::Start, NOW, 0, 1, 0.0), open(0, 1, 3_000));
    assert_eq!(open(0, 0, 0).counted(Step::Start, NOW, 0, 1, 1.0), open(0, 1, 5_000));
}

#[test]
fn one_start_at_a_time_tries_and_free_calls_go_first() {
    let starts = told(Step::Start, &[(0, 0, 5), (2_000, 0, 5)]);
    assert_eq!(starts.holds_starts(), Some(NOW + 4_000));
    assert_eq!(starts.next_start_ms(None), Some(NOW + 4_000));
    let gone = Try { ticket: NOW + 4_000, at_ms: NOW + 4_100 };
    assert_eq!(starts.next_start_ms(Some(gone)), Some(NOW + 4_100 + TRY_MS), "it has its time to tell");
    let before = Try { ticket: NOW + 1, at_ms: NOW + 4_100 };
    assert_eq!(starts.next_start_ms(Some(before)), Some(NOW + 4_000), "that one tried something else");
    let polls = told(Step::Poll, &[(0, 0, 5), (2_000, 0, 5)]);
    assert_eq!(polls.holds_starts(), Some(NOW + 34_000), "polls have half a minute to tell for nothing");
    for step in [Step::Answer, Step::Cancel] {
        let circuits = told(step, &[(0, 0, 5), (2_000, 0, 5)]);
        assert!(circuits.is_open(step));
        assert_eq!((circuits.holds_starts(), circuits.hold_back(NOW + 2_000)), (None, false), "{step}");
    }
    assert_eq!(Circuits::default().next_start_ms(Some(gone)), None);
}

#[test]
fn what_an_outage_slows_is_charged_to_nobody() {
    let spared = |open: Step| {
        let circuits = told(open, &[(0, 0, 5), (2_000, 0, 5)]);
        Step::ALL.into_iter().filter(|step| circuits.spare(*step)).collect::<Vec<_>>()
    };
    assert_eq!(spared(Step::Poll), Step::ALL);
    assert_eq!(spared(Step::Start), [Step::Start]);
    assert_eq!(spared(Step::Outputs), [Step::Start, Step::Outputs], "a start that tries is no job's own fault");
    assert_eq!((spared(Step::Answer), spared(Step::Cancel)), (vec![Step::Answer], vec![Step::Cancel]));
}

#[test]
fn they_come_back_spread_out() {
    let limits = ConnectorLimits { in_flight: None, starts_per_minute: Some(600), requests_per_second: Some(10) };
    let rates = |circuits: &Circuits, at: i64| {
        let none = ConnectorLimits::default();
        let all = [start_rate(&none, circuits, NOW + at), request_rate(&none, None, circuits, NOW + at)];
        all.map(|rate| rate.map(|rate| rate.0 / 60_000))
    };
    let down = told(Step::Poll, &[(0, 0, 5), (2_000, 0, 5)]);
    assert_eq!(rates(&down, 2_000), [None, Some(1)], "a second at most one, whatever is due");
    let up = down.counted(Step::Poll, NOW + 4_000, 1, 0, 0.5).unwrap();
    for (at, rate) in [(4_000, 1), (5_999, 1), (6_000, 2), (8_000, 4), (10_000, 8), (12_000, 16), (33_999, 16_384)] {
        assert_eq!(rates(&up, at), [Some(rate), Some(rate)], "{at}");
    }
    assert_eq!(rates(&up, 34_000), [None, None]);
    assert!(up.hold_back(NOW + 33_999) && !up.hold_back(NOW + 34_000));
    assert_eq!(request_rate(&limits, None, &up, NOW + 12_000), Some(Rate::per_second(10)), "never beyond the limit");
    let pace = Pace { rate: Rate::per_second(2), gain: Rate(0), ends: Rate::per_second(9), since_ms: NOW };
    assert_eq!(request_rate(&limits, Some(&pace), &up, NOW + 12_000), Some(Rate::per_second(2)));
    assert_eq!(start_rate(&limits, &up, NOW + 12_000), Some(Rate::per_second(10)));
    // Where starts alone fail, polls of what runs go on as they did.
    let starts = told(Step::Start, &[(0, 0, 5), (2_000, 0, 5)]);
    assert_eq!(rates(&starts, 2_000), [None, None]);
    let back = starts.counted(Step::Start, NOW + 4_000, 1, 0, 0.5).unwrap();
    assert_eq!(rates(&back, 4_000), [Some(1), None]);
}

#[test]
fn what_was_counted_alone_changes_no_claim() {
    let one = told(Step::Start, &[(0, 0, 1)]);
    assert!(one.act_alike(&Circuits::default()));
    let open = told(Step::Start, &[(0, 0, 5), (2_000, 0, 5)]);
    assert!(!open.act_alike(&one));
    let closed = open.counted(Step::Start, NOW + 4_000, 1, 0, 0.5).unwrap();
    assert!(!closed.act_alike(&open) && !closed.act_alike(&one), "it comes back slowly");
}

#[test]
fn the_reason_is_a_word_of_the_api() {
    assert_eq!(serde_json::to_value(WaitReason::Circuit).unwrap(), "circuit");
}

proptest! {
    /// Whatever is told in whatever order: it never opens for a minority, revisions grow by one, tries never lie beyond their
    /// ceiling, and within two minutes of good answers everything is as if nothing had been.
    #[test]
    fn circuits_are_sound(told in proptest::collection::vec((0..20_000_i64, 0..20_u32, 0..20_u32, 0.0..1.0_f64), 1..60)) {
        let (mut circuits, mut now) = (Circuits::default(), NOW);
        for (gone, ok, failed, dice) in told {
            now += gone;
            let before = circuits.clone();
            circuits = circuits.counted(Step::Start, now, ok, failed, dice).unwrap_or(circuits);
            prop_assert!(circuits.rev - before.rev <= 1);
            match (before.of(Step::Start), circuits.of(Step::Start)) {
                (Circuit::Closed { ok: had_ok, failed: had_failed, since_ms, .. }, Circuit::Open { .. }) => {
                    let (ok_since, failed_since) = (had_ok + ok, had_failed + failed);
                    prop_assert!(failed_since > ok_since && failed_since + ok_since >= 5);
                    prop_assert!((2_000..60_000).contains(&(now - since_ms)));
                }
                (Circuit::Open { next_ms, .. }, Circuit::Closed { .. }) => prop_assert!(now >= next_ms && ok >= failed),
                _ => {}
            }
            if let Circuit::Open { next_ms, .. } = circuits.of(Step::Start) {
                prop_assert!(next_ms - now <= 75_000);
                prop_assert!(circuits.holds_starts() == Some(next_ms));
            }
        }
        for _ in 0..120 {
            now += 1_000;
            circuits = circuits.counted(Step::Start, now, 1, 0, 0.5).unwrap_or(circuits);
        }
        prop_assert!(!circuits.hold_back(now));
    }
}
