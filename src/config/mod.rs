//! `longhaul.toml`: read, overridden by the environment, checked whole before anything starts.

pub mod env;
mod store;

pub use store::{Role, StoreSection};

use longhaul_registry::shape::{Field, Shape, may};
use longhaul_registry::{
    CONNECTOR_SECTION, Connector, ConnectorConfig, Document, FileProblem, FileProblems, Problem, Registry, Unit,
    resolve,
};
use longhaul_store::{Limits, TenantLimits};
use rust_decimal::Decimal;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing_subscriber::EnvFilter;

/// Every key with its default and what it does: the reference that docs/CONFIGURATION.md shows.
pub const DEFAULT: &str = include_str!("default.toml");

/// Reads a log filter as `RUST_LOG` has it.
///
/// # Errors
/// What is wrong with it.
pub fn filter(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().with_regex(false).parse(text).map_err(|error| error.to_string())
}

/// The file looked for where none is named.
pub const FILE: &str = "longhaul.toml";

/// Where outputs go.
#[derive(Clone, Debug, Deserialize)]
pub struct ArtifactsSection {
    /// `file:PATH`, `s3://…`, `az://…`, `gs://…`.
    pub url: String,
    /// Bytes.
    pub max_bytes: u64,
}

/// The HTTP API.
#[derive(Clone, Debug, Deserialize)]
pub struct ApiSection {
    /// Address and port.
    pub listen: SocketAddr,
    /// How it is reached from outside, or empty.
    pub public_url: String,
    /// Bytes.
    pub max_body_bytes: u64,
    /// Days: the former name of `[retention] jobs_days`, which holds its value once all is read.
    #[serde(default)]
    retention_days: Option<u32>,
}

/// How long things are kept.
#[derive(Clone, Debug, Deserialize)]
pub struct RetentionSection {
    /// Days.
    pub jobs_days: u32,
    /// Days.
    pub usage_days: u32,
    /// Into the archive first.
    pub export: bool,
}

/// The worker.
#[derive(Clone, Debug, Deserialize)]
pub struct WorkerSection {
    /// Steps at one time.
    pub concurrency: usize,
    /// Seconds.
    pub lease_s: u64,
    /// Seconds.
    pub drain_s: u64,
    /// A folder, or empty.
    pub staging: String,
    /// Address and port, or empty.
    pub listen: String,
}

/// When polls come.
#[derive(Clone, Debug, Deserialize)]
pub struct PacingSection {
    /// By how long such jobs took.
    pub learn: bool,
}

/// Notifications out.
#[derive(Clone, Debug, Deserialize)]
pub struct NotifySection {
    /// `env:NAME`, `file:PATH`, or empty.
    pub secret: String,
    /// `host:port` each.
    pub private_hosts: Vec<String>,
}

/// Logs.
#[derive(Clone, Debug, Deserialize)]
pub struct LogSection {
    /// `text` or `json`.
    pub format: String,
    /// As `RUST_LOG`.
    pub filter: String,
}

/// One tenant.
#[derive(Clone, Debug, Deserialize)]
pub struct TenantSection {
    /// Share of fresh starts.
    #[serde(default = "one")]
    pub weight: u32,
    /// Money a month.
    #[serde(default)]
    pub budget_usd_per_month: Option<Decimal>,
    /// Quantities a month, by unit.
    #[serde(default)]
    pub budget_units_per_month: BTreeMap<Unit, Decimal>,
}

fn one() -> u32 {
    1
}

/// The whole configuration, resolved.
#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    /// Where jobs live.
    pub store: StoreSection,
    /// Where outputs go.
    pub artifacts: ArtifactsSection,
    /// The HTTP API.
    pub api: ApiSection,
    /// How long things are kept.
    pub retention: RetentionSection,
    /// The worker.
    pub worker: WorkerSection,
    /// When polls come.
    pub pacing: PacingSection,
    /// Notifications out.
    pub notify: NotifySection,
    /// Logs.
    pub log: LogSection,
    /// Installed connectors as written.
    #[serde(default)]
    connectors: BTreeMap<String, ConnectorConfig>,
    /// Tenants.
    #[serde(default)]
    pub tenants: BTreeMap<String, TenantSection>,
    /// The file it came from; `None` where there was none.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    #[serde(skip)]
    overridden: Overridden,
}

const FIELDS: &[Field] = &[
    may(
        "store",
        Shape::Table(&[
            may("url", Shape::Text),
            may("durability", Shape::Word(|| vec!["strict", "everysec"])),
            may("segments_every_s", Shape::Count),
        ]),
    ),
    may("artifacts", Shape::Table(&[may("url", Shape::Text), may("max_bytes", Shape::Count)])),
    may(
        "api",
        Shape::Table(&[
            may("listen", Shape::Text),
            may("public_url", Shape::Text),
            may("max_body_bytes", Shape::Count),
            may("retention_days", Shape::Count),
        ]),
    ),
    may(
        "retention",
        Shape::Table(&[may("jobs_days", Shape::Count), may("usage_days", Shape::Count), may("export", Shape::Flag)]),
    ),
    may(
        "worker",
        Shape::Table(&[
            may("concurrency", Shape::Count),
            may("lease_s", Shape::Count),
            may("drain_s", Shape::Count),
            may("staging", Shape::Text),
            may("listen", Shape::Text),
        ]),
    ),
    may("pacing", Shape::Table(&[may("learn", Shape::Flag)])),
    may("notify", Shape::Table(&[may("secret", Shape::Text), may("private_hosts", Shape::List(&Shape::Text))])),
    may("log", Shape::Table(&[may("format", Shape::Word(|| vec!["text", "json"])), may("filter", Shape::Text)])),
    may("connectors", Shape::Map(&Shape::Table(CONNECTOR_SECTION))),
    may(
        "tenants",
        Shape::Map(&Shape::Table(&[
            may("weight", Shape::Count),
            may("budget_usd_per_month", Shape::Decimal),
            may("budget_units_per_month", Shape::Table(UNIT_BUDGETS)),
        ])),
    ),
];

/// Every unit but dollars, whose budget is `budget_usd_per_month`.
const UNIT_BUDGETS: &[Field] = &[
    may("credits", Shape::Decimal),
    may("tokens_in", Shape::Decimal),
    may("tokens_out", Shape::Decimal),
    may("characters", Shape::Decimal),
    may("seconds", Shape::Decimal),
    may("images", Shape::Decimal),
    may("megapixels", Shape::Decimal),
    may("requests", Shape::Decimal),
    may("acu", Shape::Decimal),
    may("units", Shape::Decimal),
];

/// Reads the configuration: the named file, else `longhaul.toml` in the current folder where there is one, else the
/// defaults alone; then the environment.
///
/// # Errors
/// Everything wrong, each with file, line and key.
pub fn load(named: Option<&Path>) -> Result<Config, FileProblems> {
    let file = match named {
        Some(path) => Some(path.to_owned()),
        None => Some(PathBuf::from(FILE)).filter(|path| path.exists()),
    };
    let text = match &file {
        Some(path) => std::fs::read_to_string(path).map_err(|error| cannot_read(path, &error))?,
        None => String::new(),
    };
    let shown = file.as_ref().map_or_else(|| "defaults".to_owned(), |path| path.display().to_string());
    let mut config = parse(&shown, &text, &env::overrides())?;
    config.file = file;
    Ok(config)
}

fn cannot_read(path: &Path, error: &std::io::Error) -> FileProblems {
    let message =
        format!("cannot be read ({error}); name another file with --config, or leave it out for the defaults");
    FileProblems(vec![FileProblem {
        file: path.display().to_string(),
        line: 1,
        problem: Problem::new("", "missing", message),
    }])
}

/// Reads a configuration's text with overrides as `LONGHAUL__SECTION__KEY` and value.
///
/// # Errors
/// Everything wrong, each with file, line and key.
pub fn parse(file: &str, text: &str, overrides: &[(String, String)]) -> Result<Config, FileProblems> {
    let document = Document::parse(file, text).map_err(FileProblems)?;
    let problems = document.check(FIELDS);
    if !problems.is_empty() {
        return Err(FileProblems(problems));
    }
    let mine: toml::Table = document.read().map_err(FileProblems)?;
    let given = |path: &str| set_in(&mine, path) || overrides.iter().any(|(name, _)| of_variable(name) == path);
    let given = given("retention.jobs_days");
    let mut table: toml::Table = toml::from_str(DEFAULT).map_err(|error| broken("default.toml", &error))?;
    merge(&mut table, mine);
    for (name, value) in overrides {
        set(&mut table, name, value)?;
    }
    let merged = toml::to_string(&table).map_err(|error| broken(file, &error))?;
    let again = Document::parse("environment", &merged).map_err(FileProblems)?;
    let problems = again.check(FIELDS);
    if !problems.is_empty() {
        return Err(FileProblems(problems.into_iter().map(of_the_environment).collect()));
    }
    let set = Overridden::of(overrides);
    let mut config: Config = match toml::from_str(&merged) {
        Ok(config) => config,
        Err(error) => return Err(FileProblems(set.claim(vec![in_words(&document, file, &error)]))),
    };
    let mut problems = config.check();
    problems.extend(config.take_old_names(given));
    let problems = set.claim(document.place(problems));
    config.overridden = set;
    if problems.is_empty() { Ok(config) } else { Err(FileProblems(problems)) }
}

/// Keys that the environment set: a mistake in one is the variable's, not the file's.
#[derive(Clone, Debug, Default)]
struct Overridden(Vec<(String, String)>);

impl Overridden {
    fn of(overrides: &[(String, String)]) -> Self {
        Self(overrides.iter().map(|(name, _)| (of_variable(name), name.clone())).collect())
    }

    fn claim(&self, mut problems: Vec<FileProblem>) -> Vec<FileProblem> {
        for problem in &mut problems {
            let at = &problem.problem.path;
            let within =
                |path: &str| at.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
            if let Some((_, name)) = self.0.iter().find(|(path, _)| within(path)) {
                problem.file = format!("environment variable {name}");
                problem.line = 1;
            }
        }
        problems
    }
}

/// The key that a variable sets.
fn of_variable(name: &str) -> String {
    name.trim_start_matches("LONGHAUL__").to_lowercase().replace("__", ".")
}

/// Whether a file sets a key.
fn set_in(table: &toml::Table, path: &str) -> bool {
    let found = path.split_once('.').and_then(|(section, key)| table.get(section)?.get(key));
    found.is_some()
}

fn broken(file: &str, error: &dyn std::fmt::Display) -> FileProblems {
    let problem = Problem::new("", "not_toml", error.to_string());
    FileProblems(vec![FileProblem { file: file.to_owned(), line: 1, problem }])
}

/// After the file itself was checked, what is still wrong came from the environment.
fn of_the_environment(mut problem: FileProblem) -> FileProblem {
    let name = format!("LONGHAUL__{}", problem.problem.path.to_uppercase().replace('.', "__"));
    problem.file = format!("environment variable {name}");
    problem
}

/// A value that has the right type and no sense, such as an address without a port.
fn in_words(document: &Document<'_>, file: &str, error: &toml::de::Error) -> FileProblem {
    let text = error.to_string();
    let path = if text.contains("socket address") { "api.listen" } else { "" };
    let message = format!("{}; give it as in the defaults (longhaul doctor shows them)", error.message());
    let line = document.line_of(path);
    FileProblem { file: file.to_owned(), line, problem: Problem::new(path, "wrong_type", message) }
}

fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(base)), toml::Value::Table(over)) if key != "settings" => merge(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// Sets `LONGHAUL__SECTION__KEY`. The value is TOML where it reads as TOML, else text.
fn set(table: &mut toml::Table, name: &str, value: &str) -> Result<(), FileProblems> {
    let path: Vec<String> = name.trim_start_matches("LONGHAUL__").split("__").map(str::to_lowercase).collect();
    let wrong = |message: String| {
        let problem = Problem::new(path.join("."), "unknown_key", message);
        FileProblems(vec![FileProblem { file: format!("environment variable {name}"), line: 1, problem }])
    };
    let Some((key, sections)) = path.split_last().filter(|(key, sections)| !key.is_empty() && !sections.is_empty())
    else {
        return Err(wrong(
            "names no key; write LONGHAUL__SECTION__KEY, such as LONGHAUL__WORKER__CONCURRENCY".to_owned(),
        ));
    };
    let mut at = table;
    for section in sections {
        let entry = at.entry(section.clone()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        at = match entry {
            toml::Value::Table(inner) => inner,
            _ => return Err(wrong(format!("{section} is no section"))),
        };
    }
    let text = || toml::Value::String(value.to_owned());
    let read = toml::from_str::<toml::Table>(&format!("v = {value}")).ok().and_then(|mut table| table.remove("v"));
    // A key that is text stays text: LONGHAUL__STORE__URL=true is a strange path, not a switch.
    let value = match (at.get(key), read) {
        (Some(toml::Value::String(_)), Some(toml::Value::String(read))) => toml::Value::String(read),
        (Some(toml::Value::String(_)), _) | (_, None) => text(),
        (_, Some(read)) => read,
    };
    at.insert(key.clone(), value);
    Ok(())
}

impl Config {
    /// What keys and types alone do not tell.
    fn check(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self.store.check().into_iter().collect();
        let mut wrong = |path: &str, code: &str, message: String| problems.push(Problem::new(path, code, message));
        if !(1..=100_000).contains(&self.worker.concurrency) {
            wrong("worker.concurrency", "out_of_range", "from 1 to 100000".to_owned());
        }
        if !(2..=600).contains(&self.worker.lease_s) {
            let message = "from 2 to 600 seconds: a lease is renewed three times in its length".to_owned();
            wrong("worker.lease_s", "out_of_range", message);
        }
        let url = &self.artifacts.url;
        if !["file:", "s3://", "az://", "gs://"]
            .iter()
            .any(|scheme| url.len() > scheme.len() && url.starts_with(scheme))
        {
            let message = format!("{url:?} is no place for artifacts; use file:PATH, s3://…, az://… or gs://…");
            wrong("artifacts.url", "not_allowed", message);
        }
        if self.artifacts.max_bytes == 0 {
            wrong("artifacts.max_bytes", "out_of_range", "at least 1".to_owned());
        }
        if self.store.segments_every_s > 3_600 {
            wrong("store.segments_every_s", "out_of_range", "from 1 to 3600 seconds, or 0 for never".to_owned());
        }
        if self.api.max_body_bytes < 1024 {
            wrong("api.max_body_bytes", "out_of_range", "at least 1024".to_owned());
        }
        for (path, days) in [
            ("api.retention_days", self.api.retention_days),
            ("retention.jobs_days", Some(self.retention.jobs_days)),
            ("retention.usage_days", Some(self.retention.usage_days)),
        ] {
            if days == Some(0) {
                wrong(path, "out_of_range", "at least 1 day".to_owned());
            }
        }
        let url = &self.api.public_url;
        if !url.is_empty() && !url.starts_with("https://") && !url.starts_with("http://") {
            wrong("api.public_url", "not_allowed", "an https:// address, or empty".to_owned());
        }
        if !self.worker.listen.is_empty() && self.worker.listen.parse::<SocketAddr>().is_err() {
            wrong("worker.listen", "wrong_type", "an address and port such as 127.0.0.1:7072, or empty".to_owned());
        }
        let secret = &self.notify.secret;
        if !secret.is_empty() && !secret.starts_with("env:") && !secret.starts_with("file:") {
            let message = "say where the secret is, never the secret: env:NAME or file:PATH".to_owned();
            wrong("notify.secret", "not_allowed", message);
        }
        if let Err(error) = filter(&self.log.filter) {
            wrong("log.filter", "not_allowed", format!("{error}; write it as info or longhaul_worker=debug,info"));
        }
        for (name, tenant) in &self.tenants {
            let path = format!("tenants.{name}");
            if !longhaul_registry::is_tenant(name) {
                let rule =
                    "a tenant is letters, digits, `_`, `-` and `.`, at most 64, and begins with a letter or digit";
                wrong(&path, "not_allowed", rule.to_owned());
            }
            if tenant.weight == 0 {
                wrong(&format!("{path}.weight"), "out_of_range", "at least 1".to_owned());
            }
            if tenant.budget_usd_per_month.is_some_and(|budget| budget.is_sign_negative()) {
                wrong(&format!("{path}.budget_usd_per_month"), "out_of_range", "at least 0".to_owned());
            }
            for (unit, budget) in &tenant.budget_units_per_month {
                if budget.is_sign_negative() {
                    let path = format!("{path}.budget_units_per_month.{unit}");
                    wrong(&path, "out_of_range", "at least 0".to_owned());
                }
            }
        }
        problems
    }

    /// Takes what stands under a former name. `given`: the new name is there too.
    fn take_old_names(&mut self, given: bool) -> Option<Problem> {
        let days = self.api.retention_days?;
        if given {
            let message = "is the former name of retention.jobs_days, which is given too; leave this one out";
            return Some(Problem::new("api.retention_days", "conflict", message));
        }
        self.retention.jobs_days = days;
        None
    }

    /// What is written and allowed but has no effect in this role, or in any where none is named, as
    /// `(key, what holds instead)`: silence would read as a promise.
    #[must_use]
    pub fn without_effect(&self, role: Option<Role>) -> Vec<(String, &'static str)> {
        let mut found = Vec::new();
        let embedded = self.store.is_embedded();
        if embedded && self.store.durability != "strict" {
            found.push(("store.durability".to_owned(), "the embedded store is always strict"));
        }
        let serves = role == Some(Role::Serve) || (role.is_none() && embedded);
        if serves && !self.worker.listen.is_empty() {
            found.push((
                "worker.listen".to_owned(),
                "serve answers /healthz, /readyz and /metrics where the API listens",
            ));
        }
        found
    }

    /// The artifacts' place as a file or the environment says it; `None` where neither was there to say anything.
    #[must_use]
    pub fn artifacts_named(&self) -> Option<&str> {
        let told = self.overridden.0.iter().any(|(path, _)| path == "artifacts.url");
        (told || self.file.is_some()).then_some(self.artifacts.url.as_str())
    }

    /// What a fleet wants of the artifacts' place and this machine cannot know; `None` where all is well.
    #[must_use]
    pub fn unshared_artifacts(&self) -> Option<String> {
        let path = self.artifacts.url.strip_prefix("file:").filter(|_| !self.store.is_embedded())?;
        Some(format!(
            "artifacts go into the folder {path}: every scheduler and worker of the fleet must find the same folder there, \
             such as a network file system, or outputs that one host makes are not there on another; else let [artifacts] \
             url name a bucket (s3://, az://, gs://)"
        ))
    }

    /// Resolves every connector.
    ///
    /// # Errors
    /// Everything wrong with every one of them, with its line.
    pub fn resolve(&self, registry: &Registry) -> Result<BTreeMap<String, Arc<Connector>>, FileProblems> {
        let (mut connectors, mut problems) = (BTreeMap::new(), Vec::new());
        for (name, section) in &self.connectors {
            match resolve(name, section, registry) {
                Ok(connector) => {
                    connectors.insert(name.clone(), Arc::new(connector));
                }
                Err(found) => problems.extend(found),
            }
        }
        if problems.is_empty() {
            return Ok(connectors);
        }
        let text = self.file.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let shown = self.file.as_ref().map_or_else(|| FILE.to_owned(), |path| path.display().to_string());
        let document = Document::parse(shown, &text).map_err(FileProblems)?;
        Err(FileProblems(self.overridden.claim(document.place(problems))))
    }

    /// The limits that hold fleet-wide.
    #[must_use]
    pub fn limits(&self, connectors: &BTreeMap<String, Arc<Connector>>) -> Limits {
        let tenants = self.tenants.iter().map(|(name, tenant)| {
            let limits = TenantLimits {
                weight: tenant.weight,
                budget_usd: tenant.budget_usd_per_month,
                budget_units: tenant.budget_units_per_month.clone(),
            };
            (name.clone(), limits)
        });
        Limits {
            connectors: connectors.values().map(|connector| (connector.name.clone(), connector.limits)).collect(),
            tenants: tenants.collect(),
        }
    }

    /// Tenants that have a monthly budget.
    #[must_use]
    pub fn budgeted(&self) -> BTreeSet<String> {
        let has =
            |tenant: &TenantSection| tenant.budget_usd_per_month.is_some() || !tenant.budget_units_per_month.is_empty();
        self.tenants.iter().filter(|(_, tenant)| has(tenant)).map(|(name, _)| name.clone()).collect()
    }

    /// The folder for files under way.
    #[must_use]
    pub fn staging(&self) -> PathBuf {
        if !self.worker.staging.is_empty() {
            return PathBuf::from(&self.worker.staging);
        }
        match self.artifacts.url.strip_prefix("file:") {
            Some(path) => {
                let path = path.trim_start_matches("//").trim_end_matches('/');
                PathBuf::from(format!("{path}.staging"))
            }
            None => PathBuf::from("./artifacts.staging"),
        }
    }

    /// The API's default address, for the command line's own calls.
    #[must_use]
    pub fn api_url(&self) -> String {
        let listen = self.api.listen;
        let host = if listen.ip().is_unspecified() { "127.0.0.1".to_owned() } else { listen.ip().to_string() };
        let host = if listen.is_ipv6() && !listen.ip().is_unspecified() { format!("[{host}]") } else { host };
        format!("http://{host}:{}", listen.port())
    }
}

#[cfg(test)]
mod tests;
