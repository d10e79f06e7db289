//! One task: its state, its history and its artifacts, as time passes.

use std::collections::VecDeque;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use super::plan::{self, Act, Made, Step};
use super::request::Message;
use crate::files::{File, Link};
use crate::media::{Kind, Media};
use crate::scenario::scenario;
use crate::standin::Desk;

/// Life of a link.
const LINK_MS: i64 = 3_600_000;

#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: String,
    /// Which task it was, counted from 0.
    pub(super) number: usize,
    pub(super) context_id: String,
    pub(super) scenario: String,
    pub(super) prompt: String,
    pub(super) state: &'static str,
    pub(super) created_ms: i64,
    /// When the state was reached; a submitted task shows no time.
    pub(super) changed_ms: i64,
    pub(super) polls: u32,
    said: Option<Value>,
    history: Vec<Value>,
    artifacts: Vec<Value>,
    plan: VecDeque<Step>,
    step_ms: i64,
    answered: usize,
    answer: String,
}

impl Task {
    pub(super) fn new(number: usize, message: &Message, now_ms: i64, pace_ms: i64) -> Self {
        let scenario = scenario(&message.text).unwrap_or_default().to_owned();
        let mut task = Self {
            id: uuid::Uuid::new_v4().to_string(),
            number,
            context_id: message.context_id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            plan: plan::steps(&scenario, &message.text, pace_ms, 0),
            scenario,
            prompt: message.text.clone(),
            state: plan::SUBMITTED,
            created_ms: now_ms,
            changed_ms: now_ms,
            polls: 0,
            said: None,
            history: Vec::new(),
            artifacts: Vec::new(),
            step_ms: now_ms,
            answered: 0,
            answer: String::new(),
        };
        task.remember(message);
        task
    }

    /// Notes a message in the history, once for each id.
    fn remember(&mut self, message: &Message) {
        if self.history.iter().any(|old| old["messageId"] == message.id.as_str()) {
            return;
        }
        let mut whole = message.whole.clone();
        whole.insert("taskId".to_owned(), json!(self.id));
        whole.insert("contextId".to_owned(), json!(self.context_id));
        self.history.push(Value::Object(whole));
    }

    /// Brings the task to the present.
    pub(super) fn settle(&mut self, desk: &Desk, vendor: &str, now_ms: i64) {
        while let Some(step) = self.plan.front() {
            let due_ms = self.step_ms.saturating_add(step.after_ms);
            if due_ms > now_ms {
                return;
            }
            let Some(step) = self.plan.pop_front() else { return };
            self.step_ms = due_ms;
            match step.act {
                Act::State(state, parts) => self.enter(state, parts, due_ms),
                Act::Artifact { id, name, parts, append } => {
                    let parts = parts.into_iter().map(|part| self.part(desk, vendor, name, part)).collect();
                    self.add(id, name, parts, append);
                }
            }
        }
    }

    fn enter(&mut self, state: &'static str, parts: Option<Value>, at_ms: i64) {
        // What the agent said before moves into the history.
        self.history.extend(self.said.take());
        self.state = state;
        self.changed_ms = at_ms;
        self.said = parts.map(|parts| {
            let words = parts.to_string().replace("{answer}", &escaped(&self.answer));
            let parts: Value = serde_json::from_str(&words).unwrap_or(parts);
            json!({
                "messageId": uuid::Uuid::new_v4().to_string(), "contextId": self.context_id, "taskId": self.id,
                "role": "ROLE_AGENT", "parts": parts,
            })
        });
    }

    fn part(&self, desk: &Desk, vendor: &str, name: &str, part: Made) -> Value {
        let picture = || Media::image(Kind::Png, 320, 240, &self.prompt);
        match part {
            Made::Text(text) => json!({"text": text, "mediaType": "text/markdown"}),
            Made::Data(data) => json!({"data": data}),
            Made::Raw(which, of) => {
                let bytes = picture().bytes();
                let size = bytes.len().div_ceil(of.max(1));
                let piece = bytes.chunks(size.max(1)).nth(which).unwrap_or_default();
                json!({"raw": STANDARD.encode(piece), "filename": name, "mediaType": "image/png"})
            }
            Made::Url => {
                let file = desk.store(vendor, File::medium(name, picture(), &self.scenario));
                let ttl_ms = if self.scenario == "expired_url" { 0 } else { LINK_MS };
                let url = desk.link(vendor, &file, &Link { ttl_ms, parameter: "sig" });
                json!({"url": url, "filename": name, "mediaType": "image/png"})
            }
        }
    }

    /// Parts that are appended stand behind the others; nothing is joined.
    fn add(&mut self, id: &str, name: &str, parts: Vec<Value>, append: bool) {
        let have = self.artifacts.iter_mut().find(|artifact| artifact["artifactId"] == id);
        match (have, append) {
            (Some(artifact), true) => {
                if let Some(list) = artifact["parts"].as_array_mut() {
                    list.extend(parts);
                }
            }
            (Some(artifact), false) => artifact["parts"] = Value::Array(parts),
            (None, _) => self.artifacts.push(json!({"artifactId": id, "name": name, "parts": parts})),
        }
    }

    /// Takes a message to a task that waits: whatever it says, and however often it was sent before, it is the
    /// answer to the question that stands now.
    pub(super) fn take(&mut self, message: &Message, now_ms: i64, pace_ms: i64) {
        self.history.extend(self.said.take());
        self.remember(message);
        self.answer.clone_from(&message.text);
        if self.state == plan::ASKS {
            self.answered += 1;
        }
        self.step_ms = now_ms;
        if self.state == plan::SIGN_IN {
            // A word from the client counts as done: the wait is cut short.
            if let Some(step) = self.plan.front_mut() {
                step.after_ms = 0;
            }
            return;
        }
        self.plan = plan::steps(&self.scenario, &self.prompt, pace_ms, self.answered);
        self.enter(plan::WORKING, None, now_ms);
    }

    /// Stops the task.
    pub(super) fn cancel(&mut self, now_ms: i64, pace_ms: i64) {
        if self.scenario == "slow_cancel" {
            let act = Act::State(plan::CANCELED, None);
            self.step_ms = now_ms;
            self.plan = VecDeque::from([Step { after_ms: pace_ms, act }]);
            return;
        }
        self.plan.clear();
        self.enter(plan::CANCELED, None, now_ms);
    }

    /// The task with so much history, in the JSON of ProtoJSON writers.
    pub(super) fn shown(&self, history: Option<usize>) -> Value {
        let mut status = Map::new();
        status.insert("state".to_owned(), self.shown_state());
        if let Some(said) = &self.said {
            status.insert("message".to_owned(), said.clone());
        }
        if self.state != plan::SUBMITTED {
            status.insert("timestamp".to_owned(), json!(time(self.changed_ms)));
        }
        let mut shown = json!({"id": self.id, "contextId": self.context_id, "status": status});
        if !self.artifacts.is_empty() {
            shown["artifacts"] = json!(self.artifacts);
        }
        let skip = self.history.len().saturating_sub(history.unwrap_or(usize::MAX));
        let kept = self.history.get(skip..).unwrap_or_default();
        if !kept.is_empty() {
            shown["history"] = json!(kept);
        }
        shown
    }

    fn shown_state(&self) -> Value {
        match self.scenario.as_str() {
            "lower_case" => json!(self.state.trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-")),
            "integers" => {
                let all = [
                    "TASK_STATE_UNSPECIFIED",
                    plan::SUBMITTED,
                    plan::WORKING,
                    plan::COMPLETED,
                    plan::FAILED,
                    plan::CANCELED,
                    plan::ASKS,
                    plan::REJECTED,
                    plan::SIGN_IN,
                ];
                json!(all.iter().position(|state| *state == self.state).unwrap_or(0))
            }
            _ => json!(self.state),
        }
    }
}

/// A task as lists show it: with every empty field there is.
pub(super) fn listed(mut task: Value, artifacts: bool) -> Value {
    fn fill_message(message: &mut Value) {
        for name in ["extensions", "referenceTaskIds"] {
            if message[name].is_null() {
                message[name] = json!([]);
            }
        }
        fill_parts(&mut message["parts"]);
    }
    fn fill_parts(parts: &mut Value) {
        for part in parts.as_array_mut().into_iter().flatten() {
            for name in ["filename", "mediaType"] {
                if part[name].is_null() {
                    part[name] = json!("");
                }
            }
        }
    }
    if task["status"]["message"].is_object() {
        fill_message(&mut task["status"]["message"]);
    }
    if task["history"].is_null() {
        task["history"] = json!([]);
    }
    for message in task["history"].as_array_mut().into_iter().flatten() {
        fill_message(message);
    }
    if !artifacts {
        if let Some(map) = task.as_object_mut() {
            map.remove("artifacts");
        }
        return task;
    }
    if task["artifacts"].is_null() {
        task["artifacts"] = json!([]);
    }
    for artifact in task["artifacts"].as_array_mut().into_iter().flatten() {
        artifact["description"] = json!("");
        artifact["extensions"] = json!([]);
        fill_parts(&mut artifact["parts"]);
    }
    task
}

/// Text as it stands between the quotes of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = json!(text).to_string();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

fn time(ms: i64) -> String {
    DateTime::<Utc>::from_timestamp_millis(ms).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Micros, true)
}
