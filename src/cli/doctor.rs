//! `longhaul doctor`: looks at everything a start needs, and says what is wrong with the next thing to try.

use super::args::{DoctorArgs, Output};
use super::client::Client;
use super::exit::Exit;
use super::output::{list, text};
use crate::config::{self, Config, env};
use crate::product::registry;
use longhaul_store::clock::SystemClock;
use longhaul_store::examine;
use longhaul_store::storage::ArtifactStorage;
use longhaul_worker::credentials::Credentials;
use longhaul_worker::guard::{Guard, GuardConfig};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// What was found.
#[derive(Default)]
struct Findings(Vec<Value>);

impl Findings {
    fn add(&mut self, what: &str, result: Result<String, String>) {
        let (ok, message) = match result {
            Ok(message) => (true, message),
            Err(message) => (false, message),
        };
        self.0.push(json!({"check": what, "ok": ok, "message": message}));
    }

    fn warn(&mut self, what: &str, message: &str) {
        self.0.push(json!({"check": what, "ok": true, "warning": true, "message": message}));
    }
}

/// Runs every check; exit 1 where one fails.
pub async fn run(
    file: Option<&Path>,
    url: Option<String>,
    token: Option<String>,
    output: Output,
    args: DoctorArgs,
) -> anyhow::Result<()> {
    let mut found = Findings::default();
    match config::load(file) {
        Ok(config) => {
            let from = config
                .file
                .as_ref()
                .map_or_else(|| "the defaults (no longhaul.toml here)".to_owned(), |path| path.display().to_string());
            found.add("configuration", Ok(from));
            look(&mut found, &config).await;
            server(&mut found, &config, url, token, args.check).await;
        }
        Err(problems) => found.add("configuration", Err(problems.to_string())),
    }
    list(
        output,
        "checks",
        &found.0,
        &[
            ("", |row| match (row["ok"] == json!(true), row["warning"] == json!(true)) {
                (true, true) => "warn".to_owned(),
                (true, false) => "ok".to_owned(),
                (false, _) => "FAIL".to_owned(),
            }),
            ("check", |row| text(&row["check"])),
            ("finding", |row| text(&row["message"])),
        ],
    );
    let failed = found.0.iter().filter(|row| row["ok"] == json!(false)).count();
    if failed > 0 {
        return Err(Exit::failed(format!("{failed} of {} checks failed", found.0.len())).into());
    }
    Ok(())
}

async fn look(found: &mut Findings, config: &Config) {
    store(found, config).await;
    found.add("artifacts", artifacts(&config.artifacts.url).await);
    if let Some(told) = config.unshared_artifacts() {
        found.warn("artifacts", &told);
    }
    let clock = Arc::new(SystemClock::default());
    match Guard::new(GuardConfig::default(), clock) {
        Ok(guard) if guard.trusted_roots() == 0 => {
            found.add("TLS", Err("no trusted roots on this machine; install ca-certificates".to_owned()));
        }
        Ok(guard) => found.add("TLS", Ok(format!("{} trusted roots", guard.trusted_roots()))),
        Err(error) => found.add("TLS", Err(error.to_string())),
    }
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        if env::lookup(name).is_some() {
            found.warn("proxy", &format!("{name} is set; Longhaul follows no proxy from the environment"));
        }
    }
    if config.notify.secret.is_empty() {
        found.warn("notifications", "[notify] secret is empty: notifications go out unsigned");
    }
    for (key, instead) in config.without_effect(None) {
        found.warn("configuration", &format!("{key} has no effect: {instead}"));
    }
    connectors(found, config).await;
}

/// Opening makes the folder, and doctor makes nothing: where there is none, it looks at where it will be.
async fn artifacts(url: &str) -> Result<String, String> {
    let path = url.strip_prefix("file:").map(|path| Path::new(path.strip_prefix("//").unwrap_or(path)));
    if let Some(path) = path.filter(|path| !path.exists()) {
        let above = path.ancestors().skip(1).find(|above| above.exists() || above.as_os_str().is_empty());
        return match above.filter(|above| above.as_os_str().is_empty() || above.is_dir()) {
            Some(_) => Ok(format!("{} will be made at the first start", path.display())),
            None => Err(format!(
                "{} cannot be made: a file stands in its way; name another in [artifacts] url",
                path.display()
            )),
        };
    }
    let storage = ArtifactStorage::open(url, env::lookup).map_err(|error| error.to_string())?;
    storage.check().await.map_err(|error| error.to_string())?;
    Ok(format!("{url} can be written"))
}

async fn store(found: &mut Findings, config: &Config) {
    let clock = Arc::new(SystemClock::default());
    for finding in examine(&config.store.url, config.store.durability(), clock).await {
        match finding.outcome {
            Ok(message) if finding.warning => found.warn(finding.about, &message),
            outcome => found.add(finding.about, outcome),
        }
    }
}

async fn connectors(found: &mut Findings, config: &Config) {
    let registry = match registry() {
        Ok(registry) => registry,
        Err(error) => {
            found.add("registry", Err(format!("{error:#}")));
            return;
        }
    };
    let connectors = match config.resolve(&registry) {
        Ok(connectors) => connectors,
        Err(problems) => {
            found.add("connectors", Err(problems.to_string()));
            return;
        }
    };
    if connectors.is_empty() {
        found.warn("connectors", "none is installed; add a [connectors.NAME] section (longhaul vendors list)");
    }
    let credentials = Credentials::new(Arc::new(env::lookup));
    for (name, connector) in &connectors {
        let what = format!("connector {name}");
        let result = match &connector.credential {
            None => Ok(format!("{} at {}, no credential", connector.vendor.vendor, connector.base_url)),
            Some(reference) => credentials
                .resolve(reference)
                .await
                .map(|_| format!("{} at {}, credential {reference}", connector.vendor.vendor, connector.base_url))
                .map_err(|error| error.to_string()),
        };
        found.add(&what, result);
        for retirement in &connector.vendor.retirements {
            found.warn(&what, &format!("{} ends on {}: {}", retirement.what, retirement.on, retirement.instead));
        }
    }
}

/// The running server, where there is one; with `--check` its connectors' free checks.
async fn server(found: &mut Findings, config: &Config, url: Option<String>, token: Option<String>, check: bool) {
    let named = url.is_some();
    let base = url.unwrap_or_else(|| config.api_url());
    let client = match Client::new(&base, token) {
        Ok(client) => client,
        Err(error) => {
            found.add("server", Err(error.to_string()));
            return;
        }
    };
    match client.get("/readyz", &[]).await {
        Ok(_) => found.add("server", Ok(format!("{base} is ready"))),
        Err(error) if error.downcast_ref::<super::client::Refused>().is_some() => {
            found.add("server", Err(format!("{base} is not ready: {error}")));
        }
        Err(_) if named || check => {
            found.add("server", Err(format!("nothing answers on {base}; start longhaul serve")))
        }
        Err(_) => found.warn("server", &format!("nothing answers on {base}: not started")),
    }
    if check {
        match super::remote::checked(&client, Vec::new()).await {
            Ok(rows) => rows.iter().for_each(|row| found.add("free check", super::remote::finding(row))),
            Err(error) => found.add("free check", Err(error.to_string())),
        }
    }
}
