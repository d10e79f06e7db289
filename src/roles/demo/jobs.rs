//! The demo's jobs, one of each kind.

use serde_json::{Value, json};

/// The connectors, each with the settings its stand-in wants.
pub const CONNECTORS: [(&str, &str); 5] = [
    ("claude_managed_agents", "settings = { agent_id = \"agent_sandbox\", environment_id = \"env_sandbox\" }"),
    ("a2a", ""),
    ("runway", ""),
    ("flux", ""),
    ("elevenlabs", ""),
];

/// One job of the demo.
pub struct DemoJob {
    /// What kind it is, for people.
    pub title: &'static str,
    /// The request.
    pub request: Value,
}

/// Every job.
#[must_use]
pub fn all() -> Vec<DemoJob> {
    let job = |title, request| DemoJob { title, request };
    vec![
        job(
            "hosted agent",
            json!({
                "connector": "claude_managed_agents", "task": "agent.code",
                "instructions": "Make the retry test deterministic and save the diff as changes.patch. sandbox:asks",
                "expect": ["patch"], "output_path": "agent/changes.patch", "labels": {"demo": "agent"},
            }),
        ),
        job(
            "A2A agent",
            json!({
                "connector": "a2a", "task": "agent.research", "output_path": "a2a/report.md",
                "instructions": "Summarise how tides are predicted, in three sentences.", "labels": {"demo": "a2a"},
            }),
        ),
        job(
            "video",
            json!({
                "connector": "runway", "task": "video", "output_path": "video/paper-boat.mp4",
                "instructions": "a paper boat drifts across a pond, low morning sun",
                "media": {"aspect": "16:9", "duration_ms": 5000, "format": "mp4"}, "labels": {"demo": "video"},
            }),
        ),
        job(
            "image",
            json!({
                "connector": "flux", "task": "image", "output_path": "image/telescope.png",
                "instructions": "a brass telescope on a windowsill, morning light",
                "media": {"width": 1536, "height": 864, "format": "png", "seed": 7}, "labels": {"demo": "image"},
            }),
        ),
        job(
            "speech",
            json!({
                "connector": "elevenlabs", "task": "speech", "output_path": "speech/welcome.mp3",
                "inputs": [{"role": "script", "text": "Good morning. The long jobs are done, and nothing was paid for twice."}],
                "media": {"voice": "21m00Tcm4TlvDq8ikWAM", "format": "mp3"}, "labels": {"demo": "speech"},
            }),
        ),
    ]
}

/// How the demo answers a question, and in words.
#[must_use]
pub fn answer_to(question: &Value) -> (Value, String) {
    let id = &question["id"];
    match question["kind"].as_str() {
        Some("approval") => (json!({"question_id": id, "approve": true}), "approved".to_owned()),
        Some("choice") => {
            let choice = &question["options"][0];
            (json!({"question_id": id, "choice": choice}), choice.as_str().unwrap_or_default().to_owned())
        }
        _ => (json!({"question_id": id, "text": "Yes, go ahead."}), "Yes, go ahead.".to_owned()),
    }
}
