use super::*;
use futures::stream;

fn area(max: u64) -> (tempfile::TempDir, Staging) {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::new(&dir.path().join("deep/staging"), max).unwrap();
    (dir, staging)
}

fn files(staging: &Staging) -> usize {
    fs::read_dir(&staging.inner.folder).unwrap().count()
}

/// What `sha256sum` says.
fn sha256sum(path: &Path) -> String {
    let output = std::process::Command::new("sha256sum").arg(path).output().expect("coreutils");
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

#[tokio::test]
async fn bytes_are_counted_and_hashed_whatever_the_pieces() {
    let (_dir, staging) = area(10 << 20);
    let mut empty = staging.writer().unwrap();
    empty.write(b"").await.unwrap();
    let empty = empty.finish().await.unwrap();
    // FIPS 180-4 of nothing and of "abc".
    assert_eq!(empty.sha256(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    let mut writer = staging.writer().unwrap();
    writer.write_all(stream::iter(["a", "b", "c"].map(Ok::<_, io::Error>))).await.unwrap().unwrap();
    let abc = writer.finish().await.unwrap();
    assert_eq!(abc.sha256(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let body: Vec<u8> = (0..3_000_001u32).map(|n| (n % 249) as u8).collect();
    let mut writer = staging.writer().unwrap();
    for piece in body.chunks(77_777) {
        writer.write(piece).await.unwrap();
    }
    let file = writer.finish().await.unwrap();
    assert_eq!(file.bytes(), 3_000_001);
    assert!(fs::read(file.path()).unwrap() == body);
    assert_eq!(file.sha256(), sha256sum(file.path()));
}

#[tokio::test]
async fn a_cut_download_goes_on_where_it_stopped_or_begins_anew() {
    let (_dir, staging) = area(10 << 20);
    let body: Vec<u8> = (0..500_000u32).map(|n| (n % 241) as u8).collect();
    let mut writer = staging.writer().unwrap();
    let cut = stream::iter([Ok(&body[..300_000]), Err(io::Error::other("cut"))]);
    assert!(writer.write_all(cut).await.unwrap().is_err());
    assert_eq!(writer.bytes(), 300_000);
    writer.write(&body[300_000..]).await.unwrap();
    let whole = writer.finish().await.unwrap();
    assert_eq!(whole.sha256(), sha256sum(whole.path()));

    let mut writer = staging.writer().unwrap();
    writer.write(&body[..200_001]).await.unwrap();
    let token = writer.leave().await.unwrap();
    let mut writer = staging.resume(&token).await.unwrap();
    assert_eq!(writer.bytes(), 200_001);
    writer.write(&body[200_001..]).await.unwrap();
    assert_eq!(writer.finish().await.unwrap().sha256(), whole.sha256(), "the hash goes on in another process");

    let mut writer = staging.writer().unwrap();
    writer.write(&[7; 400_000]).await.unwrap();
    writer.restart().await.unwrap();
    assert_eq!(writer.bytes(), 0);
    writer.write(&body).await.unwrap();
    let again = writer.finish().await.unwrap();
    assert_eq!((again.sha256(), again.bytes()), (whole.sha256(), 500_000));
    assert!(fs::read(again.path()).unwrap() == body);
}

#[tokio::test]
async fn an_output_past_the_limit_is_refused_while_it_streams() {
    let (_dir, staging) = area(1000);
    let mut writer = staging.writer().unwrap();
    writer.write(&[0; 1000]).await.unwrap();
    let error = writer.write(&[0]).await.unwrap_err();
    assert!(matches!(error, StagingError::TooLarge { max: 1000 }));
    let failure = error.failure();
    assert_eq!((failure.code.as_str(), failure.retry), ("output_too_large", Retry::Never));
    drop(writer);
    assert_eq!(files(&staging), 0);
}

#[tokio::test]
async fn whatever_is_dropped_leaves_nothing_behind() {
    let (_dir, staging) = area(10 << 20);
    let mut writer = staging.writer().unwrap();
    writer.write(&[1; 300_000]).await.unwrap();
    drop(writer);
    let mut writer = staging.writer().unwrap();
    writer.write(b"x").await.unwrap();
    drop(writer.finish().await.unwrap());
    assert_eq!(files(&staging), 0);
}

#[tokio::test]
async fn held_files_wait_for_their_step_even_across_a_restart() {
    let (dir, staging) = area(10 << 20);
    let mut writer = staging.writer().unwrap();
    writer.write(b"abc").await.unwrap();
    let token = staging.hold(writer.finish().await.unwrap()).unwrap();
    // A process that died: its memory is gone, the file is not.
    std::mem::forget(staging.inner.held.lock().unwrap().remove(&token));
    let reborn = Staging::new(&dir.path().join("deep/staging"), 10 << 20).unwrap();
    let file = reborn.take(&token).await.unwrap();
    assert_eq!(file.sha256(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    drop(file);
    for token in [token.as_str(), "../../../etc/passwd", "", "zz"] {
        assert!(matches!(reborn.take(token).await, Err(StagingError::Unknown { .. })), "{token}");
        assert!(matches!(reborn.resume(token).await, Err(StagingError::Unknown { .. })), "{token}");
    }
}

#[tokio::test]
async fn the_sweep_takes_old_orphans_and_nothing_else() {
    let (dir, staging) = area(10 << 20);
    let folder = dir.path().join("deep/staging");
    let now = 1_800_000_000_000i64;
    let at = |ms: i64| std::time::UNIX_EPOCH + Duration::from_millis(ms as u64);
    let age = |path: &Path, ms: i64| File::options().write(true).open(path).unwrap().set_modified(at(ms)).unwrap();
    for (name, changed) in [
        ("old.part", now - 7_200_000),
        ("young.part", now - 60_000),
        ("old.staged", now - 7_200_000),
        ("note.txt", 0),
        ("future.part", now + 60_000),
    ] {
        fs::write(folder.join(name), "x").unwrap();
        age(&folder.join(name), changed);
    }
    let mut writer = staging.writer().unwrap();
    writer.write(b"held").await.unwrap();
    let token = staging.hold(writer.finish().await.unwrap()).unwrap();
    age(&folder.join(format!("{token}.staged")), 0);
    assert_eq!(staging.sweep(Duration::from_secs(3600), now).unwrap(), 2);
    let left: Vec<bool> = ["old.part", "old.staged", "young.part", "note.txt", "future.part"]
        .map(|name| folder.join(name).exists())
        .to_vec();
    assert_eq!(left, [false, false, true, true, true]);
    assert_eq!(staging.take(&token).await.unwrap().bytes(), 4);
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("taken"), "").unwrap();
    let error = Staging::new(&dir.path().join("taken/below"), 1).unwrap_err();
    assert!(error.to_string().contains("taken/below"), "{error}");
    let failure = error.failure();
    assert_eq!((failure.code.as_str(), failure.retry), ("storage_unwritable", Retry::Backoff));
}
