//! How the process ends: 0 done, 1 failed, 2 wrong usage, 3 nothing matched, 4 partly failed.

use std::process::ExitCode;

/// An end other than "done", with what is said about it on stderr.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Exit {
    /// The exit code.
    pub code: u8,
    /// What is said.
    pub message: String,
}

impl Exit {
    /// It failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// It was asked wrongly.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// Nothing matched.
    pub fn nothing(message: impl Into<String>) -> Self {
        Self { code: 3, message: message.into() }
    }

    /// Some of it failed.
    pub fn partly(message: impl Into<String>) -> Self {
        Self { code: 4, message: message.into() }
    }
}

/// Says what went wrong on stderr and gives the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let (code, message) = match (error.downcast_ref::<Exit>(), error.downcast_ref::<super::client::Refused>()) {
        (Some(exit), _) => (exit.code, exit.message.clone()),
        (None, Some(refused)) => (refused.exit_code(), refused.to_string()),
        (None, None) => (1, format!("{error:#}")),
    };
    if !message.is_empty() {
        super::output::say(&format!("longhaul: {message}"));
    }
    ExitCode::from(code)
}
