//! The tasks of one organisation: who waits, who runs, who is done.

use std::collections::{BTreeMap, VecDeque};

use super::request::Asked;

/// One task.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) asked: Asked,
    pub(super) scenario: String,
    pub(super) created_ms: i64,
    pub(super) run_ms: i64,
    pub(super) started_ms: Option<i64>,
    pub(super) polls: u32,
    pub(super) links: u32,
    pub(super) file: Option<String>,
    /// True once it was cancelled or deleted: it can no longer be fetched.
    pub(super) gone: bool,
    /// Credits charged.
    pub(super) charged: i64,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stage {
    /// Over the limit of concurrent generations.
    Throttled,
    /// Enqueued.
    Pending,
    /// Being made; hundredths done.
    Running(i64),
    /// At its end, whatever that is.
    Ended,
}

impl Task {
    fn end_ms(&self) -> Option<i64> {
        self.started_ms.map(|started| started.saturating_add(self.run_ms))
    }

    pub(super) fn stage(&self, now_ms: i64) -> Stage {
        let (Some(started), Some(end)) = (self.started_ms, self.end_ms()) else { return Stage::Throttled };
        if now_ms >= end {
            return Stage::Ended;
        }
        let done = now_ms.saturating_sub(started).saturating_mul(100) / self.run_ms.max(1);
        // A task stands in the vendor's queue for a fifth of its time.
        if done < 20 { Stage::Pending } else { Stage::Running(done) }
    }
}

/// The concurrent generations of one model.
#[derive(Debug, Default)]
struct Pool {
    running: Vec<(String, i64)>,
    waiting: VecDeque<String>,
}

/// All tasks.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    pub(super) all: BTreeMap<String, Task>,
    pools: BTreeMap<&'static str, Pool>,
}

impl Tasks {
    /// Takes a new task in.
    pub(super) fn add(&mut self, id: &str, task: Task) {
        self.pools.entry(task.asked.model).or_default().waiting.push_back(id.to_owned());
        self.all.insert(id.to_owned(), task);
    }

    /// Lets waiting tasks start, at the very moment a place came free, in the order they came.
    pub(super) fn settle(&mut self, now_ms: i64, cap: u64) {
        let cap = usize::try_from(cap.max(1)).unwrap_or(usize::MAX);
        for pool in self.pools.values_mut() {
            while let Some(id) = pool.waiting.front().cloned() {
                let Some(task) = self.all.get_mut(&id).filter(|task| !task.gone) else {
                    pool.waiting.pop_front();
                    continue;
                };
                let mut start = task.created_ms;
                pool.running.retain(|(_, end)| *end > start);
                if pool.running.len() >= cap {
                    let first = pool.running.iter().map(|(_, end)| *end).min().unwrap_or(i64::MAX);
                    if first > now_ms {
                        break;
                    }
                    start = first;
                    pool.running.retain(|(_, end)| *end > first);
                    if pool.running.len() >= cap {
                        continue;
                    }
                }
                task.started_ms = Some(start);
                pool.running.push((id, start.saturating_add(task.run_ms)));
                pool.waiting.pop_front();
            }
        }
    }

    /// Gives the place of a cancelled task to the next.
    pub(super) fn free(&mut self, id: &str, now_ms: i64) {
        for pool in self.pools.values_mut() {
            for (running, end) in &mut pool.running {
                if running == id {
                    *end = (*end).min(now_ms);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(created_ms: i64) -> Task {
        let asked = Asked {
            model: "gen4.5",
            prompt: String::new(),
            width: 1280,
            height: 720,
            seconds: 5,
            sound: false,
            credits: 60,
        };
        Task {
            asked,
            scenario: String::new(),
            created_ms,
            run_ms: 1000,
            started_ms: None,
            polls: 0,
            links: 0,
            file: None,
            gone: false,
            charged: 60,
        }
    }

    fn starts(tasks: &Tasks) -> Vec<Option<i64>> {
        tasks.all.values().map(|task| task.started_ms).collect()
    }

    #[test]
    fn tasks_over_the_limit_wait_their_turn() {
        let mut tasks = Tasks::default();
        for (id, at) in [("a", 0), ("b", 100), ("c", 200), ("d", 300)] {
            tasks.add(id, task(at));
        }
        tasks.settle(300, 2);
        assert_eq!(starts(&tasks), [Some(0), Some(100), None, None]);
        assert_eq!(tasks.all["c"].stage(300), Stage::Throttled);
        tasks.settle(5000, 2);
        assert_eq!(starts(&tasks), [Some(0), Some(100), Some(1000), Some(1100)]);
    }

    #[test]
    fn a_cancelled_task_makes_room() {
        let mut tasks = Tasks::default();
        tasks.add("a", task(0));
        tasks.add("b", task(10));
        tasks.settle(500, 1);
        assert_eq!(starts(&tasks), [Some(0), None]);
        tasks.free("a", 500);
        tasks.settle(600, 1);
        assert_eq!(starts(&tasks), [Some(0), Some(500)]);
    }

    #[test]
    fn stages_follow_the_clock() {
        let mut one = task(0);
        one.started_ms = Some(0);
        assert_eq!(one.stage(100), Stage::Pending);
        assert_eq!(one.stage(420), Stage::Running(42));
        assert_eq!(one.stage(1000), Stage::Ended);
    }
}
