//! The vendors: their stand-ins, in this process.

use super::*;

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
