//! The operations over either binding.

use super::card::{Binding, Interface, VERSION, VERSION_HEADER, with_key};
use super::errors::classify;
use super::wire::{RpcAnswer, Sent, Task, TaskPage};
use crate::reading::read_json;
use crate::{Call, Context, Reply};
use http::Method;
use longhaul_registry::{Failure, FailureKind, Retry};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// What stands in a path segment as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// An agent as one step sees it.
pub(super) struct Agent<'a> {
    cx: &'a Context<'a>,
    interface: Interface,
    /// The id of every JSON-RPC request of the step: one is under way at a time.
    id: &'a str,
}

/// An answer read.
pub(super) struct Read<T> {
    pub(super) body: T,
    pub(super) retry_after: Option<Duration>,
}

/// One operation in both bindings.
struct Operation {
    /// Its name for the record.
    route: &'static str,
    /// Over JSON-RPC.
    rpc: &'static str,
    /// Over HTTP+JSON.
    method: Method,
    path: String,
    /// The path names the task, so that HTTP+JSON sends no `id`.
    params: Map<String, Value>,
}

impl<'a> Agent<'a> {
    pub(super) fn new(cx: &'a Context<'a>, interface: Interface, id: &'a str) -> Self {
        Self { cx, interface, id }
    }

    pub(super) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Sends a message and does not wait for the agent's work. It may set the agent to work, so it is never
    /// re-sent by itself; the message's id goes along as an idempotency key for the agents that know one.
    pub(super) async fn send(
        &self,
        route: &'static str,
        message: Value,
        configuration: Value,
    ) -> Result<Read<Sent>, Failure> {
        let key = message["messageId"].as_str().unwrap_or_default().to_owned();
        let params = object(json!({"message": message, "configuration": configuration}));
        let operation =
            Operation { route, rpc: "SendMessage", method: Method::POST, path: "/message:send".to_owned(), params };
        self.ask(operation, Some(key)).await
    }

    /// The task with so many of its newest messages.
    pub(super) async fn get(&self, task: &str, history: u32) -> Result<Read<Task>, Failure> {
        let operation = Operation {
            route: "get_task",
            rpc: "GetTask",
            method: Method::GET,
            path: format!("/tasks/{}", segment(task)),
            params: object(json!({"id": task, "historyLength": history})),
        };
        self.ask(operation, None).await
    }

    /// One page of tasks by these filters.
    pub(super) async fn list(&self, filters: Value) -> Result<TaskPage, Failure> {
        let operation = Operation {
            route: "list_tasks",
            rpc: "ListTasks",
            method: Method::GET,
            path: "/tasks".to_owned(),
            params: object(filters),
        };
        Ok(self.ask::<TaskPage>(operation, None).await?.body)
    }

    /// Asks the agent to stop a task.
    pub(super) async fn cancel(&self, task: &str) -> Result<Read<Task>, Failure> {
        let operation = Operation {
            route: "cancel_task",
            rpc: "CancelTask",
            method: Method::POST,
            path: format!("/tasks/{}:cancel", segment(task)),
            params: object(json!({"id": task})),
        };
        self.ask(operation, None).await
    }

    /// Makes a call. `paid` holds the idempotency key of one that costs money.
    async fn ask<T: DeserializeOwned>(&self, operation: Operation, paid: Option<String>) -> Result<Read<T>, Failure> {
        let mut call = match self.interface.binding {
            Binding::JsonRpc => self.rpc_call(operation),
            Binding::HttpJson => self.http_call(operation),
        };
        call = call.header(VERSION_HEADER, VERSION);
        call.with_key = with_key(self.cx.connector, &self.interface.url)?;
        call.paid = paid.is_some();
        if let Some(key) = paid {
            call = call.header("Idempotency-Key", key);
        }
        let paid = call.paid;
        let reply = self.cx.send(call).await?;
        let body = match self.interface.binding {
            Binding::JsonRpc => self.rpc_answer(&reply, paid)?,
            Binding::HttpJson if reply.is_success() => read_json(&reply, paid)?,
            Binding::HttpJson => return Err(classify(&reply, paid)),
        };
        Ok(Read { body, retry_after: reply.retry_after })
    }

    fn rpc_call(&self, operation: Operation) -> Call {
        let mut params = operation.params;
        if let Some(tenant) = &self.interface.tenant {
            params.insert("tenant".to_owned(), json!(tenant));
        }
        let body = json!({"jsonrpc": "2.0", "id": self.id, "method": operation.rpc, "params": params});
        Call::post(operation.route, "", body).at(&self.interface.url)
    }

    /// The tenant is a path segment, and a member of a body.
    fn http_call(&self, operation: Operation) -> Call {
        let base = self.interface.url.trim_end_matches('/');
        let tenant = self.interface.tenant.as_deref();
        let prefix = tenant.map(|tenant| format!("/{}", segment(tenant))).unwrap_or_default();
        let mut params = operation.params;
        params.remove("id");
        let mut call = Call::new(operation.route, operation.method, "").at(format!("{base}{prefix}{}", operation.path));
        if call.method == Method::GET {
            for (name, value) in params {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                call = call.query(name, value);
            }
            return call;
        }
        if let Some(tenant) = tenant {
            params.insert("tenant".to_owned(), json!(tenant));
        }
        call.body = crate::CallBody::Json(Value::Object(params));
        call
    }

    /// Unwraps a JSON-RPC answer: an error under any HTTP status is an error, and a result must be that of
    /// our request.
    fn rpc_answer<T: DeserializeOwned>(&self, reply: &Reply, paid: bool) -> Result<T, Failure> {
        if !reply.is_success() {
            return Err(classify(reply, paid));
        }
        let answer: RpcAnswer = read_json(reply, paid)?;
        if answer.error.is_some() {
            return Err(classify(reply, paid));
        }
        let is_ours = answer.jsonrpc.as_deref() == Some("2.0") && answer.id.is_some_and(|id| id.0 == self.id);
        let result = answer.result.filter(|_| is_ours).and_then(|result| serde_json::from_str(result.get()).ok());
        result.ok_or_else(|| unreadable(reply.status, paid))
    }
}

fn unreadable(status: u16, paid: bool) -> Failure {
    let retry = if paid { Retry::Unknown } else { Retry::Backoff };
    let message = format!("HTTP {status} with no answer to our JSON-RPC request");
    Failure::new(FailureKind::VendorError, retry, message).code("unreadable_answer")
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn segment(id: &str) -> String {
    utf8_percent_encode(id, SEGMENT).to_string()
}
