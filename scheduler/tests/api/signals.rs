//! Acting on jobs.

use crate::support::{World, painting};
use longhaul_registry::{Failure, FailureKind, Question, QuestionKind, Retry, Step};
use longhaul_store::{Job, JobError, JobState, OpenQuestion, Store, When};
use serde_json::{Value, json};
use std::sync::Arc;

fn asks(kind: QuestionKind) -> impl FnOnce(&mut Job) {
    move |job| {
        job.state = JobState::NeedsInput;
        job.attempt = 1;
        job.vendor_job_id = Some("v-1".to_owned());
        let question = Question {
            id: "q-1".to_owned(),
            kind,
            prompt: "Which?".to_owned(),
            options: vec!["red".to_owned(), "blue".to_owned()],
            default: Some("red".to_owned()),
            polls_go_on: false,
        };
        job.question = Some(OpenQuestion { question, asked_at: When::NOW, deadline: When::In(600_000) });
    }
}

fn unknown(job: &mut Job) {
    job.state = JobState::Parked;
    job.attempt = 1;
    job.step = None;
    job.due_at = None;
    let failure = Failure::new(FailureKind::StartUnknown, Retry::Unknown, "the answer was lost");
    job.error = Some(JobError { failure, step: Step::Start });
}

fn ended(job: &mut Job) {
    job.state = JobState::Failed;
    job.attempt = 1;
    job.step = None;
    job.due_at = None;
    job.vendor_job_id = Some("v-1".to_owned());
    job.finished_at = Some(When::NOW);
}

async fn events(world: &World, id: &str) -> Vec<Value> {
    world.get(&format!("/v1/jobs/{id}/events")).await.json()["events"].as_array().unwrap().clone()
}

#[tokio::test]
async fn an_answer_is_kept_before_it_is_acknowledged_and_only_once() {
    let world = World::open();
    let id = world.job().await;
    let path = format!("/v1/jobs/{id}/answer");
    let choice = json!({"question_id": "q-1", "choice": "blue"});
    assert_eq!(world.post(&path, &choice).await.error(), (409, "not_asked".to_owned()));
    world.change(&id, asks(QuestionKind::Choice), Vec::new()).await;
    let job = world.get(&format!("/v1/jobs/{id}")).await.json();
    let expected = json!({"id": "q-1", "kind": "choice", "prompt": "Which?", "options": ["red", "blue"],
        "deadline": "2026-11-30T12:10:00.000Z", "default": "red"});
    assert_eq!(job["question"], expected);
    let other = json!({"question_id": "q-0", "choice": "blue"});
    assert_eq!(world.post(&path, &other).await.error(), (409, "wrong_question".to_owned()));
    let green = json!({"question_id": "q-1", "choice": "green"});
    assert_eq!(world.post(&path, &green).await.error(), (422, "invalid_answer".to_owned()));
    let reply = world.post(&path, &choice).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(world.store.get(&id).await.unwrap().unwrap().job.answer.is_some());
    assert_eq!(world.post(&path, &choice).await.error(), (409, "already_answered".to_owned()));
    let answers = events(&world, &id).await.into_iter().filter(|event| event["kind"] == "answer").collect::<Vec<_>>();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["data"]["by"], "local");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_answers_at_once_one_is_taken() {
    let world = Arc::new(World::open());
    let id = world.job().await;
    world.change(&id, asks(QuestionKind::Text), Vec::new()).await;
    let calls: Vec<_> = (0..16)
        .map(|n| {
            let (world, id) = (world.clone(), id.clone());
            tokio::spawn(async move {
                let answer = json!({"question_id": "q-1", "text": format!("answer {n}")});
                world.post(&format!("/v1/jobs/{id}/answer"), &answer).await.status.as_u16()
            })
        })
        .collect();
    let mut taken = Vec::new();
    for call in calls {
        taken.push(call.await.unwrap());
    }
    taken.sort_unstable();
    assert_eq!(taken[0], 200);
    assert!(taken[1..].iter().all(|status| *status == 409), "{taken:?}");
}

#[tokio::test]
async fn answers_that_say_nothing_or_too_much_are_refused() {
    let world = World::open();
    let id = world.job().await;
    let path = format!("/v1/jobs/{id}/answer");
    let cases = [
        (json!({"choice": "a"}), "question_id"),
        (json!({"question_id": "q-1"}), ""),
        (json!({"question_id": "q-1", "text": "a", "approve": true}), ""),
        (json!({"question_id": "q-1", "approve": "yes"}), "approve"),
        (json!({"question_id": "q-1", "text": " "}), "text"),
        (json!({"question_id": "q-1", "txt": "a"}), "txt"),
        (json!([]), ""),
    ];
    for (body, at) in cases {
        let reply = world.post(&path, &body).await;
        assert_eq!(reply.status, 422, "{body}");
        assert!(reply.problems().iter().any(|(path, _)| path == at), "{body}: {}", reply.text());
    }
    assert_eq!(
        world.post_text(&path, "{\"question_id\":\"a\",\"question_id\":\"b\",\"text\":\"c\"}").await.status,
        422
    );
}

#[tokio::test]
async fn a_cancel_is_accepted_and_told_in_the_job() {
    let world = World::open();
    let id = world.job().await;
    let path = format!("/v1/jobs/{id}/cancel");
    assert_eq!(world.post(&path, &json!({"reson": "x"})).await.problems()[0].0, "reson");
    let reply = world.post(&path, &json!({"reason": "no longer needed"})).await;
    assert_eq!(reply.status, 202);
    let job = reply.json();
    assert_eq!((&job["state"], &job["cancel"]["outcome"]), (&json!("cancelled"), &json!("confirmed")));
    assert_eq!(job["cancel"]["requested_at"], "2026-11-30T12:00:00.000Z");
    assert_eq!(world.post_text(&path, "").await.error(), (409, "already_final".to_owned()));
    let running = world.job().await;
    let runs = |job: &mut Job| {
        job.state = JobState::Running;
        job.step = Some(Step::Poll);
        job.vendor_job_id = Some("v-1".to_owned());
    };
    world.change(&running, runs, Vec::new()).await;
    let reply = world.post_text(&format!("/v1/jobs/{running}/cancel"), "").await;
    assert_eq!(reply.status, 202);
    assert_eq!(reply.json()["cancel"]["outcome"], "pending");
}

#[tokio::test]
async fn a_replay_goes_on_from_where_it_is_told() {
    let world = World::open();
    let id = world.job().await;
    let path = format!("/v1/jobs/{id}/replay");
    let outputs = json!({"from": "outputs", "reason": "the disk was full"});
    assert_eq!(world.post(&path, &outputs).await.error(), (409, "not_replayable".to_owned()));
    world.change(&id, ended, Vec::new()).await;
    for (body, at) in [
        (json!({"from": "outputs"}), "reason"),
        (json!({"from": "cancel", "reason": "x"}), "from"),
        (json!({"from": "start", "reason": "x", "accept_cost": 1}), "accept_cost"),
    ] {
        assert_eq!(world.post(&path, &body).await.problems()[0].0, at, "{body}");
    }
    let dear = world.post(&path, &json!({"from": "start", "reason": "x"})).await;
    assert_eq!(dear.error(), (422, "cost_not_accepted".to_owned()));
    let reply = world.post(&path, &outputs).await;
    assert_eq!((reply.status.as_u16(), reply.json()["state"].clone()), (200, json!("collecting")));
    let history = events(&world, &id).await;
    assert!(history.iter().any(|event| event["kind"] == "operator" && event["data"]["reason"] == "the disk was full"));
}

#[tokio::test]
async fn an_unknown_start_has_three_ways_out() {
    let world = World::open();
    for (body, state) in [
        (json!({"vendor_job_id": "v-9"}), "running"),
        (json!({"outcome": "start_again", "accept_cost": true}), "queued"),
        (json!({"outcome": "give_up"}), "failed"),
    ] {
        let id = world.job().await;
        let path = format!("/v1/jobs/{id}/resolve");
        assert_eq!(world.post(&path, &body).await.error(), (409, "not_parked".to_owned()));
        world.change(&id, unknown, Vec::new()).await;
        for wrong in [json!({}), json!({"vendor_job_id": "v", "outcome": "give_up"}), json!({"outcome": "shrug"})] {
            assert_eq!(world.post(&path, &wrong).await.error(), (422, "invalid_request".to_owned()), "{wrong}");
        }
        let dear = world.post(&path, &json!({"outcome": "start_again"})).await;
        assert_eq!(dear.error(), (422, "cost_not_accepted".to_owned()));
        let reply = world.post(&path, &body).await;
        assert_eq!((reply.status.as_u16(), reply.json()["state"].clone()), (200, json!(state)));
    }
}

#[tokio::test]
async fn a_record_that_another_job_has_is_not_given_to_a_second() {
    let world = World::open();
    let ran = json!({"vendor_job_id": " v-9 "});
    let mut paths = Vec::new();
    for _ in 0..2 {
        let id = world.job().await;
        world.change(&id, unknown, Vec::new()).await;
        paths.push(format!("/v1/jobs/{id}/resolve"));
    }
    assert_eq!(world.post(&paths[0], &ran).await.status, 200);
    assert_eq!(world.post(&paths[1], &ran).await.error(), (409, "vendor_job_taken".to_owned()));
    assert_eq!(world.post(&paths[1], &json!({"vendor_job_id": "v-8"})).await.status, 200);
}

#[tokio::test]
async fn a_rerun_is_a_new_job_linked_both_ways() {
    let world = World::open();
    let mut body = painting();
    body["output_path"] = json!("hero.png");
    body["limits"] = json!({"max_cost_usd": "1.50"});
    body["labels"] = json!({"a": "1", "b": "2"});
    let first = world.post("/v1/jobs", &body).await.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/jobs/{first}/rerun");
    assert_eq!(world.post(&path, &json!({})).await.problems()[0].0, "reason");
    let wrong = json!({"reason": "x", "changes": {"media": {"width": 9_999}}});
    assert_eq!(world.post(&path, &wrong).await.problems()[0].0, "media.width");
    let taken = json!({"reason": "x", "changes": {"output_path": "hero.png"}});
    assert_eq!(world.post(&path, &taken).await.error(), (409, "path_taken".to_owned()));
    let changes = json!({"instructions": "two blue cups", "labels": {"b": null}, "limits": {"max_cost_usd": 0.5}});
    let body = json!({"reason": "more cups", "changes": changes}).to_string();
    let reply = world.post_as(&path, &[("idempotency-key", "r")], &body).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let job = reply.json();
    assert_eq!(job["rerun_of"], first.as_str());
    assert_eq!(job["labels"], json!({"a": "1"}));
    let second = job["id"].as_str().unwrap();
    let request = world.store.get(second).await.unwrap().unwrap().body.request.clone();
    assert_eq!((request.instructions.as_str(), request.media.width), ("two blue cups", Some(512)));
    assert_eq!((request.output_path, request.limits.max_cost_usd), (None, Some("0.5".parse().unwrap())));
    let old = world.get(&format!("/v1/jobs/{first}")).await.json();
    assert_eq!((&old["rerun_by"], &old["state"]), (&json!(second), &json!("queued")));
    for id in [&first, second] {
        assert!(events(&world, id).await.iter().any(|event| event["kind"] == "operator"), "{id}");
    }
    let again = world.post_as(&path, &[("idempotency-key", "r")], &body).await;
    assert_eq!((again.status.as_u16(), again.json()["id"].as_str()), (200, Some(second)));
}
