//! What the whole-product tests stand on: the stand-ins in this process, and the real binary beside it.
//!
//! Nothing here sleeps for a fixed time to let something happen: it waits for a condition, looked at again and again,
//! within a bound.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its part"
)]

pub mod cluster;
pub mod fleet;
pub mod redis;

use longhaul_sandbox::{Books, Options, Request, Sandbox};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpSocket};
use tokio::process::{Child, Command};

/// The binary under test.
pub const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// A key that the stand-ins take; it must turn up in nothing that Longhaul writes.
pub const KEY: &str = "sandbox-CANARY-51f0c2";
/// How long anything may take before a test calls it stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// States that a job leaves only when told to.
pub const RESTS: [&str; 5] = ["succeeded", "failed", "cancelled", "limit_exceeded", "parked"];

/// The wall clock, in milliseconds since 1970.
pub fn now_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the vendors' wall clock")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(0)
}

/// An HTTP client of the tests' own.
pub fn http() -> reqwest::Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    #[expect(clippy::disallowed_methods, reason = "tests call loopback")]
    let builder = reqwest::Client::builder();
    builder.no_proxy().timeout(Duration::from_secs(90)).build().expect("a client")
}

/// Waits until a condition gives a value; panics with `what` after `PATIENCE`.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, look: impl FnMut() -> F) -> T {
    within(PATIENCE, what, look).await
}

/// The same with another bound.
pub async fn within<T, F: Future<Output = Option<T>>>(bound: Duration, what: &str, mut look: impl FnMut() -> F) -> T {
    #[expect(clippy::disallowed_methods, reason = "a bound on waiting")]
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < bound, "not within {bound:?}: {what}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// The stand-ins, in this process, with their books.
pub struct Vendors {
    /// `127.0.0.1:PORT`.
    pub at: String,
    /// The same stand-ins on a second port: the host that files are on.
    pub cdn: String,
    /// A third port: a stranger.
    pub other: String,
    /// The books.
    pub books: Books,
    sandbox: Sandbox,
    http: reqwest::Client,
    /// The address, taken and not listened on.
    shut: Mutex<Option<TcpSocket>>,
}

impl Vendors {
    /// Starts them; an ordinary job takes `pace`.
    pub async fn start(pace: Duration) -> Self {
        let vendors = Self::closed(pace).await;
        vendors.open();
        vendors
    }

    /// The same with nobody listening at their address until [`Vendors::open`].
    pub async fn closed(pace: Duration) -> Self {
        let main = TcpSocket::new_v4().expect("a socket");
        main.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let bind = async || TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (cdn, other) = (bind().await, bind().await);
        let place = |listener: &TcpListener| listener.local_addr().expect("an address").to_string();
        let at = main.local_addr().expect("an address").to_string();
        let (cdn_at, other_at) = (place(&cdn), place(&other));
        let mut options = Options::new(format!("http://{at}"), Arc::new(now_ms));
        options.files_url = Some(format!("http://{cdn_at}"));
        options.other_url = Some(format!("http://{other_at}"));
        options.pace = pace;
        let sandbox = Sandbox::new(options);
        for listener in [cdn, other] {
            let sandbox = sandbox.clone();
            tokio::spawn(async move { sandbox.serve(listener, std::future::pending()).await });
        }
        let shut = Mutex::new(Some(main));
        Self { at, cdn: cdn_at, other: other_at, books: sandbox.books(), sandbox, http: http(), shut }
    }

    /// Begins to listen; once.
    pub fn open(&self) {
        let socket = self.shut.lock().expect("a lock").take().expect("not open yet");
        let listener = socket.listen(1024).expect("a listener");
        let sandbox = self.sandbox.clone();
        tokio::spawn(async move { sandbox.serve(listener, std::future::pending()).await });
    }

    /// The vendors that have a stand-in.
    pub fn names(&self) -> Vec<&'static str> {
        self.sandbox.vendors()
    }

    /// `PUT /_control/…`.
    pub async fn control(&self, path: &str, body: Value) {
        let answer = self.http.put(format!("http://{}/_control/{path}", self.at)).body(body.to_string());
        let answer = answer.header("content-type", "application/json").send().await.expect("the stand-ins answer");
        let status = answer.status();
        assert!(status.is_success(), "{path} {body}: {status} {}", answer.text().await.unwrap_or_default());
    }

    /// Injects a fault: `{vendor, route, fault, count, …}`.
    pub async fn fault(&self, fault: Value) {
        self.control("faults", fault).await;
    }

    /// Scripts exact answers: `{vendor, wire: [...]}`.
    pub async fn script(&self, script: Value) {
        self.control("script", script).await;
    }

    /// Paid starts of one vendor, as the books have them.
    pub fn starts(&self, vendor: &str) -> usize {
        self.books.starts(Some(vendor)).len()
    }

    /// Requests of one vendor that took this route, oldest first.
    pub fn requests(&self, vendor: &str, route: &str) -> Vec<Request> {
        self.books.requests(Some(vendor)).into_iter().filter(|request| request.route == route).collect()
    }

    /// Requests that carried a key to a host that must never see one.
    pub fn leaks(&self) -> usize {
        self.books.requests(None).iter().filter(|request| request.leak).count()
    }
}

/// How a server is set up.
#[derive(Clone)]
pub struct Setup {
    folder: Arc<TempDir>,
    text: String,
    env: Vec<(String, String)>,
    wrapper: Vec<String>,
    address: &'static str,
}

impl Setup {
    /// An own folder with a database and artifacts, a key file, and no connector.
    pub fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        std::fs::write(folder.path().join("key"), format!("{KEY}\n")).expect("a key file");
        let at = folder.path().display();
        let text = format!(
            "[store]\nurl = \"sqlite:{at}/longhaul.db\"\n[artifacts]\nurl = \"file:{at}/artifacts\"\n[worker]\nlease_s = 3\n\
             drain_s = 2\n"
        );
        Self { folder, text, env: Vec::new(), wrapper: Vec::new(), address: "127.0.0.1" }
    }

    /// The folder that everything is in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// One more piece of configuration.
    pub fn with(mut self, toml: &str) -> Self {
        self.text.push_str(toml);
        self.text.push('\n');
        self
    }

    /// One more variable in the server's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A connector named like its vendor, to its stand-in, polled quickly. `more` is further TOML of its section.
    pub fn connector(self, vendors: &Vendors, vendor: &str, more: &str) -> Self {
        self.connector_named(vendor, vendors, vendor, more)
    }

    /// The same under a name of its own, for several stand-ins of one vendor.
    pub fn connector_named(self, name: &str, vendors: &Vendors, vendor: &str, more: &str) -> Self {
        let settings = match vendor {
            "claude_managed_agents" if !more.contains("settings") => {
                "settings = { agent_id = \"agent_sandbox\", environment_id = \"env_sandbox\" }"
            }
            _ => "",
        };
        let key = self.folder().join("key").display().to_string();
        let (at, cdn) = (&vendors.at, &vendors.cdn);
        let cadence = if more.contains("cadence") {
            ""
        } else {
            "cadence = { first_s = 0.1, factor = 1.2, ceiling_s = 0.5, jitter = 0.1 }"
        };
        self.with(&format!(
            "[connectors.{name}]\nvendor = \"{vendor}\"\ncredential = \"file:{key}\"\nbase_url = \"http://{at}/{vendor}\"\n\
             allow_private_network = true\nprivate_hosts = [\"{cdn}\"]\n{cadence}\n{settings}\n{more}"
        ))
    }

    /// A connector of this vendor under another name and at another place. `more` holds everything but the vendor and the key.
    pub fn connector_elsewhere(self, name: &str, vendor: &str, more: &str) -> Self {
        let key = self.folder().join("key").display().to_string();
        self.with(&format!("[connectors.{name}]\nvendor = \"{vendor}\"\ncredential = \"file:{key}\"\n{more}"))
    }

    /// Leases as long as by default: for work that keeps the processors busy.
    pub fn long_leases(self) -> Self {
        self.env("LONGHAUL__WORKER__LEASE_S", "15")
    }

    /// `serve` listens on every address, where it wants a token for every call.
    pub fn beyond_loopback(mut self) -> Self {
        self.address = "0.0.0.0";
        self
    }

    /// Processes whose wall clock is this many seconds off, by Debian's faketime. Their monotonic clock stays true.
    pub fn wall_clock_off_by(self, seconds: i64) -> Self {
        let machines = std::fs::read_dir("/usr/lib").expect("/usr/lib").filter_map(Result::ok);
        let library = machines.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
        let library = library.expect("faketime is there (tests/run setup)");
        let mut set = self.env("LD_PRELOAD", &library.display().to_string());
        // Probes of outputs are processes of their own: the shift holds for each.
        for (name, value) in [("FAKETIME", format!("{seconds:+}")), ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned())] {
            set = set.env(name, &value);
        }
        set
    }

    /// A command that `serve` is started through: it gets the binary and its arguments behind its own.
    pub fn wrapped(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Every vendor that has a stand-in.
    pub fn all_connectors(mut self, vendors: &Vendors) -> Self {
        for vendor in vendors.names() {
            self = self.connector(vendors, vendor, "");
        }
        self
    }

    /// Starts the server and waits until it is ready.
    pub async fn serve(&self) -> Server {
        let mut server = Server::launch(self, "serve", "serve", self.address).await;
        server.ready().await;
        server
    }

    /// Starts a process of a fleet, `scheduler` or `worker`, under a name of its own, and waits until it is ready.
    pub async fn role(&self, role: &str, name: &str) -> Server {
        let mut server = self.launch(role, name).await;
        server.ready().await;
        server
    }

    /// The same without waiting.
    pub async fn launch(&self, role: &str, name: &str) -> Server {
        Server::launch(self, role, name, self.address).await
    }

    /// Runs the command line in this set-up: exit code, stdout, stderr.
    pub async fn run(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.command(args).output().await.expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    /// The configuration file as it is written for the next command.
    pub fn config(&self) -> PathBuf {
        let path = self.folder().join("longhaul.toml");
        std::fs::write(&path, &self.text).expect("a configuration");
        path
    }

    /// A command in this set-up, not yet started: stdin is empty, stdout and stderr are the caller's to set.
    pub fn command(&self, args: &[&str]) -> Command {
        self.under(&[], args)
    }

    fn under(&self, wrapper: &[String], args: &[&str]) -> Command {
        let mut command = match wrapper.split_first() {
            None => Command::new(LONGHAUL),
            Some((program, own)) => {
                let mut command = Command::new(program);
                command.args(own).arg(LONGHAUL);
                command
            }
        };
        command.args(args).arg("--config").arg(self.config()).current_dir(self.folder());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.folder()).env("RUST_LOG", "info");
        command.envs(self.env.iter().cloned()).kill_on_drop(true).stdin(Stdio::null());
        command
    }
}

/// A port that no other server of this process was told and nobody is given by the system: one that was only free a
/// moment ago may be another's by the time the server binds it.
pub async fn free_port() -> u16 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    loop {
        let nth =
            NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(97));
        let port = u16::try_from(20_000 + nth % 12_000).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).await.is_ok() {
            return port;
        }
    }
}

/// A running `longhaul serve`, `scheduler` or `worker`.
pub struct Server {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    /// Its log, stderr of every life.
    pub log: PathBuf,
    child: Child,
    http: reqwest::Client,
    token: Option<String>,
    _folder: Arc<TempDir>,
}

impl Server {
    async fn launch(setup: &Setup, role: &str, name: &str, address: &str) -> Self {
        let port = free_port().await;
        let log = setup.folder().join(format!("{name}.log"));
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log).expect("a log");
        let child = setup
            .under(&setup.wrapper, &[role, "--listen", &format!("{address}:{port}")])
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the binary starts");
        let url = format!("http://127.0.0.1:{port}");
        Self { url, log, child, http: http(), token: None, _folder: setup.folder.clone() }
    }

    /// Waits until it is ready.
    pub async fn ready(&mut self) {
        let url = format!("{}/readyz", self.url);
        let (http, log) = (self.http.clone(), self.log.clone());
        let child = &mut self.child;
        #[expect(clippy::disallowed_methods, reason = "a bound on waiting")]
        let began = Instant::now();
        loop {
            if http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            let ended = child.try_wait().expect("a child");
            let told = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "it ended with {ended:?}:\n{}", told());
            assert!(began.elapsed() < PATIENCE, "it is not ready:\n{}", told());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Calls with this token from now on.
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// `kill -9`.
    pub async fn kill(&mut self) {
        self.child.start_kill().expect("kill");
        self.child.wait().await.expect("it ends");
    }

    /// SIGTERM; the exit code.
    pub async fn stop(&mut self) -> Option<i32> {
        let status = std::process::Command::new("kill").arg(self.pid().to_string()).status().expect("kill");
        assert!(status.success());
        self.child.wait().await.expect("it ends").code()
    }

    /// Waits until it ends by itself; the exit code.
    pub async fn ended(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.expect("serve ends").expect("it ends").code()
    }

    /// A signal by its name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status = std::process::Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    /// Any call: status and JSON (null where the answer is none).
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let (status, text) = self.send(method, path, &[], body.map(|body| body.to_string())).await;
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// Any call with any JSON text and further headers: status and text.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> (u16, String) {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        if let Some(token) = self.token.as_deref().filter(|_| headers.iter().all(|(name, _)| *name != "authorization"))
        {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.expect("the server answers");
        (answer.status().as_u16(), answer.text().await.expect("a body"))
    }

    /// Submits jobs in one batch, all of which must be taken; their ids in order.
    pub async fn submit_all(&self, jobs: &[Value]) -> Vec<String> {
        let lines: String = jobs.iter().map(|job| format!("{job}\n")).collect();
        let (status, text) = self.send(Method::POST, "/v1/jobs/batch", &[], Some(lines)).await;
        assert_eq!(status, 200, "{text}");
        let read = |line: &str| -> String {
            let line: Value = serde_json::from_str(line).expect("a line of JSON");
            line["job"]["id"].as_str().unwrap_or_else(|| panic!("not taken: {line}")).to_owned()
        };
        let ids: Vec<String> = text.lines().map(read).collect();
        assert_eq!(ids.len(), jobs.len(), "one line a job");
        ids
    }

    /// A `GET` that must be 200.
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// A `POST`: status and JSON.
    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Submits a job that must be taken; its id.
    pub async fn submit(&self, job: Value) -> String {
        let (status, body) = self.post("/v1/jobs", job).await;
        assert_eq!(status, 201, "{body}");
        body["id"].as_str().expect("an id").to_owned()
    }

    /// The job.
    pub async fn job(&self, id: &str) -> Value {
        self.get(&format!("/v1/jobs/{id}")).await
    }

    /// The job's whole history.
    pub async fn events(&self, id: &str) -> Vec<Value> {
        self.history(id, "").await
    }

    /// The job's whole history with the recorded exchanges in it.
    pub async fn events_with_exchanges(&self, id: &str) -> Vec<Value> {
        self.history(id, "&raw=true").await
    }

    async fn history(&self, id: &str, more: &str) -> Vec<Value> {
        let mut cursor = "0".to_owned();
        let mut all = Vec::new();
        loop {
            let page = self.get(&format!("/v1/jobs/{id}/events?cursor={cursor}&limit=500{more}")).await;
            all.extend(page["events"].as_array().cloned().unwrap_or_default());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => return all,
            }
        }
    }

    /// Waits until the job is in one of these states; panics with the job where it rests in another.
    pub async fn job_in(&self, id: &str, states: &[&str]) -> Value {
        self.job_in_within(PATIENCE, id, states).await
    }

    /// The same with another bound than `PATIENCE`.
    pub async fn job_in_within(&self, patience: Duration, id: &str, states: &[&str]) -> Value {
        within(patience, &format!("{id} in {states:?}"), async || {
            let job = self.job(id).await;
            let state = job["state"].as_str().unwrap_or_default();
            if states.contains(&state) {
                return Some(job);
            }
            assert!(
                !RESTS.contains(&state) || !job["step"].is_null(),
                "{id} rests in {state}, not {states:?}: {job:#}"
            );
            None
        })
        .await
    }

    /// Waits until the job rests: ended, or parked.
    pub async fn job_at_rest(&self, id: &str) -> Value {
        self.at_rest_within(id, PATIENCE).await
    }

    /// The same with another bound.
    pub async fn at_rest_within(&self, id: &str, bound: Duration) -> Value {
        within(bound, &format!("{id} at rest"), async || {
            let job = self.job(id).await;
            RESTS.contains(&job["state"].as_str().unwrap_or_default()).then_some(job)
        })
        .await
    }

    /// An artifact's bytes.
    pub async fn bytes(&self, artifact: &Value) -> Vec<u8> {
        let path = artifact["content"].as_str().expect("content");
        let mut request = self.http.get(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        request.send().await.expect("the server answers").bytes().await.expect("bytes").to_vec()
    }

    /// All metrics, as they are scraped.
    pub async fn metrics(&self) -> String {
        let answer = self.http.get(format!("{}/metrics", self.url)).send().await.expect("metrics");
        answer.text().await.expect("text")
    }

    /// One metric's value, summed over the series that carry all of these label pairs (as `name="value"`).
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.metrics().await;
        let series = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let chosen = series.filter(|line| labels.iter().all(|label| line.contains(label)));
        chosen.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Its log so far.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    /// A test that fails shows the end of the server's log, which goes with its folder.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log_text();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines.get(lines.len().saturating_sub(30)..).unwrap_or_default();
            eprintln!("the server's log ends:\n{}", last.join("\n"));
        }
    }
}

/// A job for a vendor that its stand-in makes in one pace; `words` go into what is asked, for `sandbox:<scenario>`.
pub fn hello(vendor: &str, words: &str) -> Value {
    match vendor {
        "flux" => json!({
            "connector": "flux", "task": "image", "instructions": format!("a grey pebble on slate {words}"),
            "media": {"width": 512, "height": 512, "format": "png"},
        }),
        "runway" => json!({
            "connector": "runway", "task": "video", "instructions": format!("a kite over dunes {words}"),
            "media": {"aspect": "16:9", "duration_ms": 5000},
        }),
        "elevenlabs" => json!({
            "connector": "elevenlabs", "task": "speech",
            "inputs": [{"role": "script", "text": format!("Good morning. {words}")}],
            "media": {"voice": "voiceA", "format": "mp3"},
        }),
        "claude_managed_agents" => json!({
            "connector": "claude_managed_agents", "task": "agent.code",
            "instructions": format!("Make the retry test deterministic. {words}"),
        }),
        "a2a" => json!({
            "connector": "a2a", "task": "agent.research", "instructions": format!("How are tides predicted? {words}"),
        }),
        other => panic!("no hello job for {other}"),
    }
}

/// Where the request that carries an answer says it, and what it must say there, by the vendor's wire page.
pub fn answer_on_the_wire(vendor: &str, answer: &Value) -> (&'static str, Value) {
    match vendor {
        // `user.tool_confirmation`: `result` is "allow" or "deny".
        "claude_managed_agents" => {
            let approve = answer["approve"].as_bool().expect("a yes or a no");
            ("/events/0/result", json!(if approve { "allow" } else { "deny" }))
        }
        // `SendMessage` to the task: the person's words are a text part.
        "a2a" => ("/params/message/parts/0/text", answer["text"].clone()),
        other => panic!("no wire of an answer for {other}"),
    }
}
