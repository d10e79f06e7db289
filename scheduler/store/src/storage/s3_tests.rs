//! The S3 client against a bucket that lives in this process and speaks just enough of the protocol.

use super::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[derive(Default)]
struct Bucket {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Parts of unfinished uploads, by number.
    parts: Mutex<BTreeMap<u32, Vec<u8>>>,
    /// Paths and `Authorization` headers as they came.
    seen: Mutex<Vec<(String, String)>>,
    refuse: std::sync::atomic::AtomicBool,
}

async fn bucket() -> (Arc<Bucket>, ArtifactStorage) {
    let bucket = Arc::new(Bucket::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serving = Arc::clone(&bucket);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, Arc::clone(&serving)));
        }
    });
    let env = move |name: &str| match name {
        "AWS_ACCESS_KEY_ID" => Some("sandbox-access-id".to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some("sandbox-secret-value".to_owned()),
        "AWS_REGION" => Some("eu-west-1".to_owned()),
        "AWS_ENDPOINT_URL" => Some(endpoint.clone()),
        "AWS_ALLOW_HTTP" => Some("true".to_owned()),
        _ => None,
    };
    let storage = ArtifactStorage::open("s3://shelf/deep/prefix", env).unwrap();
    (bucket, storage)
}

async fn serve(socket: TcpStream, bucket: Arc<Bucket>) -> io::Result<()> {
    let mut socket = BufReader::new(socket);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if socket.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_owned());
        }
        let header = |name: &str| {
            let pair = head.iter().skip(1).filter_map(|line| line.split_once(':'));
            pair.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
        };
        let mut body = vec![0; header("content-length").and_then(|len| len.parse().ok()).unwrap_or(0)];
        socket.read_exact(&mut body).await?;
        let mut words = head[0].split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        bucket.seen.lock().unwrap().push((target.to_owned(), header("authorization").unwrap_or_default()));
        let (status, extra, answer) = bucket.answer(method, target, header("range"), body);
        let length = if method == "HEAD" { extra.len() } else { answer.len() };
        let fields = if method == "HEAD" { String::new() } else { extra };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: \"e\"\r\n\
             Last-Modified: Mon, 30 Nov 2026 12:00:00 GMT\r\n{fields}\r\n"
        );
        socket.write_all(head.as_bytes()).await?;
        if method != "HEAD" {
            socket.write_all(&answer).await?;
        }
        socket.flush().await?;
    }
}

impl Bucket {
    /// Status, further header lines, body. For HEAD the header lines' length stands for the object's.
    fn answer(&self, method: &str, target: &str, range: Option<String>, body: Vec<u8>) -> (&str, String, Vec<u8>) {
        if self.refuse.load(std::sync::atomic::Ordering::SeqCst) {
            let echo = b"<Error><Code>AccessDenied</Code><Message>not with sandbox-secret-value</Message></Error>";
            return ("403 Forbidden", String::new(), echo.to_vec());
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut objects = self.objects.lock().unwrap();
        let part = query.split('&').find_map(|pair| pair.strip_prefix("partNumber=")).and_then(|n| n.parse().ok());
        match (method, part) {
            ("PUT", Some(part)) => {
                self.parts.lock().unwrap().insert(part, body);
                ("200 OK", String::new(), Vec::new())
            }
            ("PUT", None) => {
                objects.insert(path.to_owned(), body);
                ("200 OK", String::new(), Vec::new())
            }
            ("POST", _) if query.contains("uploads") => {
                let xml = "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>";
                ("200 OK", String::new(), xml.into())
            }
            ("POST", _) => {
                let whole = std::mem::take(&mut *self.parts.lock().unwrap()).into_values().flatten().collect();
                objects.insert(path.to_owned(), whole);
                let xml = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>";
                ("200 OK", String::new(), xml.into())
            }
            ("DELETE", _) => {
                objects.remove(path);
                ("204 No Content", String::new(), Vec::new())
            }
            _ => match objects.get(path) {
                None => ("404 Not Found", String::new(), b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
                Some(object) if method == "HEAD" => ("200 OK", " ".repeat(object.len()), Vec::new()),
                Some(object) => match range.and_then(|range| {
                    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
                    Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?.min(object.len() - 1)))
                }) {
                    Some((from, to)) => {
                        let field = format!("Content-Range: bytes {from}-{to}/{}\r\n", object.len());
                        ("206 Partial Content", field, object[from..=to].to_vec())
                    }
                    None => ("200 OK", String::new(), object.clone()),
                },
            },
        }
    }
}

#[tokio::test]
async fn a_bucket_is_used_below_its_prefix_with_signed_requests() {
    let (bucket, storage) = bucket().await;
    storage.check().await.unwrap();
    storage.put_bytes("acme/a b.png", Bytes::from_static(b"0123456789")).await.unwrap();
    assert_eq!(storage.head("acme/a b.png").await.unwrap(), 10);
    let read = storage.read("acme/a b.png", Some(2..100)).await.unwrap();
    assert_eq!((read.total, read.range.clone()), (10, 2..10));
    let chunks: Vec<Bytes> = read.stream.try_collect().await.unwrap();
    assert_eq!(chunks.concat(), b"23456789");
    assert!(matches!(storage.read("acme/none", None).await, Err(StorageError::NotFound { .. })));
    assert!(matches!(storage.head("acme/none").await, Err(StorageError::NotFound { .. })));
    storage.delete("acme/a b.png").await.unwrap();
    storage.delete("acme/a b.png").await.unwrap();
    assert!(bucket.objects.lock().unwrap().is_empty(), "the check leaves nothing behind");
    for (path, authorization) in bucket.seen.lock().unwrap().iter() {
        assert!(path.starts_with("/shelf/deep/prefix/"), "{path}");
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=sandbox-access-id/"), "{authorization}");
        assert!(!authorization.contains("sandbox-secret-value"));
    }
}

#[tokio::test]
async fn a_large_file_goes_to_a_bucket_in_parts() {
    let (bucket, storage) = bucket().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("big");
    let body: Vec<u8> = (0..SINGLE_PUT_MAX + 1).map(|n| (n % 253) as u8).collect();
    fs::write(&file, &body).unwrap();
    storage.put_file("acme/big.bin", &file).await.unwrap();
    assert!(bucket.objects.lock().unwrap()["/shelf/deep/prefix/acme/big.bin"] == body);
    let parts = bucket.seen.lock().unwrap().iter().filter(|(path, _)| path.contains("partNumber=")).count();
    assert_eq!(parts, 3, "16 MiB and a byte in parts of 8 MiB");
}

#[tokio::test]
async fn a_bucket_that_refuses_says_so_without_the_secret() {
    let (bucket, storage) = bucket().await;
    bucket.refuse.store(true, std::sync::atomic::Ordering::SeqCst);
    for error in [storage.check().await.unwrap_err(), storage.put_bytes("t/a", Bytes::new()).await.unwrap_err()] {
        assert!(matches!(error, StorageError::Unwritable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("s3://shelf/deep/prefix") && !text.contains("sandbox-secret-value"), "{text}");
    }
}
