//! One session: its history, what it uses up, and how it goes on as time passes.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value, json};

use super::cost::{Budget, Usage, seconds};
use super::deliverables::Deliverable;
use super::http::{fresh_id, time};
use super::plan::{self, Act, Question, Step, Stop, Tokens};
use crate::scenario::scenario;

/// How long a file stays out of the listing after its turn has ended.
const LISTING_LAG_MS: i64 = 1500;
/// The same in the scenario `late_files`.
const LATE_LISTING_MS: i64 = 8000;

/// One line of the history.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) kind: String,
    /// None while it waits its turn.
    pub(super) processed_ms: Option<i64>,
    pub(super) fields: Map<String, Value>,
}

impl Event {
    pub(super) fn shown(&self) -> Value {
        let mut shown = self.fields.clone();
        shown.insert("id".to_owned(), json!(self.id));
        shown.insert("type".to_owned(), json!(self.kind));
        shown.insert("processed_at".to_owned(), json!(self.processed_ms.map(time)));
        Value::Object(shown)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Running,
    Rescheduling,
    Terminated,
}

/// What an idle session waits for before it can go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    /// Ids of tool uses without an answer, and whether each is the caller's own tool.
    Answers(Vec<(String, bool)>),
    Budget,
}

/// A file of the session's scope.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) id: String,
    pub(super) file: Deliverable,
    pub(super) created_ms: i64,
    pub(super) listed_ms: i64,
    /// A mounted copy of an upload rather than something the agent made.
    pub(super) input: bool,
}

/// What a session is created from.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    pub(super) agent: Value,
    pub(super) environment_id: String,
    pub(super) title: Option<String>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) resources: Vec<Value>,
    pub(super) budget: Budget,
    pub(super) vault_ids: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    /// Which session it was, counted from 0.
    pub(super) number: usize,
    pub(super) opening: Opening,
    pub(super) created_ms: i64,
    pub(super) updated_ms: i64,
    pub(super) archived_ms: Option<i64>,
    pub(super) phase: Phase,
    pub(super) wait: Wait,
    pub(super) files: Vec<Stored>,
    pub(super) scenario: String,
    events: Vec<Event>,
    inbox: VecDeque<Event>,
    plan: VecDeque<Step>,
    /// When the last step was taken: the next one counts from here.
    step_ms: i64,
    running_since: Option<i64>,
    active_ms: i64,
    usage: Usage,
    answer: String,
    outcomes: Vec<Value>,
    pace_ms: i64,
}

impl Session {
    pub(super) fn new(number: usize, opening: Opening, now_ms: i64, pace_ms: i64) -> Self {
        Self {
            id: fresh_id("sesn"),
            number,
            opening,
            created_ms: now_ms,
            updated_ms: now_ms,
            archived_ms: None,
            phase: Phase::Idle,
            wait: Wait::Nothing,
            files: Vec::new(),
            scenario: String::new(),
            events: Vec::new(),
            inbox: VecDeque::new(),
            plan: VecDeque::new(),
            step_ms: now_ms,
            running_since: None,
            active_ms: 0,
            usage: Usage::default(),
            answer: String::new(),
            outcomes: Vec::new(),
            pace_ms,
        }
    }

    /// The history, oldest first, with what waits its turn at the end.
    pub(super) fn history(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().chain(&self.inbox)
    }

    pub(super) fn list_cents(&self, now_ms: i64) -> i64 {
        self.usage.cents(self.active(now_ms))
    }

    fn active(&self, now_ms: i64) -> i64 {
        self.active_ms + self.running_since.map_or(0, |since| now_ms - since)
    }

    fn record(&mut self, at_ms: i64, kind: &str, fields: Value) -> String {
        let fields = match fields {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        let event = Event { id: fresh_id("sevt"), kind: kind.to_owned(), processed_ms: Some(at_ms), fields };
        let id = event.id.clone();
        self.updated_ms = at_ms;
        self.events.push(event);
        id
    }

    fn run(&mut self, at_ms: i64) {
        self.phase = Phase::Running;
        self.wait = Wait::Nothing;
        self.running_since = Some(at_ms);
        self.step_ms = at_ms;
        self.record(at_ms, "session.status_running", Value::Null);
    }

    fn rest(&mut self, at_ms: i64, stop_reason: &Value, stop_details: &Value) {
        self.active_ms = self.active(at_ms);
        self.running_since = None;
        self.phase = Phase::Idle;
        self.record(
            at_ms,
            "session.usage",
            json!({"usage": self.usage_at(at_ms), "budget": self.opening.budget.shown()}),
        );
        let fields = json!({"stop_reason": stop_reason, "stop_details": stop_details});
        self.record(at_ms, "session.status_idle", fields);
    }

    /// Brings the session to the present.
    pub(super) fn settle(&mut self, now_ms: i64) {
        loop {
            if !matches!(self.phase, Phase::Running | Phase::Rescheduling) {
                return;
            }
            let Some(step) = self.plan.front() else { return };
            let due_ms = self.step_ms.saturating_add(step.after_ms);
            if due_ms > now_ms {
                return;
            }
            let Some(step) = self.plan.pop_front() else { return };
            self.step_ms = due_ms;
            self.act(step.act, due_ms);
        }
    }

    fn act(&mut self, act: Act, at_ms: i64) {
        match act {
            Act::Think => {
                self.record(at_ms, "agent.thinking", Value::Null);
            }
            Act::Request(tokens) => self.request(tokens, at_ms),
            Act::Tool { name, input, output } => self.tool(name, &input, &output, at_ms),
            Act::Say(words) => {
                let words = words.replace("{answer}", &self.answer);
                self.record(at_ms, "agent.message", json!({"content": [{"type": "text", "text": words}]}));
            }
            Act::Write(files) => {
                let lag_ms = if self.scenario == "late_files" { LATE_LISTING_MS } else { LISTING_LAG_MS };
                let listed_ms = at_ms.saturating_add(self.remaining_ms()).saturating_add(lag_ms);
                let store = |file| Stored { id: fresh_id("file"), file, created_ms: at_ms, listed_ms, input: false };
                self.files.extend(files.into_iter().map(store));
            }
            Act::Ask(questions) => self.ask(questions, at_ms),
            Act::Stumble => {
                self.fail("retrying", at_ms);
                self.phase = Phase::Rescheduling;
                self.active_ms = self.active(at_ms);
                self.running_since = None;
                self.record(at_ms, "session.status_rescheduled", Value::Null);
            }
            Act::Recover => self.run(at_ms),
            Act::Fail { terminal: false } => {
                self.fail("exhausted", at_ms);
                self.inbox_read(at_ms);
                self.end(Stop::RetriesExhausted, at_ms);
            }
            Act::Fail { terminal: true } => {
                self.fail("terminal", at_ms);
                self.terminate(at_ms);
            }
            Act::Intrude => {
                self.record(at_ms, "user.interrupt", Value::Null);
                self.inbox_read(at_ms);
                self.end(Stop::EndTurn, at_ms);
            }
            Act::End(stop) => self.end(stop, at_ms),
            Act::Forever { after_ms } => {
                self.plan.push_back(Step { after_ms, act: Act::Request(plan::one_more()) });
                self.plan.push_back(Step { after_ms: 0, act: Act::Forever { after_ms: after_ms.saturating_mul(2) } });
            }
        }
    }

    /// Time until the last step of the plan.
    fn remaining_ms(&self) -> i64 {
        self.plan.iter().map(|step| step.after_ms).sum()
    }

    fn request(&mut self, tokens: Tokens, at_ms: i64) {
        let start = self.record(at_ms, "span.model_request_start", Value::Null);
        let usage = json!({
            "input_tokens": tokens.input, "output_tokens": tokens.output,
            "cache_read_input_tokens": tokens.cache_read, "cache_creation_input_tokens": tokens.cache_write,
        });
        let fields = json!({"model_request_start_id": start, "model_usage": usage, "is_error": false});
        self.record(at_ms, "span.model_request_end", fields);
        self.usage.add(tokens);
        if self.opening.budget.cents().is_some_and(|cents| self.list_cents(at_ms) >= cents) {
            self.wait = Wait::Budget;
            self.rest(at_ms, &json!({"type": "budget_reached"}), &Value::Null);
        }
    }

    fn tool(&mut self, name: &str, input: &Value, output: &str, at_ms: i64) {
        let allowed = json!({
            "name": name, "input": input, "evaluated_permission": "allow", "evaluation": {"type": "always_allow"},
        });
        let id = self.record(at_ms, "agent.tool_use", allowed);
        let content = json!([{"type": "text", "text": output}]);
        let result = json!({"tool_use_id": id, "content": content, "is_error": false});
        self.record(at_ms, "agent.tool_result", result);
    }

    fn ask(&mut self, questions: Vec<Question>, at_ms: i64) {
        let mut asked = Vec::new();
        for question in questions {
            asked.push(match question {
                Question::Permission { name, input } => {
                    let fields = json!({
                        "name": name, "input": input, "evaluated_permission": "ask",
                        "evaluation": {"type": "always_ask"},
                    });
                    (self.record(at_ms, "agent.tool_use", fields), false)
                }
                Question::Custom { name, input } => {
                    (self.record(at_ms, "agent.custom_tool_use", json!({"name": name, "input": input})), true)
                }
            });
        }
        self.wait_for(asked, at_ms);
    }

    fn wait_for(&mut self, asked: Vec<(String, bool)>, at_ms: i64) {
        let ids: Vec<&String> = asked.iter().map(|(id, _)| id).collect();
        let reason = json!({"type": "requires_action", "event_ids": ids});
        self.wait = Wait::Answers(asked);
        self.rest(at_ms, &reason, &Value::Null);
    }

    fn fail(&mut self, retry: &str, at_ms: i64) {
        let kind = if retry == "terminal" { "unknown_error" } else { "model_overloaded_error" };
        let message =
            if retry == "terminal" { "The session's container was lost." } else { "The model is overloaded." };
        let error = json!({"type": kind, "message": message, "retry_status": {"type": retry}});
        self.record(at_ms, "session.error", json!({"error": error}));
    }

    fn end(&mut self, stop: Stop, at_ms: i64) {
        self.plan.clear();
        for outcome in self.outcomes.iter_mut().filter(|outcome| outcome["completed_at"].is_null()) {
            outcome["completed_at"] = json!(time(at_ms));
            outcome["result"] = json!(if stop == Stop::EndTurn { "satisfied" } else { "failed" });
        }
        if stop == Stop::EndTurn && !self.inbox.is_empty() {
            self.next_turn(at_ms);
            return;
        }
        let refusal = "The request was refused by a safety classifier.";
        let (reason, details) = match stop {
            Stop::EndTurn => ("end_turn", Value::Null),
            Stop::RetriesExhausted => ("retries_exhausted", Value::Null),
            Stop::Refusal => ("refusal", json!({"type": "refusal", "category": "cyber", "explanation": refusal})),
            Stop::Unheard => ("paused_for_review", Value::Null),
        };
        self.rest(at_ms, &json!({"type": reason}), &details);
    }

    fn terminate(&mut self, at_ms: i64) {
        self.active_ms = self.active(at_ms);
        self.running_since = None;
        self.plan.clear();
        self.inbox_read(at_ms);
        self.wait = Wait::Nothing;
        self.phase = Phase::Terminated;
        self.record(at_ms, "session.status_terminated", Value::Null);
    }

    /// What waited its turn is dropped: it stays in the history without effect.
    fn inbox_read(&mut self, at_ms: i64) {
        for mut event in std::mem::take(&mut self.inbox) {
            event.processed_ms = Some(at_ms);
            self.events.push(event);
        }
    }

    fn next_turn(&mut self, at_ms: i64) {
        let Some(mut event) = self.inbox.pop_front() else { return };
        let words = text_of(event.fields.get("content"))
            .or_else(|| event.fields.get("description").and_then(Value::as_str).map(str::to_owned))
            .unwrap_or_default();
        event.processed_ms = Some(at_ms);
        let starts = event.kind != "system.message";
        self.updated_ms = at_ms;
        self.events.push(event);
        if !starts {
            self.next_turn(at_ms);
            return;
        }
        self.scenario = scenario(&words).unwrap_or_default().to_owned();
        self.plan = plan::turn(&self.scenario, &words, self.pace_ms, self.opening.budget.cents());
        if self.phase == Phase::Running {
            self.step_ms = at_ms;
        } else {
            self.run(at_ms);
        }
    }

    /// Takes in a message, an outcome to work towards, or a system message.
    pub(super) fn take_in(&mut self, kind: &str, fields: Map<String, Value>) -> Value {
        let event = Event { id: fresh_id("sevt"), kind: kind.to_owned(), processed_ms: None, fields };
        let shown = event.shown();
        self.inbox.push_back(event);
        shown
    }

    /// Notes an outcome to work towards and takes it in.
    pub(super) fn take_outcome(&mut self, mut fields: Map<String, Value>, now_ms: i64) -> Value {
        let outcome = fresh_id("outc");
        self.outcomes.push(json!({
            "type": "outcome_evaluation", "outcome_id": outcome, "description": fields.get("description"),
            "iteration": 0, "result": "running", "explanation": null, "completed_at": null,
        }));
        fields.insert("outcome_id".to_owned(), json!(outcome));
        fields.entry("max_iterations").or_insert(json!(3));
        let mut shown = self.take_in("user.define_outcome", fields);
        shown["processed_at"] = json!(time(now_ms));
        shown
    }

    /// Starts on what was taken in, unless a turn is under way or waits.
    pub(super) fn wake(&mut self, now_ms: i64) {
        if self.phase == Phase::Idle && self.wait == Wait::Nothing {
            self.next_turn(now_ms);
        }
    }

    /// Stops the turn. Without one it changes nothing.
    pub(super) fn interrupt(&mut self, fields: Map<String, Value>, now_ms: i64) -> Value {
        let id = self.record(now_ms, "user.interrupt", Value::Object(fields));
        let shown = self.shown_event(&id);
        if matches!(self.phase, Phase::Running | Phase::Rescheduling) {
            self.inbox_read(now_ms);
            self.end(Stop::EndTurn, now_ms);
        }
        shown
    }

    /// Takes the answer to one question; the turn goes on when the last one has it.
    pub(super) fn answer(&mut self, kind: &str, fields: Map<String, Value>, now_ms: i64) -> Value {
        let id = fields.get("tool_use_id").or_else(|| fields.get("custom_tool_use_id"));
        let id = id.and_then(Value::as_str).unwrap_or_default().to_owned();
        let denied = fields.get("result").and_then(Value::as_str) == Some("deny");
        let why = fields.get("deny_message").and_then(Value::as_str).map(str::to_owned);
        if let Some(words) = text_of(fields.get("content")) {
            self.answer = words;
        }
        let event = self.record(now_ms, kind, Value::Object(fields));
        let shown = self.shown_event(&event);
        let Wait::Answers(mut open) = std::mem::replace(&mut self.wait, Wait::Nothing) else { return shown };
        open.retain(|(question, _)| *question != id);
        if denied {
            self.plan = plan::after_denial(self.pace_ms, why.as_deref());
        } else if kind == "user.tool_confirmation" {
            let result = json!({"tool_use_id": id, "content": [{"type": "text", "text": "50 passed in 3.10s"}], "is_error": false});
            self.record(now_ms, "agent.tool_result", result);
        }
        if open.is_empty() {
            self.run(now_ms);
        } else {
            self.wait_for(open, now_ms);
        }
        shown
    }

    /// Changes the budget; a session that waits for one goes on if the new one is enough.
    pub(super) fn set_budget(&mut self, budget: Budget, now_ms: i64) {
        self.opening.budget = budget;
        self.record(now_ms, "session.updated", json!({"budget": budget.shown()}));
        if self.wait == Wait::Budget {
            self.run(now_ms);
        }
    }

    pub(super) fn archive(&mut self, now_ms: i64) {
        self.archived_ms = Some(now_ms);
        if self.phase != Phase::Terminated {
            self.terminate(now_ms);
        }
    }

    /// Notes a change of title or metadata.
    pub(super) fn updated(&mut self, fields: Value, now_ms: i64) {
        self.record(now_ms, "session.updated", fields);
    }

    fn shown_event(&self, id: &str) -> Value {
        self.events.iter().rev().find(|event| event.id == id).map_or(Value::Null, Event::shown)
    }

    pub(super) fn status(&self) -> &'static str {
        match self.phase {
            Phase::Idle => "idle",
            Phase::Running if self.scenario == "unknown_status" => "warming_up",
            Phase::Running => "running",
            Phase::Rescheduling => "rescheduling",
            Phase::Terminated => "terminated",
        }
    }

    fn usage_at(&self, now_ms: i64) -> Value {
        self.usage.shown(self.active(now_ms))
    }

    pub(super) fn shown(&self, now_ms: i64) -> Value {
        let stats = if self.usage.is_empty() && self.running_since.is_none() {
            json!({})
        } else {
            let lived = if self.phase == Phase::Terminated { self.updated_ms } else { now_ms } - self.created_ms;
            json!({"active_seconds": seconds(self.active(now_ms)), "duration_seconds": seconds(lived)})
        };
        json!({
            "type": "session",
            "id": self.id,
            "status": self.status(),
            "agent": self.opening.agent,
            "environment_id": self.opening.environment_id,
            "title": self.opening.title,
            "metadata": self.opening.metadata,
            "resources": self.opening.resources,
            "budget": self.opening.budget.shown(),
            "vault_ids": self.opening.vault_ids,
            "outcome_evaluations": self.outcomes,
            "usage": self.usage_at(now_ms),
            "stats": stats,
            "created_at": time(self.created_ms),
            "updated_at": time(self.updated_ms),
            "archived_at": self.archived_ms.map(time),
            "deployment_id": null,
        })
    }
}

/// The text blocks of a content list.
pub(super) fn text_of(content: Option<&Value>) -> Option<String> {
    let blocks = content?.as_array()?;
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    Some(texts.join("\n"))
}
