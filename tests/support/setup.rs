//! How the binary is set up before it runs.

use super::*;

/// How a server is set up.
#[derive(Clone)]
pub struct Setup {
    pub(super) folder: Arc<TempDir>,
    text: String,
    env: Vec<(String, String)>,
    pub(super) wrapper: Vec<String>,
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

    pub(super) fn under(&self, wrapper: &[String], args: &[&str]) -> Command {
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
