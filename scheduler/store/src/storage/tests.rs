use super::*;
use object_store::memory::InMemory;
use std::os::unix::fs::{PermissionsExt, symlink};
use tempfile::TempDir;

fn folder() -> (TempDir, ArtifactStorage) {
    let dir = tempfile::tempdir().unwrap();
    let storage = ArtifactStorage::open(&format!("file:{}/deep/artifacts", dir.path().display()), |_| None).unwrap();
    (dir, storage)
}

fn bucket() -> ArtifactStorage {
    let prefix = ObjectPath::parse("a/prefix").unwrap();
    ArtifactStorage::build(Box::new(InMemory::new()), prefix, None, "memory".to_owned(), Vec::new())
}

async fn bytes_of(storage: &ArtifactStorage, key: &str, range: Option<Range<u64>>) -> (u64, Range<u64>, Vec<u8>) {
    let read = storage.read(key, range).await.unwrap();
    let chunks: Vec<Bytes> = read.stream.try_collect().await.unwrap();
    (read.total, read.range, chunks.concat())
}

#[tokio::test]
async fn a_folder_and_a_bucket_keep_the_same_promises() {
    let (_dir, folder) = folder();
    for storage in [folder, bucket()] {
        let key = "acme/assets/hero shot #1 ü.png";
        storage.check().await.unwrap();
        assert!(matches!(storage.head(key).await, Err(StorageError::NotFound { .. })));
        assert!(matches!(storage.read(key, None).await, Err(StorageError::NotFound { .. })));
        storage.put_bytes(key, Bytes::from_static(b"0123456789")).await.unwrap();
        assert_eq!(storage.head(key).await.unwrap(), 10);
        assert_eq!(bytes_of(&storage, key, None).await, (10, 0..10, b"0123456789".to_vec()));
        assert_eq!(bytes_of(&storage, key, Some(3..5)).await, (10, 3..5, b"34".to_vec()));
        assert_eq!(bytes_of(&storage, key, Some(8..500)).await, (10, 8..10, b"89".to_vec()));
        for bad in [10..11, 4..4] {
            assert!(matches!(storage.read(key, Some(bad)).await, Err(StorageError::Range { total: 10, .. })));
        }
        storage.put_bytes(key, Bytes::new()).await.unwrap();
        assert_eq!(bytes_of(&storage, key, None).await, (0, 0..0, vec![]));
        storage.delete(key).await.unwrap();
        storage.delete(key).await.unwrap();
        assert!(matches!(storage.head(key).await, Err(StorageError::NotFound { .. })));
    }
}

#[tokio::test]
async fn a_folder_tells_the_names_right_below_it() {
    let (_dir, folder) = folder();
    for storage in [folder, bucket()] {
        assert!(storage.names("_archive/2026/11/30").await.unwrap().is_empty(), "where nothing is, nothing is told");
        for name in ["b.json", "a.json", "deeper/c.json", ".hidden"] {
            storage.put_bytes(&format!("_archive/2026/11/30/{name}"), Bytes::from_static(b"1")).await.unwrap();
        }
        storage.put_bytes("_archive/2026/11/3/d.json", Bytes::from_static(b"1")).await.unwrap();
        assert_eq!(storage.names("_archive/2026/11/30").await.unwrap(), ["a.json", "b.json"]);
        assert_eq!(storage.names("_archive/2026/11/3").await.unwrap(), ["d.json"]);
        assert!(storage.names("_archive/../secret").await.is_err());
    }
}

#[tokio::test]
async fn a_large_file_goes_up_in_parts_and_comes_back_whole() {
    let (dir, folder) = folder();
    let file = dir.path().join("staged");
    let body: Vec<u8> = (0..SINGLE_PUT_MAX + 12_345).map(|n| (n % 251) as u8).collect();
    std::fs::write(&file, &body).unwrap();
    for storage in [folder, bucket()] {
        storage.put_file("t/big.bin", &file).await.unwrap();
        // A repeat of the step places the same file again.
        storage.put_file("t/big.bin", &file).await.unwrap();
        let (total, _, got) = bytes_of(&storage, "t/big.bin", None).await;
        assert_eq!(total, body.len() as u64);
        assert!(got == body);
        let (_, range, got) = bytes_of(&storage, "t/big.bin", Some(1_000_000..9_000_001)).await;
        assert_eq!(range, 1_000_000..9_000_001);
        assert!(got == body[1_000_000..9_000_001]);
    }
    std::fs::remove_file(&file).unwrap();
    let storage = ArtifactStorage::open(&format!("file:{}/deep/artifacts", dir.path().display()), |_| None).unwrap();
    assert_eq!(storage.head("t/big.bin").await.unwrap(), body.len() as u64);
    let names: Vec<_> =
        std::fs::read_dir(dir.path().join("deep/artifacts/t")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["big.bin"], "no temporary name is left behind");
}

#[tokio::test]
async fn a_placed_file_replaces_the_old_one_without_touching_its_bytes() {
    let (dir, storage) = folder();
    for text in ["old", "newer"] {
        let file = dir.path().join(text);
        std::fs::write(&file, text).unwrap();
        if text == "newer" {
            let old = storage.read("t/a.txt", None).await.unwrap();
            storage.put_file("t/a.txt", &file).await.unwrap();
            let chunks: Vec<Bytes> = old.stream.try_collect().await.unwrap();
            assert_eq!(chunks.concat(), b"old", "a reader keeps what it opened");
        } else {
            storage.put_file("t/a.txt", &file).await.unwrap();
        }
    }
    assert_eq!(bytes_of(&storage, "t/a.txt", None).await.2, b"newer");
    assert_eq!(std::fs::read_to_string(dir.path().join("old")).unwrap(), "old");
}

#[tokio::test]
async fn keys_that_could_climb_are_refused_everywhere() {
    let (_dir, folder) = folder();
    let long = format!("t/{}", "x".repeat(201));
    for storage in [folder, bucket()] {
        for key in
            ["", "t", "/t/a", "t/../a", "../a/b", "t/./a", "t//a", "t/a/", "t\\a/b", "t/a\0b", "t/a\nb", "t/a#7", &long]
        {
            assert!(matches!(storage.put_bytes(key, Bytes::new()).await, Err(StorageError::Key { .. })), "{key:?}");
            assert!(matches!(storage.read(key, None).await, Err(StorageError::Key { .. })), "{key:?}");
            assert!(matches!(storage.head(key).await, Err(StorageError::Key { .. })), "{key:?}");
            assert!(matches!(storage.delete(key).await, Err(StorageError::Key { .. })), "{key:?}");
            assert!(matches!(storage.put_file(key, Path::new("/x")).await, Err(StorageError::Key { .. })), "{key:?}");
        }
    }
}

#[tokio::test]
async fn links_out_of_the_folder_are_not_followed() {
    let (dir, storage) = folder();
    let root = dir.path().join("deep/artifacts");
    let outside = dir.path().join("outside");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    std::fs::create_dir_all(root.join("t")).unwrap();
    symlink(&outside, root.join("t/out")).unwrap();
    symlink(outside.join("secret"), root.join("t/file")).unwrap();
    for key in ["t/out/secret", "t/file"] {
        assert!(matches!(storage.read(key, None).await, Err(StorageError::Key { .. })), "{key}");
        assert!(matches!(storage.head(key).await, Err(StorageError::Key { .. })), "{key}");
    }
    for key in ["t/out/new", "t/out/deeper/new"] {
        assert!(matches!(storage.put_bytes(key, Bytes::new()).await, Err(StorageError::Key { .. })), "{key}");
    }
    storage.put_bytes("t/file", Bytes::from_static(b"ours")).await.unwrap();
    assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "secret", "the link itself was replaced");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

#[tokio::test]
async fn a_folder_and_a_file_do_not_overwrite_each_other() {
    let (_dir, storage) = folder();
    storage.put_bytes("t/a/b", Bytes::from_static(b"b")).await.unwrap();
    assert!(matches!(storage.put_bytes("t/a", Bytes::new()).await, Err(StorageError::Key { .. })));
    assert!(matches!(storage.put_bytes("t/a/b/c", Bytes::new()).await, Err(StorageError::Key { .. })));
    assert!(matches!(storage.head("t/a/b/c").await, Err(StorageError::NotFound { .. })));
    assert!(matches!(storage.read("t/a", None).await, Err(StorageError::NotFound { .. })));
}

#[test]
fn an_unusable_folder_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("taken");
    std::fs::write(&file, "").unwrap();
    let url = format!("file:{}/below", file.display());
    let error = ArtifactStorage::open(&url, |_| None).unwrap_err();
    assert!(matches!(error, StorageError::Unwritable { .. }));
    assert!(error.to_string().contains(&format!("{}/below", file.display())), "{error}");

    let locked = dir.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).unwrap();
    let writable_all_the_same = std::fs::write(locked.join("probe"), "").is_ok();
    let opened = ArtifactStorage::open(&format!("file:{}", locked.display()), |_| None);
    // Root writes everywhere: then the folder works, and opening it must too.
    assert_eq!(opened.is_ok(), writable_all_the_same);
}

#[test]
fn urls_that_cannot_work_say_why() {
    let open = |url| ArtifactStorage::open(url, |_| None).unwrap_err().to_string();
    assert!(open("ftp://x").contains("file:, s3://, az:// or gs://"));
    assert!(open("artifacts").contains("file:, s3://, az:// or gs://"));
    assert!(open("file:").contains("no folder"));
    assert!(open("file://host/x").contains("no host"));
    assert!(open("s3://").contains("no bucket"));
    let error = open("s3://id:sandbox-password@bucket/x?sig=sandbox-signature");
    assert!(!error.contains("sandbox-password") && !error.contains("sandbox-signature"), "{error}");
}

#[test]
fn buckets_open_with_what_the_lookup_gives_and_keep_it_quiet() {
    let env = |name: &str| match name {
        "AWS_ACCESS_KEY_ID" => Some("sandbox-access-id".to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some("sandbox-secret-value".to_owned()),
        "AWS_REGION" => Some("eu-west-1".to_owned()),
        "AZURE_STORAGE_ACCOUNT_NAME" => Some("account".to_owned()),
        "AZURE_STORAGE_ACCOUNT_KEY" => Some("c2FuZGJveA==".to_owned()),
        _ => None,
    };
    for url in ["s3://bucket/prefix", "az://container/prefix"] {
        let storage = ArtifactStorage::open(url, env).unwrap();
        assert_eq!(storage.place(), url);
        assert_eq!(storage.inner.prefix.as_ref(), "prefix");
        assert!(!format!("{storage:?}").contains("sandbox-secret-value"));
        let error = storage.unavailable("said sandbox-secret-value and c2FuZGJveA==").to_string();
        assert!(
            !error.contains(if url.starts_with("s3") { "sandbox-secret-value" } else { "c2FuZGJveA==" }),
            "{error}"
        );
    }
}
