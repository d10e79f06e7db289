//! The account's history: where a lost start is found, and where speech is fetched again.

use super::wire::{History, Item};
use super::{ElevenLabs, TITLE, keeps_history, mime, usage};
use crate::inputs::{Embed, fill};
use crate::reading::read_json;
use crate::sending::path_segment;
use crate::{Call, Context, JobVendor, JobView, OtherStart, Reply};
use chrono::DateTime;
use longhaul_registry::{
    ArtifactDraft, DraftSource, Failure, FailureKind, Finding, Input, JobRequest, Report, Retry, StartAnswer,
    UsageSource,
};
use serde_json::{Value, json};
use std::time::Duration;

/// The vendor's clock may be behind ours by so much: speech is looked for from this long before it was asked for.
const CLOCK_SLACK_S: i64 = 5;

/// Speech stands in the history a while after it was asked for: the first look that counts, and the last.
const FIRST_LOOK: Duration = Duration::from_secs(60);
const LAST_LOOK: Duration = Duration::from_secs(300);

/// Between looks after the first.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Items a page; the vendor allows 1000, but texts may be long and an answer is held in memory.
const PAGE: usize = 100;

/// No search reads more pages.
const MOST_PAGES: usize = 20;

/// No speech is made later than this after it was asked for.
const LONGEST_MAKING_S: i64 = 3600;

/// Two settings of a voice that differ by less are one: the vendor may keep fewer digits than it was given.
const SETTING_SLACK: f64 = 0.005;

/// What the start asks for, with its text filled in: what an item of the history must match.
pub(super) struct Wanted {
    pub(super) body: Value,
    pub(super) text: String,
    pub(super) model: String,
    pub(super) output_format: String,
}

impl Wanted {
    /// Reads the mapped request and the script.
    pub(super) async fn of(cx: &Context<'_>, job: &JobView<'_>) -> Result<Self, Failure> {
        let body = fill(cx, job, job.prepared.get("body").unwrap_or(&Value::Null), Embed::Text).await?;
        let text = body.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
        let Asked { model, output_format, .. } = Asked::of(job.prepared);
        let (model, output_format) = (model.to_owned(), output_format.to_owned());
        Ok(Self { body, text, model, output_format })
    }
}

/// What of a mapped request an item of the history can be held against. The seed, the language and the texts around it
/// stand in no item.
struct Asked<'a> {
    voice: String,
    model: &'a str,
    output_format: &'a str,
    settings: &'a Value,
}

impl<'a> Asked<'a> {
    fn of(prepared: &'a Value) -> Self {
        let text = |part: &str, name: &str| prepared[part][name].as_str().unwrap_or_default();
        Self {
            voice: voice(prepared),
            model: text("body", "model_id"),
            output_format: text("query", "output_format"),
            settings: &prepared["body"]["voice_settings"],
        }
    }

    /// The item may be this request's, by all but its text: nothing that it shows says otherwise.
    fn fits(&self, item: &Item, since: i64) -> bool {
        let same = |mine: &str, theirs: Option<&str>| theirs.is_none_or(|theirs| theirs == mine);
        same(&self.voice, item.voice_id.as_deref())
            && same(self.model, item.model_id.as_deref())
            && same(self.output_format, item.output_format.as_deref())
            && item.settings.as_ref().is_none_or(|shown| settings_fit(self.settings, shown))
            && item.date().is_none_or(|date| date >= since)
            && item.state.as_ref().and_then(Value::as_str) != Some("deleted")
    }
}

/// Every setting that was asked for stands in the item as it was asked for, where the item shows it.
fn settings_fit(asked: &Value, shown: &Value) -> bool {
    let alike = |asked: &Value, shown: &Value| match (asked.as_f64(), shown.as_f64()) {
        (Some(asked), Some(shown)) => (asked - shown).abs() < SETTING_SLACK,
        _ => asked.is_null() || shown.is_null() || asked == shown,
    };
    asked.as_object().into_iter().flatten().all(|(name, asked)| shown.get(name).is_none_or(|shown| alike(asked, shown)))
}

/// Whether another start, of a request that is not the same, may have made the item. Of two requests that are the same
/// either may have either item.
fn may_be_anothers(item: &Item, other: &OtherStart, job: &JobView<'_>, text: &str) -> bool {
    if other.prepared["query"]["enable_logging"] == "false" {
        return false;
    }
    let (mine, theirs) = (script(job.request), script(&other.request));
    let artifact = |input: Option<&Input>| input.and_then(|input| input.artifact.clone());
    let one_artifact = artifact(mine).is_some() && artifact(mine) == artifact(theirs);
    let their_text = theirs.and_then(|input| input.text.as_deref());
    let same_text = one_artifact || their_text == Some(text);
    // A script that lies elsewhere may say the same.
    let may_say_it = same_text || their_text.is_none();
    let since = other.sent_at_ms.div_euclid(1000) - CLOCK_SLACK_S;
    let in_time = item.date().is_none_or(|date| date <= since + CLOCK_SLACK_S + LONGEST_MAKING_S);
    let same = same_text && other.prepared == *job.prepared;
    !same && may_say_it && in_time && Asked::of(&other.prepared).fits(item, since)
}

fn script(request: &JobRequest) -> Option<&Input> {
    request.inputs.iter().find(|input| input.role == "script")
}

/// Looks for the lost start. An item that another job holds is not ours, and one that may be another's is not taken for
/// ours: speech of another seed would be delivered, and its own job would get this one's.
pub(super) async fn find(vendor: &ElevenLabs, cx: &Context<'_>, job: &JobView<'_>) -> Result<Finding, Failure> {
    let Some(sent) = job.sent else { return Ok(Finding::Unsure { look_again: None }) };
    let (wanted, asked) = (Wanted::of(cx, job).await?, Asked::of(job.prepared));
    let since = sent.sent_at_ms.div_euclid(1000) - CLOCK_SLACK_S;
    // What an item does not show cannot differ, but the text must stand.
    let matches = |item: &Item| item.text.as_deref() == Some(wanted.text.as_str()) && asked.fits(item, since);
    let listed = list(vendor, cx, job, Some(since), matches).await;
    let (matching, whole) = match listed {
        Err(failure) if failure.kind == FailureKind::CapabilityMissing => return Ok(Finding::Unsupported),
        listed => listed?,
    };
    let ids: Vec<String> =
        matching.iter().flat_map(|item| [item.record().to_owned(), item.history_item_id.0.clone()]).collect();
    let taken = if ids.is_empty() { Vec::new() } else { cx.taken(&ids).await? };
    let is_free = |item: &&Item| !taken.iter().any(|id| id == item.record() || *id == item.history_item_id.0);
    let free: Vec<&Item> = matching.iter().filter(is_free).collect();
    let others = if free.is_empty() { Vec::new() } else { cx.other_starts().await? };
    let is_ours = |item: &&Item| !others.iter().any(|other| may_be_anothers(item, other, job, &wanted.text));
    let ours: Vec<&Item> = free.iter().copied().filter(is_ours).collect();
    // Two that were not spoken alike are not both of one request, and nothing says which of them is.
    let alike = ours.windows(2).all(|pair| matches!(pair, [one, next] if one.settings == next.settings));
    if let Some(item) = ours.iter().min_by_key(|item| item.date()).filter(|_| alike) {
        let (drafts, report) = made(cx, job, item, true);
        return Ok(Finding::Found(StartAnswer::Finished {
            vendor_job_id: Some(item.record().to_owned()),
            outputs: drafts,
            report,
        }));
    }
    let under_way_until = DateTime::from_timestamp_millis(sent.under_way_until_ms()).unwrap_or(cx.now);
    let age = (cx.now - under_way_until).to_std().unwrap_or_default();
    if age >= LAST_LOOK && whole && free.is_empty() {
        return Ok(Finding::Absent);
    }
    let wait = FIRST_LOOK.checked_sub(age).unwrap_or(LOOK_AGAIN).max(Duration::from_secs(1));
    Ok(Finding::Unsure { look_again: Some(wait) })
}

/// The speech of a start that was answered or adopted, as the history has it.
pub(super) async fn again(
    vendor: &ElevenLabs,
    cx: &Context<'_>,
    job: &JobView<'_>,
) -> Result<(Vec<ArtifactDraft>, Report), Failure> {
    if !keeps_history(job.request, cx.connector) {
        let message = format!("{TITLE} keeps no history in zero-retention mode; start the job again");
        return Err(Failure::new(FailureKind::NotFound, Retry::Never, message));
    }
    let known = job.vendor_state.get("history_item_id").and_then(Value::as_str);
    let item = match (known, job.vendor_job_id) {
        (Some(item), _) => get(vendor, cx, item).await?,
        (None, Some(id)) => {
            let since = job.sent.map(|sent| sent.sent_at_ms.div_euclid(1000) - CLOCK_SLACK_S);
            let (listed, _) =
                list(vendor, cx, job, since, |item| item.record() == id || item.history_item_id.0 == id).await?;
            match listed.into_iter().next() {
                Some(item) => Some(item),
                // A person may have named an item of another day.
                None => get(vendor, cx, id).await?,
            }
        }
        (None, None) => match find(vendor, cx, job).await? {
            Finding::Found(StartAnswer::Finished { outputs, report, .. }) => return Ok((outputs, report)),
            _ => {
                let message =
                    format!("no speech in {TITLE}'s history is surely this job's; look there before starting again");
                return Err(Failure::new(FailureKind::NotFound, Retry::Never, message));
            }
        },
    };
    let Some(item) = item else {
        let message = format!("{TITLE} has no such speech in its history; start the job again");
        return Err(Failure::new(FailureKind::NotFound, Retry::Never, message));
    };
    // The answer's own header is the exact charge: what was reported once is not read again.
    let reported = job.vendor_state.get("charge_reported").and_then(Value::as_bool) == Some(true);
    Ok(made(cx, job, &item, !reported))
}

fn made(cx: &Context<'_>, job: &JobView<'_>, item: &Item, book: bool) -> (Vec<ArtifactDraft>, Report) {
    // Every character that a path could trip over is encoded, and `get` and `list` give no empty id.
    let id = path_segment(&item.history_item_id.0).unwrap_or_default();
    let url = format!("/v1/history/{id}/audio");
    let mut draft = ArtifactDraft::new("audio", DraftSource::Url { url, with_key: true });
    let asked = job.prepared.get("query").and_then(|query| query.get("output_format")).and_then(Value::as_str);
    let format = item.output_format.as_deref().or(asked).unwrap_or_default();
    draft.declared_mime = mime(format, item.content_type.as_deref());
    let charge = item.charge().filter(|_| book);
    // The line that the start booked is corrected, never joined by another.
    let booked = job.vendor_state.get("record").and_then(Value::as_str);
    let record = booked.or(job.vendor_job_id).unwrap_or_else(|| item.record());
    let mut state = job.vendor_state.as_object().cloned().unwrap_or_default();
    state.insert("history_item_id".to_owned(), json!(item.history_item_id.0));
    state.insert("record".to_owned(), json!(record));
    state.insert("charge_reported".to_owned(), json!(charge.is_some() || !book));
    let report = Report {
        usage: charge.map(|charge| usage(cx, record, charge, UsageSource::Reported)).into_iter().collect(),
        vendor_state: Some(Value::Object(state)),
        vendor_request_id: item.request_id.as_ref().map(|id| id.0.clone()),
        ..Report::default()
    };
    (vec![draft], report)
}

fn voice(prepared: &Value) -> String {
    let path = prepared["path"].as_str().unwrap_or_default();
    let segment = path.rsplit('/').next().unwrap_or_default();
    percent_encoding::percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

/// The items of the job's voice and model that pass, newest first, and whether the list was read to its end.
async fn list(
    vendor: &ElevenLabs,
    cx: &Context<'_>,
    job: &JobView<'_>,
    since: Option<i64>,
    passes: impl Fn(&Item) -> bool + Send + Sync,
) -> Result<(Vec<Item>, bool), Failure> {
    let model = job.prepared.get("body").and_then(|body| body.get("model_id")).and_then(Value::as_str);
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    for _ in 0..MOST_PAGES {
        let mut call = Call::get("history", "/v1/history").query("page_size", PAGE.to_string());
        call = call.query("voice_id", voice(job.prepared));
        // A model is only looked at where a source is named.
        call = call.query("model_id", model.unwrap_or_default()).query("source", "TTS");
        if let Some(since) = since {
            call = call.query("date_after_unix", since.to_string());
        }
        if let Some(after) = &after {
            call = call.query("start_after_history_item_id", after);
        }
        let reply = cx.send(call).await?;
        if !reply.is_success() {
            return Err(refused(vendor, &reply));
        }
        let page: History = read_json(&reply, false)?;
        let usable = |item: &Item| path_segment(&item.history_item_id.0).is_some() && passes(item);
        found.extend(page.history.into_iter().filter(usable));
        let next = page.last_history_item_id.map(|id| id.0).filter(|id| !id.is_empty());
        if !page.has_more || next.is_none() || next == after {
            return Ok((found, !page.has_more));
        }
        after = next;
    }
    Ok((found, false))
}

/// One item, or `None` where the history does not know it.
async fn get(vendor: &ElevenLabs, cx: &Context<'_>, id: &str) -> Result<Option<Item>, Failure> {
    let Some(segment) = path_segment(id) else { return Ok(None) };
    let reply = cx.send(Call::get("history_item", format!("/v1/history/{segment}"))).await?;
    if !reply.is_success() {
        let failure = refused(vendor, &reply);
        return if failure.kind == FailureKind::NotFound { Ok(None) } else { Err(failure) };
    }
    read_json(&reply, false).map(Some)
}

/// A refusal to read the history. A scoped key may speak and yet not read it: that is no reason to hold the
/// connector.
fn refused(vendor: &ElevenLabs, reply: &Reply) -> Failure {
    let failure = vendor.classify(reply, false);
    if failure.vendor_code.as_deref() != Some("missing_permissions") {
        return failure;
    }
    let message = format!("the key may not read {TITLE}'s history; give it that right, or fetch the speech by hand");
    Failure::new(FailureKind::CapabilityMissing, Retry::Never, message)
        .vendor_code("missing_permissions")
        .request_id(failure.vendor_request_id)
}
