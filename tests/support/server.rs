//! The real binary, running.

use super::*;

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
    pub(super) async fn launch(setup: &Setup, role: &str, name: &str, address: &str) -> Self {
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
