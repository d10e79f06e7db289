//! What an agent does in one turn, step by step, by scenario.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::deliverables::{Deliverable, patch, report};

/// Tokens of one model request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tokens {
    pub(super) input: i64,
    pub(super) output: i64,
    pub(super) cache_read: i64,
    pub(super) cache_write: i64,
    /// List cost in cents beside the tokens', for turns that run into their budget.
    pub(super) extra_cents: i64,
}

/// A question that stops the turn until it is answered.
#[derive(Debug, Clone)]
pub(super) enum Question {
    /// A built-in tool that wants a permission.
    Permission { name: &'static str, input: Value },
    /// A tool that the caller runs.
    Custom { name: &'static str, input: Value },
}

/// Why a turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    EndTurn,
    RetriesExhausted,
    Refusal,
    /// A word that no list knows.
    Unheard,
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Think,
    Request(Tokens),
    Tool {
        name: &'static str,
        input: Value,
        output: String,
    },
    /// Text of the agent; `{answer}` stands for the last answer to a question.
    Say(String),
    Write(Vec<Deliverable>),
    Ask(Vec<Question>),
    /// A passing error: the session reschedules itself.
    Stumble,
    /// Running again after a stumble.
    Recover,
    /// An error that ends the turn, or the session if `terminal`.
    Fail {
        terminal: bool,
    },
    /// Somebody else interrupts the session.
    Intrude,
    End(Stop),
    /// More model requests, each twice as long after the one before, without end.
    Forever {
        after_ms: i64,
    },
}

/// A thing that happens so long after the one before.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) after_ms: i64,
    pub(super) act: Act,
}

/// The three model requests of an ordinary turn; together the usage of the vendor's worked example.
const REQUESTS: [Tokens; 3] = [
    Tokens { input: 4100, output: 600, cache_read: 0, cache_write: 9000, extra_cents: 0 },
    Tokens { input: 3000, output: 1200, cache_read: 22_000, cache_write: 2000, extra_cents: 0 },
    Tokens { input: 2000, output: 800, cache_read: 30_000, cache_write: 0, extra_cents: 0 },
];

struct Writer {
    pace_ms: i64,
    /// Where the turn is, in hundredths of its pace.
    at: i64,
    steps: VecDeque<Step>,
}

impl Writer {
    fn at(&mut self, hundredths: i64, act: Act) {
        let after_ms = self.pace_ms.saturating_mul(hundredths - self.at) / 100;
        self.at = hundredths;
        self.steps.push_back(Step { after_ms, act });
    }

    fn request(&mut self, hundredths: i64, which: usize, extra_cents: i64) {
        let tokens = REQUESTS.get(which).copied().unwrap_or_default();
        self.at(hundredths, Act::Request(Tokens { extra_cents, ..tokens }));
    }
}

/// The steps of a turn on `prompt`. `budget_cents` is the session's ceiling, which some scenarios run into.
pub(super) fn turn(scenario: &str, prompt: &str, pace_ms: i64, budget_cents: Option<i64>) -> VecDeque<Step> {
    let pace_ms = if scenario == "slow" { pace_ms.saturating_mul(10) } else { pace_ms };
    let extra = if scenario == "budget" { budget_cents.unwrap_or(0).saturating_mul(6) / 10 } else { 0 };
    let mut turn = Writer { pace_ms, at: 0, steps: VecDeque::new() };
    turn.at(5, Act::Think);
    turn.request(20, 0, extra);
    if opening(&mut turn, scenario) {
        return turn.steps;
    }
    let command = json!({"command": "python -m pytest -q tests"});
    turn.at(30, Act::Tool { name: "bash", input: command, output: "1 failed, 11 passed in 0.42s".to_owned() });
    turn.at(40, Act::Say("The failure is in the retry helper. I am writing a fix and a test for it.".to_owned()));
    turn.request(55, 1, extra);
    let file = json!({"file_path": "/workspace/src/retry.py", "content": super::deliverables::FIXED});
    turn.at(65, Act::Tool { name: "write", input: file, output: "File written.".to_owned() });
    turn.request(85, 2, extra);
    ending(&mut turn, scenario, prompt);
    turn.steps
}

/// What follows the first model request; true when that is the whole turn.
fn opening(turn: &mut Writer, scenario: &str) -> bool {
    match scenario {
        "never_ends" => turn.at(100, Act::Forever { after_ms: turn.pace_ms.max(1) }),
        "refuses" => turn.at(60, Act::End(Stop::Refusal)),
        "fails" => {
            turn.at(40, Act::Stumble);
            turn.at(70, Act::Recover);
            turn.at(100, Act::Fail { terminal: false });
        }
        "terminated" => turn.at(60, Act::Fail { terminal: true }),
        "interrupted" => turn.at(50, Act::Intrude),
        "unknown_stop" => turn.at(60, Act::End(Stop::Unheard)),
        "asks_in_message" => {
            turn.at(50, Act::Say("Which of the two branches should the fix go to, main or release?".to_owned()));
            turn.at(60, Act::End(Stop::EndTurn));
        }
        "reschedules" => {
            turn.at(22, Act::Stumble);
            turn.at(28, Act::Recover);
            return false;
        }
        "asks" => {
            turn.at(25, Act::Ask(vec![permission()]));
            return false;
        }
        "asks_text" => {
            turn.at(25, Act::Ask(vec![ask_human(json!({"question": "Which name should the new test have?"}))]));
            return false;
        }
        "asks_choice" => {
            let question = json!({"question": "Which branch should the fix go to?", "options": ["main", "release"]});
            turn.at(25, Act::Ask(vec![ask_human(question)]));
            return false;
        }
        "asks_both" => {
            let question = ask_human(json!({"question": "Which name should the new test have?"}));
            turn.at(25, Act::Ask(vec![permission(), question]));
            return false;
        }
        "asks_twice" => {
            turn.at(25, Act::Ask(vec![permission()]));
            turn.at(27, Act::Ask(vec![ask_human(json!({"question": "Which name should the new test have?"}))]));
            return false;
        }
        _ => return false,
    }
    true
}

fn permission() -> Question {
    let command = "pip install --user pytest-repeat && python -m pytest --count 50 tests/test_retry.py";
    Question::Permission { name: "bash", input: json!({"command": command}) }
}

fn ask_human(input: Value) -> Question {
    Question::Custom { name: "ask_human", input }
}

fn ending(turn: &mut Writer, scenario: &str, prompt: &str) {
    let words = match scenario {
        "asks_text" | "asks_choice" | "asks_both" | "asks_twice" => {
            "The retry helper is fixed, with your answer taken in: {answer}. The diff is in changes.patch."
        }
        _ => "The retry helper slept once too often; it is fixed, with a test. The diff is in changes.patch.",
    };
    match scenario {
        "empty" => {}
        "no_files" => turn.at(95, Act::Say(words.to_owned())),
        _ => {
            turn.at(90, Act::Write(vec![patch(), report(prompt)]));
            turn.at(95, Act::Say(words.to_owned()));
        }
    }
    turn.at(100, Act::End(Stop::EndTurn));
}

/// What follows a permission that was denied: the agent says so and stops.
pub(super) fn after_denial(pace_ms: i64, why: Option<&str>) -> VecDeque<Step> {
    let mut turn = Writer { pace_ms, at: 0, steps: VecDeque::new() };
    turn.request(15, 2, 0);
    let why = why.map_or_else(String::new, |why| format!(" You said: {why}"));
    turn.at(25, Act::Say(format!("I was not allowed to run the command, so I stopped and changed nothing.{why}")));
    turn.at(30, Act::End(Stop::EndTurn));
    turn.steps
}

/// The tokens of the requests of a turn that never ends.
pub(super) fn one_more() -> Tokens {
    REQUESTS.get(1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_turn_takes_its_pace_and_the_tokens_of_the_worked_example() {
        let steps = turn("", "fix it", 2000, None);
        assert_eq!(steps.iter().map(|step| step.after_ms).sum::<i64>(), 2000);
        let sums = steps.iter().fold((0, 0, 0), |sum, step| match step.act {
            Act::Request(tokens) => (sum.0 + tokens.input, sum.1 + tokens.output, sum.2 + tokens.cache_read),
            _ => sum,
        });
        assert_eq!(sums, (9100, 2600, 52_000));
    }

    #[test]
    fn every_scenario_comes_to_an_end_but_one() {
        let scenarios = [
            "",
            "slow",
            "fails",
            "refuses",
            "budget",
            "empty",
            "no_files",
            "interrupted",
            "unknown_status",
            "unknown_stop",
            "terminated",
            "reschedules",
            "asks",
            "asks_text",
            "asks_choice",
            "asks_both",
            "asks_twice",
            "asks_in_message",
            "never_ends",
        ];
        for scenario in scenarios {
            let steps = turn(scenario, "x", 100, Some(50));
            let ends =
                matches!(steps.back().map(|step| &step.act), Some(Act::End(_) | Act::Fail { .. } | Act::Intrude));
            assert_eq!(ends, scenario != "never_ends", "{scenario}");
        }
    }
}
