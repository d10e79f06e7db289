//! What an agent does with a task, step by step, by scenario.

use std::collections::VecDeque;

use serde_json::{Value, json};

/// One thing that happens.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Act {
    /// A state, with what the agent says about it. `{answer}` stands for the last answer.
    State(&'static str, Option<Value>),
    /// Parts for an artifact: a new one, or more for one that is there.
    Artifact { id: &'static str, name: &'static str, parts: Vec<Made>, append: bool },
}

/// A part before its file has an address.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Made {
    Text(String),
    Data(Value),
    /// One of so many equal pieces of the picture, inline: (which, of).
    Raw(usize, usize),
    /// The picture by its address.
    Url,
}

/// A thing that happens so long after the one before.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) after_ms: i64,
    pub(super) act: Act,
}

pub(super) const SUBMITTED: &str = "TASK_STATE_SUBMITTED";
pub(super) const WORKING: &str = "TASK_STATE_WORKING";
pub(super) const ASKS: &str = "TASK_STATE_INPUT_REQUIRED";
pub(super) const SIGN_IN: &str = "TASK_STATE_AUTH_REQUIRED";
pub(super) const COMPLETED: &str = "TASK_STATE_COMPLETED";
pub(super) const FAILED: &str = "TASK_STATE_FAILED";
pub(super) const CANCELED: &str = "TASK_STATE_CANCELED";
pub(super) const REJECTED: &str = "TASK_STATE_REJECTED";

/// A state that nothing follows.
pub(super) fn is_terminal(state: &str) -> bool {
    [COMPLETED, FAILED, CANCELED, REJECTED].contains(&state)
}

/// A state in which the agent waits for somebody.
pub(super) fn is_interrupted(state: &str) -> bool {
    state == ASKS || state == SIGN_IN
}

/// The questions of a scenario, as the parts that ask them.
fn questions(scenario: &str) -> Vec<Value> {
    let name = || json!([{"text": "Which name should the boat have?"}]);
    match scenario {
        "asks" => vec![name()],
        "asks_choice" => {
            let choice = json!({"question": "Which colour should the hull have?", "options": ["red", "blue"]});
            vec![json!([{"text": "Which colour should the hull have, red or blue?"}, {"data": choice}])]
        }
        "asks_twice" => vec![name(), json!([{"text": "And which harbour does it belong to?"}])],
        _ => Vec::new(),
    }
}

struct Writer {
    pace_ms: i64,
    at: i64,
    steps: VecDeque<Step>,
}

impl Writer {
    fn at(&mut self, hundredths: i64, act: Act) {
        let after_ms = self.pace_ms.saturating_mul(hundredths - self.at) / 100;
        self.at = hundredths;
        self.steps.push_back(Step { after_ms, act });
    }

    fn says(&mut self, hundredths: i64, state: &'static str, words: &str) {
        self.at(hundredths, Act::State(state, Some(json!([{"text": words}]))));
    }
}

/// The steps that follow when a task is made, or when its `answered`th question has its answer.
pub(super) fn steps(scenario: &str, prompt: &str, pace_ms: i64, answered: usize) -> VecDeque<Step> {
    let pace_ms = if scenario == "slow" { pace_ms.saturating_mul(10) } else { pace_ms };
    let mut task = Writer { pace_ms, at: 0, steps: VecDeque::new() };
    if scenario == "rejected" {
        task.says(0, REJECTED, "This agent does not take such work.");
        return task.steps;
    }
    if scenario == "stuck" {
        return task.steps;
    }
    task.says(10, WORKING, "Looking at it.");
    if let Some(question) = questions(scenario).get(answered) {
        task.at(30, Act::State(ASKS, Some(question.clone())));
        return task.steps;
    }
    match scenario {
        "never_ends" => return task.steps,
        "auth" => {
            task.says(30, SIGN_IN, "Please sign in at https://login.sandbox.example/device with the code KQ-7731.");
            task.says(130, WORKING, "Thank you, going on.");
            task.at = 30;
        }
        "unknown_state" | "unknown_status" => task.at(20, Act::State("TASK_STATE_PONDERING", None)),
        "unspecified" => task.at(20, Act::State("TASK_STATE_UNSPECIFIED", None)),
        _ => {}
    }
    ending(&mut task, scenario, prompt);
    task.steps
}

fn ending(task: &mut Writer, scenario: &str, prompt: &str) {
    match scenario {
        "fails" => return task.says(100, FAILED, "The chart service did not answer."),
        // An agent that crashes leaves no word.
        "crash" => return task.at(60, Act::State(FAILED, None)),
        "rejected_late" => return task.says(60, REJECTED, "On a closer look this is not allowed."),
        "cancelled" => return task.says(60, CANCELED, "Stopped by the agent's owner."),
        "empty" => return task.at(100, Act::State(COMPLETED, None)),
        "status_text" => return task.says(100, COMPLETED, "High water is at 14:05 and at 02:30."),
        _ => {}
    }
    artifacts(task, scenario, prompt);
    match scenario {
        "fails_late" => task.says(100, FAILED, "The last page could not be written."),
        "asks" | "asks_choice" | "asks_twice" => {
            task.says(100, COMPLETED, "Done, with your answer taken in: {answer}.")
        }
        _ => task.says(100, COMPLETED, "Done."),
    }
}

fn artifacts(task: &mut Writer, scenario: &str, prompt: &str) {
    let report = |task: &mut Writer| {
        for (number, piece) in report(prompt).into_iter().enumerate() {
            let (parts, append) = (vec![Made::Text(piece)], number > 0);
            let at = 50 + i64::try_from(number).unwrap_or(0) * 5;
            task.at(at, Act::Artifact { id: "report", name: "report.md", parts, append });
        }
    };
    let picture = |task: &mut Writer, at: i64, id: &'static str, part: Made, append: bool| {
        task.at(at, Act::Artifact { id, name: "chart.png", parts: vec![part], append });
    };
    match scenario {
        "text_only" => report(task),
        "raw" => picture(task, 90, "chart", Made::Raw(0, 1), false),
        "raw_chunks" => {
            for piece in 0..3 {
                let at = 80 + i64::try_from(piece).unwrap_or(0) * 5;
                picture(task, at, "chart", Made::Raw(piece, 3), piece > 0);
            }
        }
        "data" => {
            let tides = json!({"high_water": ["02:30", "14:05"], "metres": 3.4, "days": 2});
            let parts = vec![Made::Data(tides)];
            task.at(90, Act::Artifact { id: "tides", name: "tides", parts, append: false });
        }
        "url" | "expired_url" | "truncated" | "html" | "empty_file" | "missing_file" => {
            picture(task, 90, "chart", Made::Url, false);
        }
        _ => {
            report(task);
            picture(task, 85, "chart", Made::Raw(0, 1), false);
            task.at(90, Act::Artifact { id: "photo", name: "photo.png", parts: vec![Made::Url], append: false });
        }
    }
}

/// The pieces of the report. They join without a separator, also in the middle of a line.
fn report(prompt: &str) -> Vec<String> {
    vec![
        "# Report\n\nAsked: ".to_owned(),
        format!("{}\n\n", prompt.replace('\n', " ")),
        "High water comes at 02:30 and ".to_owned(),
        "at 14:05.\n\n- range: 3.4 m\n".to_owned(),
        "- next spring tide: in two days\n".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_end_as_they_should() {
        for (scenario, state) in [
            ("", COMPLETED),
            ("slow", COMPLETED),
            ("fails", FAILED),
            ("crash", FAILED),
            ("rejected", REJECTED),
            ("rejected_late", REJECTED),
            ("cancelled", CANCELED),
            ("asks", ASKS),
            ("auth", COMPLETED),
            ("never_ends", WORKING),
            ("unknown_state", COMPLETED),
            ("fails_late", FAILED),
        ] {
            let steps = steps(scenario, "x", 100, 0);
            let Some(Act::State(last, _)) = steps.back().map(|step| &step.act) else { panic!("{scenario}") };
            assert_eq!(*last, state, "{scenario}");
        }
        assert!(steps("stuck", "x", 100, 0).is_empty());
    }

    #[test]
    fn questions_follow_each_other() {
        let asked = |answered| match &steps("asks_twice", "x", 100, answered).back().unwrap().act {
            Act::State(state, _) => *state,
            Act::Artifact { .. } => "",
        };
        assert_eq!([asked(0), asked(1), asked(2)], [ASKS, ASKS, COMPLETED]);
    }
}
