//! The credential turns up nowhere.

use crate::support::Setup;
use crate::world::World;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use longhaul_registry::VendorFile;
use rusqlite::types::ValueRef;
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// With characters that base64 and URLs write differently.
const CANARY: &str = "sandbox-C4N4RY/7+q=51~f0c2";

/// RFC 3986: the unreserved characters may stand as they are.
const USUAL: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'~');

pub async fn canary(file: Arc<VendorFile>) {
    let setup = Setup::new().env("RUST_LOG", "trace");
    let key = setup.folder().join("key");
    std::fs::write(&key, format!("{CANARY}\n")).unwrap();
    let world = World::with(&file, 1, setup, "").await;
    let mut ids = Vec::new();
    // A vendor that repeats the key in its words, at a refusal and at a fault; then an ordinary job.
    let echo = json!({"error": format!("invalid key {CANARY}"), "detail": format!("Bearer {CANARY} is not known")});
    world.fault(json!({"route": "start", "fault": "5xx", "status": 400, "body": echo.clone()})).await;
    ids.push(world.server.submit(world.job("")).await);
    world.server.job_in(&ids[0], &["failed"]).await;
    let headers = json!({"x-echo": CANARY, "retry-after": "1"});
    world.fault(json!({"route": "any", "fault": "429", "body": echo, "headers": headers})).await;
    let job = world.succeed(world.job("")).await;
    ids.push(job["id"].as_str().unwrap().to_owned());

    let mut told = Told::default();
    for id in &ids {
        told.add("a job", world.server.job(id).await.to_string());
        told.add("a history", json!(world.server.events_with_exchanges(id).await).to_string());
    }
    for path in ["/v1/jobs", "/v1/connectors", "/v1/usage?by=vendor", "/v1/vendors"] {
        told.add(path, world.server.get(path).await.to_string());
    }
    told.add("metrics", world.server.metrics().await);
    told.add("the log", world.server.log_text());
    told.rows(&world.setup.folder().join("longhaul.db"));
    told.files(world.setup.folder(), &key);

    // The nets have the right mesh: what must be there is found in each of them.
    let words = job["vendor_job_id"].as_str().unwrap();
    for source in ["a job", "a history", "table jobs", "table exchange_texts"] {
        assert!(told.has(source, words), "{words} stands in {source}");
    }
    assert!(told.has("the log", &file.vendor) && told.has("metrics", &file.vendor));
    let artifact = job["artifacts"][0]["name"].as_str().unwrap();
    assert!(told.0.iter().any(|(source, bytes)| source.ends_with(artifact) && !bytes.is_empty()), "{artifact}");
    assert!(spellings().iter().all(|word| find(word, word)), "every spelling is found where it stands");

    for (source, bytes) in &told.0 {
        for word in spellings() {
            assert!(!find(bytes, &word), "{source} holds the key as {:?}", String::from_utf8_lossy(&word));
        }
    }
    world.check_leaks();
}

/// The key as it is, URL-encoded, and in base64 at each of the three places it can have in a longer text.
fn spellings() -> Vec<Vec<u8>> {
    let encoded = percent_encoding::utf8_percent_encode(CANARY, percent_encoding::NON_ALPHANUMERIC).to_string();
    let mut all = vec![CANARY.as_bytes().to_vec(), encoded.to_ascii_lowercase().into_bytes(), encoded.into_bytes()];
    all.push(percent_encoding::utf8_percent_encode(CANARY, USUAL).to_string().into_bytes());
    for before in 0..3 {
        let text = [vec![b'.'; before], CANARY.as_bytes().to_vec()].concat();
        for code in [STANDARD_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
            // The first and the last characters hang on what stands beside the key.
            let inner = code.get(before.div_ceil(3) * 4..code.len() - 2).unwrap();
            all.push(inner.as_bytes().to_vec());
        }
    }
    all
}

fn find(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// Everything that was written, by where it stands.
#[derive(Default)]
struct Told(Vec<(String, Vec<u8>)>);

impl Told {
    fn add(&mut self, source: &str, text: impl Into<Vec<u8>>) {
        self.0.push((source.to_owned(), text.into()));
    }

    fn has(&self, source: &str, word: &str) -> bool {
        self.0.iter().any(|(name, bytes)| name == source && find(bytes, word.as_bytes()))
    }

    /// Every value of every row of every table; packed texts unpacked.
    fn rows(&mut self, database: &Path) {
        let db = rusqlite::Connection::open(database).unwrap();
        let mut names = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").unwrap();
        let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            let mut query = db.prepare(&format!("SELECT * FROM \"{name}\"")).unwrap();
            let columns = query.column_count();
            let mut rows = query.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                for column in 0..columns {
                    match row.get_ref(column).unwrap() {
                        ValueRef::Text(text) => self.add(&format!("table {name}"), text),
                        ValueRef::Blob(blob) => {
                            self.add(&format!("table {name}"), blob);
                            let mut text = Vec::new();
                            if flate2::read::DeflateDecoder::new(blob).read_to_end(&mut text).is_ok() {
                                self.add(&format!("table {name}"), text);
                            }
                        }
                        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => {}
                    }
                }
            }
        }
    }

    /// Every file but the key's own.
    fn files(&mut self, folder: &Path, key: &Path) {
        let entries: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path != key).collect();
        for path in entries {
            if path.is_dir() {
                self.files(&path, key);
            } else {
                self.add(&path.display().to_string(), std::fs::read(&path).unwrap());
            }
        }
    }
}
