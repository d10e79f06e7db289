//! Polls laid out by what was learned, against the plain cadence: jobs of many shapes are played through both, and what the
//! planned ones teach is what the next ones are planned by.

use super::*;
use crate::advance::due;
use crate::durations::Sketch;
use longhaul_registry::Cadence;

/// A small linear generator: the same throws at every run.
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A duration around a median, its logarithm spread like a bell (twelve throws).
    fn around(&mut self, median_s: f64, spread: f64) -> f64 {
        let bell: f64 = (0..12).map(|_| self.throw()).sum::<f64>() - 6.0;
        median_s * (spread * bell).exp()
    }
}

const DEFAULT: Cadence = Cadence { first_s: 1.0, factor: 1.6, ceiling_s: 10.0, jitter: 0.2 };
const IMAGE: Cadence = Cadence { first_s: 1.0, factor: 2.0, ceiling_s: 5.0, jitter: 0.2 };
const VIDEO: Cadence = Cadence { first_s: 6.0, factor: 1.2, ceiling_s: 12.0, jitter: 0.15 };

/// What one job came to.
struct Played {
    polls: u32,
    late_s: f64,
    /// What it teaches.
    ms: u64,
}

/// Plays one job that ends after `takes_s`, polled as [`crate::advance`] does.
fn play(cadence: &Cadence, plan: Option<&Plan>, takes_s: f64, dice: &mut Dice) -> Played {
    let (mut age, mut polls, mut delay) = (Duration::ZERO, 0, None);
    loop {
        let throw = dice.throw();
        let seen = age;
        let (before, after) =
            plan.and_then(|plan| due::foreseen(cadence, plan, age, false, throw)).unwrap_or_else(|| {
                let grown = due::grown(cadence, delay);
                (grown, due::jittered(cadence, grown, throw))
            });
        delay = Some(before.min(Duration::from_secs_f64(cadence.ceiling_s)));
        age += after;
        polls += 1;
        if age.as_secs_f64() >= takes_s {
            let ms = (age - (age - seen).mul_f64(dice.throw())).as_millis();
            return Played { polls, late_s: age.as_secs_f64() - takes_s, ms: u64::try_from(ms).unwrap() };
        }
    }
}

/// Mean polls and mean lateness of many jobs, and what they teach.
fn many(
    cadence: &Cadence,
    plan: Option<&Plan>,
    jobs: u32,
    takes: &dyn Fn(&mut Dice) -> f64,
    dice: &mut Dice,
) -> (f64, f64, Sketch) {
    let (mut polls, mut late, mut sketch) = (0.0, 0.0, Sketch::default());
    for _ in 0..jobs {
        let takes_s = takes(dice);
        let played = play(cadence, plan, takes_s, dice);
        polls += f64::from(played.polls);
        late += played.late_s;
        sketch.add(played.ms);
    }
    (polls / f64::from(jobs), late / f64::from(jobs), sketch)
}

/// Polls and lateness by the plain cadence, and after six generations of learning from one's own polls.
fn compared(cadence: &Cadence, samples: u32, takes: &dyn Fn(&mut Dice) -> f64) -> ((f64, f64), (f64, f64)) {
    let mut dice = Dice(7);
    let (polls, late, _) = many(cadence, None, 4_000, takes, &mut dice);
    let (.., mut known) = many(cadence, None, samples, takes, &mut dice);
    for _ in 0..6 {
        let plan = Plan::of(&known, cadence).unwrap();
        (.., known) = many(cadence, Some(&plan), samples, takes, &mut dice);
    }
    let plan = Plan::of(&known, cadence).unwrap();
    let (planned_polls, planned_late, _) = many(cadence, Some(&plan), 4_000, takes, &mut dice);
    ((polls, late), (planned_polls, planned_late))
}

type Takes = fn(&mut Dice) -> f64;

#[test]
fn polls_and_lateness_both_fall_where_durations_say_anything() {
    let shapes: [(&str, Takes, f64); 6] = [
        ("ten seconds, give or take", |dice| dice.around(10.0, 0.3), 0.75),
        ("a minute, give or take", |dice| dice.around(60.0, 0.3), 0.80),
        ("a minute, nearly always", |dice| dice.around(60.0, 0.1), 0.60),
        ("ten minutes, give or take", |dice| dice.around(600.0, 0.3), 0.85),
        ("anything from 20 s to 2 min", |dice| 20.0 + 100.0 * dice.throw(), 0.85),
        (
            "a second of a cache or a minute",
            |dice| {
                let median = if dice.throw() < 0.3 { 2.0 } else { 60.0 };
                dice.around(median, 0.2)
            },
            0.92,
        ),
    ];
    for cadence in [DEFAULT, IMAGE, VIDEO] {
        for samples in [40, 300] {
            for (name, takes, most) in &shapes {
                let ((polls, late), (planned_polls, planned_late)) = compared(&cadence, samples, takes);
                println!(
                    "{name}, {samples} known, ceiling {} s: {polls:.1} -> {planned_polls:.1} polls, \
                     {late:.2} -> {planned_late:.2} s late",
                    cadence.ceiling_s
                );
                // Forty samples are a rough picture: one side may gain at the other's cost.
                let slack = if samples < 100 { 1.15 } else { 1.0 };
                assert!(planned_polls <= polls * slack && planned_late <= late * slack, "{name}: neither rises");
                let product = (planned_polls * planned_late) / (polls * late);
                assert!(product <= *most, "{name}: polls times lateness falls to {product:.2}, not {most}");
            }
        }
    }
}

#[test]
fn where_durations_say_nothing_little_is_lost() {
    // Without memory: whoever has waited is no nearer. And a spread of the logarithm of one: from seconds to many minutes.
    let shapes: [Takes; 3] = [
        |dice| -60.0 * (1.0 - dice.throw()).ln(),
        |dice| -10.0 * (1.0 - dice.throw()).ln(),
        |dice| dice.around(60.0, 1.0),
    ];
    for cadence in [DEFAULT, IMAGE, VIDEO] {
        for takes in shapes {
            let ((polls, late), (planned_polls, planned_late)) = compared(&cadence, 300, &takes);
            assert!(planned_polls <= polls * 1.05 && planned_late <= late * 1.08, "{planned_polls} {planned_late}");
            assert!(planned_polls * planned_late <= polls * late * 1.03);
        }
    }
}

#[test]
fn what_is_learned_from_own_polls_stays_true_and_follows_the_vendor() {
    let mut dice = Dice(11);
    let settle = |known: &mut Sketch, median: f64, dice: &mut Dice| {
        for _ in 0..4 {
            let plan = Plan::of(known, &DEFAULT).unwrap();
            let (.., new) = many(&DEFAULT, Some(&plan), 512, &|dice| dice.around(median, 0.2), dice);
            *known = new;
        }
        Plan::of(known, &DEFAULT).unwrap().age_at(0.5).as_secs_f64() / median
    };
    let (.., mut known) = many(&DEFAULT, None, 512, &|dice| dice.around(60.0, 0.2), &mut dice);
    for median in [60.0, 60.0, 12.0, 240.0, 60.0] {
        let told = settle(&mut known, median, &mut dice);
        assert!((0.93..1.07).contains(&told), "the middle of {median} s is told as {told:.3} of it");
    }
}

#[test]
fn too_few_samples_foresee_nothing() {
    let mut sketch = Sketch::default();
    (0..19).for_each(|_| sketch.add(10_000));
    assert_eq!(Plan::of(&sketch, &DEFAULT), None);
    sketch.add(10_000);
    assert!(Plan::of(&sketch, &DEFAULT).is_some());
}

/// A minute, give or take six seconds.
fn minute() -> Plan {
    let (mut dice, mut sketch) = (Dice(3), Sketch::default());
    (0..500).for_each(|_| sketch.add((dice.around(60.0, 0.1) * 1e3) as u64));
    Plan::of(&sketch, &DEFAULT).unwrap()
}

#[test]
fn the_first_poll_comes_when_the_job_is_likely_done_and_the_next_ones_close_by() {
    let plan = minute();
    let s = Duration::from_secs_f64;
    let first = plan.next(Duration::ZERO).unwrap();
    assert!((48.0..60.0).contains(&first.as_secs_f64()), "a little before the middle: {first:?}");
    let mut ages = vec![Duration::ZERO];
    while let Some((_, delay)) = due::foreseen(&DEFAULT, &plan, *ages.last().unwrap(), false, 0.5) {
        ages.push(*ages.last().unwrap() + delay);
    }
    let gaps: Vec<f64> = ages.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    assert!(gaps[1..].iter().all(|gap| (1.0..10.0).contains(gap)), "closer than the plain ten seconds: {gaps:?}");
    assert!(plan.next(s(90.0)).is_none(), "beyond what nearly all take the cadence goes on");
    let expected = plan.expected(Duration::ZERO).unwrap().as_secs_f64();
    assert!((58.0..62.0).contains(&expected), "{expected}");
    let later = plan.expected(s(66.0)).unwrap().as_secs_f64();
    assert!((66.0..75.0).contains(&later), "of those that run at 66 s half are done by then: {later}");
    assert_eq!(plan.expected(s(300.0)), None);
}

#[test]
fn bounds_of_the_cadence_hold() {
    let plan = minute();
    let slow = Cadence { first_s: 4.0, ..DEFAULT };
    for tenth in 0..900 {
        let age = Duration::from_millis(tenth * 100);
        for dice in [0.0, 0.5, 1.0] {
            if let Some((_, delay)) = due::foreseen(&slow, &plan, age, false, dice) {
                assert!(delay.as_secs_f64() >= 4.0 * 0.8, "no sooner than the plain cadence would");
                assert!(delay.as_secs_f64() <= 60.0 * 1.2, "no later than six ceilings");
            }
        }
        if let Some((delay, _)) = due::foreseen(&DEFAULT, &plan, age, true, 0.5) {
            assert!(delay.as_secs_f64() <= 10.0, "who may be asked looks as often as ever");
        }
    }
    // An hour away: looked at all the same.
    let (mut dice, mut sketch) = (Dice(3), Sketch::default());
    (0..500).for_each(|_| sketch.add((dice.around(3_600.0, 0.05) * 1e3) as u64));
    let hour = Plan::of(&sketch, &DEFAULT).unwrap();
    let (delay, _) = due::foreseen(&DEFAULT, &hour, Duration::ZERO, false, 0.5).unwrap();
    assert_eq!(delay, Duration::from_secs(60));
}

/// The most of 10,000 jobs that come due within one tenth of a second.
fn crowd(mut due_ms: Vec<u128>) -> usize {
    due_ms.sort_unstable();
    (0..due_ms.len()).map(|at| due_ms[at..].partition_point(|ms| ms - due_ms[at] < 100)).max().unwrap()
}

#[test]
fn a_herd_does_not_come_due_together() {
    let plan = minute();
    let mut dice = Dice(5);
    let mut herd = |delay: &dyn Fn(f64) -> Duration| {
        crowd((0..10_000).map(|_| (dice.throw() * 100.0) as u128 + delay(dice.throw()).as_millis()).collect())
    };
    // Over four seconds, as wide as the plain cadence's jitter once its delays have grown.
    let foreseen = herd(&|dice| due::foreseen(&DEFAULT, &plan, Duration::ZERO, false, dice).unwrap().1);
    assert!(foreseen < 400, "{foreseen} of 10,000 within a tenth of a second");
    let plain = herd(&|dice| due::jittered(&DEFAULT, Duration::from_secs(10), dice));
    assert!(plain < 400, "{plain}");
    let hinted = herd(&|dice| due::hinted(Duration::from_secs(10), dice));
    assert!(hinted < 1_500, "{hinted}");
}

#[test]
fn announced_jobs_are_polled_more_rarely_up_to_a_bound() {
    let s = Duration::from_secs;
    assert_eq!(due::announced(s(10)), s(40));
    assert_eq!(due::announced(s(300)), s(600));
    assert_eq!(due::announced(s(900)), s(900), "never sooner than without");
}

#[test]
fn webhooks_are_believed_for_each_connector_apart() {
    let forecasts = Forecasts::new(true, Arc::default());
    let request =
        serde_json::from_value(serde_json::json!({"connector": "flux", "task": "image", "instructions": "x"}));
    let job = |connector: &str| {
        let mut job =
            Job::queued("job_1".to_owned(), "default".to_owned(), "flux".to_owned(), request.as_ref().unwrap());
        job.connector = connector.to_owned();
        job
    };
    let body = crate::conformance::submission(job("flux")).body;
    (0..8).for_each(|_| forecasts.ended("flux", true));
    assert!(forecasts.outlook(&job("flux"), &body).announced);
    assert!(!forecasts.outlook(&job("runway"), &body).announced);
    forecasts.ended("flux", false);
    assert!(!forecasts.outlook(&job("flux"), &body).announced);
}
