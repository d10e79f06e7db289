//! What a vendor asks, and what is answered.

use serde::{Deserialize, Serialize};

/// The form an answer must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// Free text.
    Text,
    /// One of the listed options.
    Choice,
    /// Yes or no; a question that times out is denied.
    Approval,
}

/// One question of a vendor. The engine adds when it was asked and its deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The vendor's own id of the question; a new question has a new id.
    pub id: String,
    /// The form of the answer.
    pub kind: QuestionKind,
    /// What is asked, for a person.
    pub prompt: String,
    /// The options of a choice; empty otherwise.
    #[serde(default)]
    pub options: Vec<String>,
    /// What a time-out answers; an approval is denied whatever stands here.
    #[serde(default)]
    pub default: Option<String>,
    /// The vendor goes on by itself (a sign-in out of band): polls continue while the question stands.
    #[serde(default)]
    pub polls_go_on: bool,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerBody {
    /// Free text.
    Text(String),
    /// One of the options.
    Choice(String),
    /// Approved or denied.
    Approve(bool),
}

/// An answer to one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The question it answers.
    pub question_id: String,
    /// What was answered.
    pub body: AnswerBody,
    /// Our own id of the answer, the same at every re-send: the message id where a vendor takes one.
    pub id: String,
}
