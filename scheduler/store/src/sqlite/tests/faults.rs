//! Files that cannot be used, and disks that fill up.

use super::*;
use crate::{Submitted, TokenRow, Transition};

fn text(result: StoreResult<SqliteStore>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test]
async fn a_second_process_is_refused_and_doctor_is_not() {
    let (_folder, file) = folder();
    let owner = open(&file).unwrap();
    assert!(matches!(open(&file), Err(StoreError::InUse(name)) if name == file.display().to_string()));
    // The same file by another name is the same file.
    let link = file.with_file_name("link.db");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert!(matches!(open(&link), Err(StoreError::InUse(_))));

    owner.submit(vec![submission("job_1")]).await.unwrap();
    let beside = SqliteStore::open_shared(&file, SqliteOptions::default(), clock()).unwrap();
    assert_eq!(beside.get("job_1").await.unwrap().unwrap().job.id, "job_1");
    let token = TokenRow {
        id: "tok_1".into(),
        hash: "h".into(),
        role: "admin".into(),
        tenant: None,
        name: None,
        created_ms: 1,
        revoked_ms: None,
    };
    beside.add_token(token.clone()).await.unwrap();
    assert_eq!(owner.tokens().await.unwrap(), [token]);
    for refused in [
        beside.submit(vec![submission("job_2")]).await.map(drop),
        beside.claim("w", 1, Duration::from_secs(1)).await.map(drop),
        beside.apply("job_1", 1, Transition::to(job("job_1"))).await.map(drop),
        beside.remove(&[], 0).await.map(drop),
        beside.load(Vec::new()).await,
    ] {
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
    // What the owner does meanwhile is seen.
    owner.submit(vec![submission("job_3")]).await.unwrap();
    assert_eq!(beside.counts().await.unwrap(), [("flux".into(), crate::JobState::Queued, 2)]);
    beside.check().await.unwrap();
    owner.close().await;
    drop(open(&file).unwrap());
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let (_folder, file) = folder();
    let store = open(&file).unwrap();
    store.close().await;
    store.close().await;
    assert!(matches!(store.submit(vec![submission("job_1")]).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.get("job_1").await, Err(StoreError::Unavailable(_))));
}

#[test]
fn places_that_cannot_be_used_are_named() {
    let (folder, file) = folder();
    let missing = folder.path().join("none/longhaul.db");
    let said = text(open(&missing));
    assert!(said.contains(&missing.display().to_string()) && said.contains("create it"), "{said}");
    let said = text(open(folder.path()));
    assert!(said.contains("is a folder"), "{said}");
    std::fs::write(&file, "").unwrap();
    let said = text(open(&file.join("longhaul.db")));
    assert!(said.contains("its folder") && said.contains("create it or name another"), "{said}");
    // The kernel's own folder takes no files from anybody, root included.
    let unwritable = Path::new("/proc/longhaul.db");
    let opened = open(unwritable);
    assert!(matches!(opened, Err(StoreError::Full(_))), "{opened:?}");
    assert!(text(opened).contains("/proc/longhaul.db"));
}

#[tokio::test]
async fn damaged_and_foreign_files_are_refused_untouched() {
    let (_folder, file) = folder();
    std::fs::write(&file, "this is a letter to my aunt, and longer than the header of a database is. ".repeat(90))
        .unwrap();
    let before = std::fs::read(&file).unwrap();
    assert!(matches!(open(&file), Err(StoreError::Corrupt(_))), "{:?}", open(&file));
    assert_eq!(std::fs::read(&file).unwrap(), before);

    let foreign = file.with_file_name("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
    assert!(text(open(&foreign)).contains("another program's database"));

    let newer = file.with_file_name("newer.db");
    drop(open(&newer).unwrap());
    let conn = rusqlite::Connection::open(&newer).unwrap();
    conn.execute_batch("INSERT INTO schema_version VALUES (99, 0)").unwrap();
    drop(conn);
    let said = text(open(&newer));
    assert!(said.contains("schema 99, this one knows 4"), "{said}");

    let torn = file.with_file_name("torn.db");
    let store = open(&torn).unwrap();
    store.submit((0..500).map(|at| submission(&format!("job_{at}"))).collect()).await.unwrap();
    store.close().await;
    drop(store);
    let mut bytes = std::fs::read(&torn).unwrap();
    let (from, to) = (bytes.len() / 4, bytes.len() * 3 / 4);
    bytes[from..to].fill(0xa5);
    std::fs::write(&torn, bytes).unwrap();
    let opened = open(&torn);
    assert!(matches!(opened, Err(StoreError::Corrupt(_))), "{opened:?}");
    assert!(text(opened).contains("torn.db"));
}

#[tokio::test]
async fn a_full_disk_refuses_loses_nothing_and_recovers() {
    let (_folder, file) = folder();
    let options = SqliteOptions { max_pages: Some(120), ..SqliteOptions::default() };
    let store = SqliteStore::open(&file, options, clock()).unwrap();
    let mut taken = Vec::new();
    let full = loop {
        let id = format!("job_{}", taken.len());
        match store.submit(vec![submission(&id)]).await {
            Ok(_) => taken.push(id),
            Err(error) => break error,
        }
        assert!(taken.len() < 10_000, "it never fills up");
    };
    assert!(matches!(full, StoreError::Full(_)), "{full:?}");
    assert!(taken.len() > 20, "{}", taken.len());
    // Not there, not half there, and reads go on.
    let refused = format!("job_{}", taken.len());
    assert!(store.get(&refused).await.unwrap().is_none());
    let (listed, _) = store.list(&crate::JobFilter::default(), None, 10_000).await.unwrap();
    let mut listed: Vec<_> = listed.into_iter().map(|record| record.job.id).collect();
    listed.reverse();
    assert_eq!(listed, taken);
    assert_eq!(store.counts().await.unwrap()[0].2, taken.len() as u64);
    // Work that needs little room goes on, and a whole group is not spoilt by the one that needs much.
    let claim = store.claim("w", 40, Duration::from_secs(60)).await.unwrap();
    assert_eq!(claim.jobs.len(), taken.len().min(40));
    let prune = claim.jobs.iter().take(20).map(|claimed| {
        let job = crate::conformance::into(&claimed.job, crate::JobState::Succeeded, None);
        store.commit(&claimed.lease, claimed.rev, Transition::to(job))
    });
    for committed in futures::future::join_all(prune).await {
        assert!(matches!(committed.unwrap(), crate::Committed::Done(..)));
    }
    // Room is made: it recovers by itself.
    let later = store.now_ms().await.unwrap() + 1;
    let ended = store.ended(later, 100).await.unwrap();
    assert_eq!(store.remove(&ended, later).await.unwrap(), 20);
    assert!(matches!(store.submit(vec![submission(&refused)]).await.unwrap()[0], Submitted::New(_)));
    store.check().await.unwrap();
    assert!(store.places().await.unwrap().iter().all(|(_, kept, counted)| kept == counted));
}

#[tokio::test]
async fn one_bad_call_spoils_only_itself() {
    let (_folder, file) = folder();
    let store = open(&file).unwrap();
    store.submit(vec![submission("job_0")]).await.unwrap();
    // The same id twice is a fault of the caller; its neighbours in the group are not.
    let ids = ["job_1", "job_0", "job_2", "job_3", "job_0", "job_4"];
    let answers = futures::future::join_all(ids.map(|id| store.submit(vec![submission(id)]))).await;
    for (id, answer) in ids.iter().zip(answers) {
        match answer {
            Ok(taken) => assert!(*id != "job_0" && matches!(taken[0], Submitted::New(_))),
            Err(error) => assert!(*id == "job_0" && matches!(error, StoreError::Refused(_)), "{id}: {error}"),
        }
    }
    assert_eq!(store.counts().await.unwrap()[0].2, 5);
    assert_eq!(store.last_position().await.unwrap(), 5);
}

#[tokio::test]
async fn store_time_does_not_go_back_over_a_restart() {
    let (_folder, file) = folder();
    let clock = ManualClock::at(1_000_000);
    let store = SqliteStore::open(&file, SqliteOptions::default(), clock.clone()).unwrap();
    store.submit(vec![submission("job_1")]).await.unwrap();
    drop(store);
    clock.step_wall(-500_000);
    let store = SqliteStore::open(&file, SqliteOptions::default(), clock).unwrap();
    assert_eq!(store.now_ms().await.unwrap(), 1_000_000);
    assert_eq!(store.claim("w", 1, Duration::from_secs(1)).await.unwrap().jobs.len(), 1);
}

#[tokio::test]
async fn a_copy_that_ended_early_cannot_be_opened() {
    let (_folder, file) = folder();
    let (_other, target) = folder();
    let store = open(&file).unwrap();
    store.submit(vec![submission("job_1")]).await.unwrap();
    let (records, cursor) = store.dump(None, 2).await.unwrap();
    assert!(cursor.is_some());
    let copy = open(&target).unwrap();
    copy.load(records).await.unwrap();
    copy.close().await;
    drop(copy);
    for opened in [open(&target), SqliteStore::open_shared(&target, SqliteOptions::default(), clock())] {
        assert!(matches!(&opened, Err(StoreError::Refused(why)) if why.contains("copy again")), "{opened:?}");
    }
    // What hangs on a job that is not there tells of a broken order, and nothing of the piece is kept.
    let fresh = open(&file.with_file_name("fresh.db")).unwrap();
    let (rest, _) = store.dump(cursor.as_deref(), 10).await.unwrap();
    assert!(matches!(fresh.load(rest).await, Err(StoreError::Refused(_))));
    assert_eq!(fresh.dump(None, 10).await.unwrap().0.len(), 1);
}

#[tokio::test]
async fn a_copy_that_differs_from_its_source_says_so_and_cannot_be_opened() {
    let (_folder, file) = folder();
    let (_other, target) = folder();
    let store = open(&file).unwrap();
    store.submit(vec![submission("job_1"), submission("job_2")]).await.unwrap();
    drop(open(&target).unwrap());
    // A target that alters one event as it is written.
    let conn = rusqlite::Connection::open(&target).unwrap();
    let alters = "CREATE TRIGGER alters AFTER INSERT ON events WHEN NEW.pos = 2
                  BEGIN UPDATE events SET at_ms = at_ms + 1 WHERE pos = 2; END";
    conn.execute_batch(alters).unwrap();
    drop(conn);
    let copy = open(&target).unwrap();
    let copied = crate::copy(&store, &copy, |_| {}).await.unwrap();
    assert!(!copied.agrees() && copied.from.count() == copied.to.count());
    let differs: Vec<_> =
        copied.from.kinds().into_iter().zip(copied.to.kinds()).filter(|(from, to)| from != to).collect();
    assert!(matches!(differs[..], [(("event", 2, _), ("event", 2, _))]), "{differs:?}");
    copy.close().await;
    drop(copy);
    assert!(matches!(open(&target), Err(StoreError::Refused(_))));
}
