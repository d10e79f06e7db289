//! A process that dies in the middle: what it was told is there.

use super::*;
use crate::conformance::{event, into};
use crate::{Committed, JobState, Transition};
use longhaul_registry::Step;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Tells the test that it is the half to be killed.
const CHILD: &str = "LONGHAUL_TEST_TO_BE_KILLED";

/// The child's half: it moves jobs on for ever and prints what was acknowledged, in a folder of its own.
async fn child() {
    let store = open(Path::new("longhaul.db")).unwrap();
    let mut round = 0_u64;
    loop {
        store.submit((0..5).map(|at| submission(&format!("job_{round}_{at}"))).collect()).await.unwrap();
        let claim = store.claim("w", 50, Duration::from_secs(60)).await.unwrap();
        let commits = claim.jobs.iter().map(|claimed| {
            let mut step = Transition::to(into(&claimed.job, JobState::Running, Some((Step::Poll, 0))));
            step.events = vec![event("progress"), event("message")];
            store.commit(&claimed.lease, claimed.rev, step)
        });
        for committed in futures::future::join_all(commits).await {
            let Committed::Done(job, rev) = committed.unwrap() else { panic!() };
            writeln!(std::io::stdout(), "acknowledged {} {rev} {}", job.id, job.seq).unwrap();
        }
        round += 1;
    }
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "how the test knows which half it is")]
async fn what_was_acknowledged_survives_a_kill() {
    if std::env::var(CHILD).is_ok() {
        return child().await;
    }
    for lines in [1, 57, 211] {
        let (folder, file) = folder();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sqlite::tests::kill::what_was_acknowledged_survives_a_kill", "--nocapture"])
            .env(CHILD, "1")
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let mut read = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        // The test runner's own words may share the first line.
        let mut note = |line: &str| {
            let Some((_, told)) = line.split_once("acknowledged ") else { return false };
            let words: Vec<_> = told.split(' ').collect();
            acknowledged.insert(words[0].to_owned(), (words[1].parse().unwrap(), words[2].parse().unwrap()));
            true
        };
        while seen < lines {
            seen += usize::from(note(&read.next().unwrap().unwrap()));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What was still in the pipe was acknowledged too; a torn last line was not read whole.
        let rest: Vec<String> = read.map_while(Result::ok).collect();
        for line in rest.iter().take(rest.len().saturating_sub(1)) {
            note(line);
        }
        assert!(acknowledged.len() >= lines.min(5));

        let store = open(&file).unwrap();
        for (id, (rev, seq)) in &acknowledged {
            let record = store.get(id).await.unwrap().unwrap();
            assert!(record.rev >= *rev && record.job.seq >= *seq, "{id}: {record:?}");
            let events = store.events(id, 0, 10_000).await.unwrap();
            let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
            assert_eq!(numbers, (1..=record.job.seq).collect::<Vec<_>>());
            // One event at submit and two a commit, revisions from 1: none half applied.
            assert_eq!(record.job.seq, 1 + 2 * (record.rev - 1));
        }
        store.check().await.unwrap();
        assert!(store.places().await.unwrap().iter().all(|(_, kept, counted)| kept == counted));
    }
}
