//! What a session costs, and the ceiling on it.

use serde_json::{Value, json};

use super::plan::Tokens;

/// A ceiling on the list cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Budget {
    /// None was given at creation, so none can be.
    Never,
    Cents(i64),
    /// There was one; it cannot come back.
    Removed,
}

impl Budget {
    /// The ceiling, if one is in force.
    pub(super) fn cents(self) -> Option<i64> {
        match self {
            Self::Cents(cents) => Some(cents),
            Self::Never | Self::Removed => None,
        }
    }

    pub(super) fn shown(self) -> Value {
        match self.cents() {
            Some(cents) => json!({"type": "limit", "max_list_cost": money(cents)}),
            None => Value::Null,
        }
    }
}

fn money(cents: i64) -> Value {
    json!({"amount": cents.to_string(), "currency": "USD"})
}

/// What a session has used up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    tokens: Tokens,
    requests: i64,
}

impl Usage {
    /// Adds one model request.
    pub(super) fn add(&mut self, more: Tokens) {
        self.requests += 1;
        self.tokens.input += more.input;
        self.tokens.output += more.output;
        self.tokens.cache_read += more.cache_read;
        self.tokens.cache_write += more.cache_write;
        self.tokens.extra_cents += more.extra_cents;
    }

    /// List cost, rounded up to the cent. Per million tokens: 5 USD in, 25 out, 0.50 cache read, 6.25 cache
    /// write; 0.08 USD an hour of running.
    pub(super) fn cents(self, active_ms: i64) -> i64 {
        let Tokens { input, output, cache_read, cache_write, extra_cents } = self.tokens;
        // In hundred-millionths of a dollar.
        let fine = input * 500 + output * 2500 + cache_read * 50 + cache_write * 625 + active_ms.saturating_mul(20) / 9;
        (fine + 999_999) / 1_000_000 + extra_cents
    }

    /// Whether any model request was made.
    pub(super) fn is_empty(self) -> bool {
        self.requests == 0
    }

    /// As sessions and usage events show it: nothing before the first request.
    pub(super) fn shown(self, active_ms: i64) -> Value {
        if self.is_empty() {
            return json!({});
        }
        json!({
            "input_tokens": self.tokens.input,
            "output_tokens": self.tokens.output,
            "cache_read_input_tokens": self.tokens.cache_read,
            "cache_creation": {"ephemeral_5m_input_tokens": self.tokens.cache_write, "ephemeral_1h_input_tokens": 0},
            "active_seconds": seconds(active_ms),
            "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            "list_cost": money(self.cents(active_ms)),
        })
    }
}

/// Milliseconds as a JSON number of seconds.
pub(super) fn seconds(ms: i64) -> Value {
    #[allow(clippy::cast_precision_loss)]
    {
        json!(ms as f64 / 1000.0)
    }
}
