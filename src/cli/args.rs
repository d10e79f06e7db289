//! The command line, as clap knows it.

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use longhaul_scheduler::tokens::Role;
use longhaul_store::JobState;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A durable job queue and worker fleet for jobs that run long at somebody else's API.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, max_term_width = 110, propagate_version = true, disable_help_subcommand = true)]
#[command(after_help = "\
Begin here:
  longhaul demo                         five jobs, no keys, no servers: watch them run
  longhaul serve                        the API on 127.0.0.1:7070, a worker and the embedded store
  longhaul jobs submit job.json --wait  one job, until it ends

Something is wrong: longhaul doctor looks at the installation, longhaul explain CODE at an error.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing matched, 4 partly failed.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Configuration file [default: longhaul.toml in the current folder, where there is one]
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub config: Option<PathBuf>,
    /// Server that `jobs`, `connectors` and `usage` speak to [default: where the configuration listens]
    #[arg(long, global = true, env = "LONGHAUL_URL", value_name = "URL", hide_env_values = true, help_heading = GLOBAL)]
    pub url: Option<String>,
    /// Token for it; the variable keeps it out of the list of processes
    #[arg(long, global = true, env = "LONGHAUL_TOKEN", value_name = "TOKEN", hide_env_values = true, help_heading = GLOBAL)]
    pub token: Option<String>,
    /// How results are printed on stdout; everything else goes to stderr
    #[arg(long, short = 'o', global = true, value_enum, value_name = "FORM", default_value_t = Output::Table, help_heading = GLOBAL)]
    pub output: Output,
}

const GLOBAL: &str = "Global options";

/// The form of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Columns for people.
    Table,
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Ndjson,
}

/// The nouns and verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one job of each kind against stand-ins of the vendors: no keys, no servers
    Demo(DemoArgs),
    /// Run everything in one process: API, worker and the embedded store
    Serve(ServeArgs),
    /// Run the API and the maintenance of a fleet, without a worker; several at once share the duties
    Scheduler(SchedulerArgs),
    /// Run one worker of a fleet; as many as there is work for, on any host
    Worker(WorkerArgs),
    /// Stand-ins of every vendor's server, for tests and trials
    Sandbox(SandboxArgs),
    /// Submit, watch and steer jobs
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Installed accounts of vendors and how they fare
    #[command(subcommand)]
    Connectors(ConnectorsCommand),
    /// What vendors there are, and what each can do
    #[command(subcommand)]
    Vendors(VendorsCommand),
    /// What was used and what it cost
    Usage(UsageArgs),
    /// Describe one media file as an artifact's `spec`
    Probe(ProbeArgs),
    /// Look at configuration, store, storage, certificates and credentials, and say what is wrong
    Doctor(DoctorArgs),
    /// Explain an error code
    Explain(ExplainArgs),
    /// Print shell completions
    #[command(after_help = "\
For instance, in bash:  source <(longhaul completions bash)
in zsh:                 longhaul completions zsh > \"${fpath[1]}/_longhaul\"
in fish:                longhaul completions fish > ~/.config/fish/completions/longhaul.fish")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the API's OpenAPI document (JSON, whatever -o says)
    Openapi,
    /// Create, list and revoke API tokens (works on the configured store directly, beside a running serve too)
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Move everything from one store into another
    #[command(subcommand)]
    Store(super::store::StoreCommand),
}

/// `longhaul demo`
#[derive(Debug, Args)]
#[command(after_help = "\
The vendors are stand-ins on loopback, the store is a temporary file; only the artifacts stay.
Exit 0 when all five jobs succeeded. It takes some ten seconds.")]
pub struct DemoArgs {
    /// Folder for the artifacts
    #[arg(long, default_value = "./longhaul-demo", value_name = "DIR")]
    pub out: PathBuf,
    /// Print one job object a line on stdout instead of the table (as -o ndjson)
    #[arg(long)]
    pub json: bool,
}

/// `longhaul serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Without a longhaul.toml it runs on defaults, with no connector: nothing can be submitted yet. A first one:
  [connectors.flux]
  vendor = \"flux\"
  credential = \"env:BFL_API_KEY\"

Every key with its default stands in docs/CONFIGURATION.md; LONGHAUL__SECTION__KEY in the environment overrides
one. On loopback no token is needed; anywhere else make one first: longhaul tokens create --role admin.
SIGTERM or Ctrl-C stops it in order: steps under way get their time, leases are handed back. A second one ends
it at once; nothing is lost then either.")]
pub struct ServeArgs {
    /// Listen here instead of where the configuration says
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
}

/// `longhaul scheduler`
#[derive(Debug, Args)]
#[command(after_help = "\
A fleet shares one Redis 7 and one place for artifacts; every host has the same longhaul.toml:
  [store]
  url = \"redis://redis.internal:6379\"
  [artifacts]
  url = \"s3://bucket/prefix\"

  longhaul scheduler --listen 0.0.0.0:7070     on one host or several, behind one address
  longhaul worker --listen 0.0.0.0:7072        on as many hosts as there is work for

Schedulers share the maintenance: each duty is one scheduler's, and another's within seconds of its death. Anywhere but
on loopback make a token first: longhaul tokens create --role admin. A store that is away is waited for, at the start
too: /healthz answers 200 and everything else 503 until it is back. SIGTERM gives the duties up and lets requests under
way end; a second one ends it at once. docs/OPERATIONS.md, \"A fleet\", has the whole.")]
pub struct SchedulerArgs {
    /// Listen here instead of where the configuration says
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
}

/// `longhaul worker`
#[derive(Debug, Args)]
#[command(after_help = "\
It reads the same longhaul.toml as the schedulers and keeps nothing that must outlive it: store and artifacts are
shared (longhaul scheduler --help). The vendors' keys must be on this host.

With --listen, or [worker] listen, it serves /healthz (restart it on this), /readyz (503 with the reason when the store
is away, artifacts cannot be written, or it takes nothing while work is due) and /metrics.

SIGTERM hands back at once what has not begun, gives steps under way [worker] drain_s, and hands back the rest: other
workers go on in that moment, and nothing is counted against the jobs. A second signal ends it at once. One that is
killed, or frozen, is replaced after [worker] lease_s; nothing is lost or bought twice either way.")]
pub struct WorkerArgs {
    /// Serve /healthz, /readyz and /metrics here instead of where the configuration says
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
}

/// `longhaul sandbox`
#[derive(Debug, Args)]
#[command(after_help = "\
Each vendor's base URL is http://ADDR:PORT/<vendor>. Any key that starts with `sandbox-` works.
A connector that uses it:
  [connectors.flux]
  vendor = \"flux\"
  credential = \"env:FLUX_KEY\"                    # export FLUX_KEY=sandbox-anything
  base_url = \"http://127.0.0.1:7071/flux\"
  allow_private_network = true

Instructions containing `sandbox:<scenario>` choose a path: slow, moderated, fails, asks, empty, expired_url, …
  GET /_control/requests?vendor=   the journal
  GET /_control/starts?vendor=     paid starts, by job
  PUT /_control/faults             inject faults
  PUT /_control/script             script exact answers")]
pub struct SandboxArgs {
    /// Where to listen; loopback only, as the stand-ins answer anybody
    #[arg(long, default_value = "127.0.0.1:7071", value_name = "ADDR:PORT")]
    pub listen: SocketAddr,
}

/// `longhaul jobs …`
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// Submit a job: a JSON file or `-` for stdin; a .ndjson file is a batch
    Submit(SubmitArgs),
    /// List jobs, newest first
    List(ListArgs),
    /// Show one job
    Show {
        /// The job's id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        job: String,
        /// Its history too (with -o json or ndjson: only the history)
        #[arg(long)]
        events: bool,
    },
    /// Follow one job until it ends or is parked: history on stderr, the job on stdout; exit 1 if it did not succeed
    Watch {
        /// The job's id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        job: String,
    },
    /// Answer the question a job asks
    Answer(AnswerArgs),
    /// Ask for a stop; the job shows what became of it
    Cancel {
        /// Jobs
        #[arg(required = true, value_name = "JOB", value_parser = NonEmptyStringValueParser::new())]
        jobs: Vec<String>,
        /// Why, for the history
        #[arg(long)]
        reason: Option<String>,
    },
    /// Go on with ended or parked jobs from a step: poll and outputs are free, start is paid
    Replay(ReplayArgs),
    /// Run a job's request again as a new job, linked both ways
    Rerun {
        /// The job's id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        job: String,
        /// Changes to the request, as JSON: '{"instructions": "…"}'
        #[arg(long, value_name = "JSON")]
        changes: Option<String>,
        /// Why, for the history
        #[arg(long)]
        reason: String,
    },
    /// Decide about a start that nobody knows about (start_unknown)
    Resolve(ResolveArgs),
}

/// `longhaul jobs submit`
#[derive(Debug, Args)]
#[command(after_help = "\
A job names a connector, a task and what is wanted (longhaul vendors show VENDOR: tasks, formats, options):
  {\"connector\": \"flux\", \"task\": \"image\", \"instructions\": \"a brass telescope on a windowsill\",
   \"media\": {\"width\": 1536, \"height\": 864, \"format\": \"png\"}, \"output_path\": \"assets/hero.png\"}

  longhaul jobs submit job.json --dry-run                 what the vendor would get, and the estimate
  longhaul jobs submit job.json --wait                    until it ends
  longhaul jobs submit jobs.ndjson -o ndjson              a batch: one result a line, in order
  longhaul jobs submit - --idempotency-key T-12 <job.json the same job, however often this is run")]
pub struct SubmitArgs {
    /// A JSON file, an NDJSON file (.ndjson, .jsonl: a batch), or `-` for stdin
    pub file: PathBuf,
    /// The file is a batch, one job a line, whatever its name
    #[arg(long)]
    pub batch: bool,
    /// The same key and body always give the same job; in a batch, line n gets KEY/n
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub idempotency_key: Option<String>,
    /// Show the mapped request and the estimate; store nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the job ends; exit 1 if it did not succeed
    #[arg(long)]
    pub wait: bool,
}

fn key(text: &str) -> Result<String, String> {
    let fits = (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits {
        Ok(text.to_owned())
    } else {
        Err("a key is 1 to 255 printable ASCII characters without blanks".to_owned())
    }
}

/// `longhaul jobs list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only these states, several with commas
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(JobState::ALL.map(JobState::as_str)))]
    pub state: Vec<String>,
    /// Only this connector
    #[arg(long)]
    pub connector: Option<String>,
    /// Only this vendor
    #[arg(long)]
    pub vendor: Option<String>,
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only with this label
    #[arg(long, value_name = "NAME=VALUE")]
    pub label: Option<String>,
    /// Only with this error code or kind
    #[arg(long, value_name = "CODE")]
    pub error: Option<String>,
    /// Created at or after: RFC 3339 (2026-11-30T12:00:00Z) or a UTC day
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Created before
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Go on where the list before ended (its `next_cursor`)
    #[arg(long)]
    pub cursor: Option<String>,
}

/// `longhaul jobs answer`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("with").required(true))]
pub struct AnswerArgs {
    /// The job's id
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub job: String,
    /// The question's id [default: the one that stands]
    #[arg(long, value_name = "ID")]
    pub question_id: Option<String>,
    /// Answer with a text
    #[arg(long, group = "with")]
    pub text: Option<String>,
    /// Answer with one of the options
    #[arg(long, group = "with", value_name = "OPTION")]
    pub choice: Option<String>,
    /// Approve
    #[arg(long, group = "with")]
    pub approve: bool,
    /// Deny
    #[arg(long, group = "with")]
    pub deny: bool,
}

/// `longhaul jobs replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Jobs
    #[arg(required = true, value_name = "JOB", value_parser = NonEmptyStringValueParser::new())]
    pub jobs: Vec<String>,
    /// From here [default: the cheapest that can help]
    #[arg(long, value_enum, value_name = "STEP")]
    pub from: Option<From>,
    /// Why, for the history
    #[arg(long)]
    pub reason: String,
    /// Accept that a start is paid again
    #[arg(long)]
    pub accept_cost: bool,
}

/// Where a replay begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// Ask the vendor again: free.
    Poll,
    /// Fetch the outputs again: free.
    Outputs,
    /// Buy it again: paid.
    Start,
}

impl From {
    /// The word on the wire.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Outputs => "outputs",
            Self::Start => "start",
        }
    }
}

/// `longhaul jobs resolve`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("how").required(true))]
#[command(after_help = "Look at the vendor first: its own console or list of jobs shows whether the start arrived.")]
pub struct ResolveArgs {
    /// The job's id
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub job: String,
    /// It ran: this is the vendor's id
    #[arg(long, group = "how", value_name = "ID")]
    pub vendor_job_id: Option<String>,
    /// It did not run, or nobody can tell
    #[arg(long, group = "how", value_enum)]
    pub outcome: Option<Way>,
    /// Accept that a start is paid again
    #[arg(long)]
    pub accept_cost: bool,
}

/// A way out of `start_unknown` without the vendor's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Start again; it may be paid twice, so it wants --accept-cost.
    #[value(name = "start_again")]
    StartAgain,
    /// End the job as failed.
    #[value(name = "give_up")]
    GiveUp,
}

/// `longhaul connectors …`
#[derive(Debug, Subcommand)]
pub enum ConnectorsCommand {
    /// List them with state, jobs in flight and last check
    List,
    /// Try the credential with the vendor's free call; exit 1 if none works, 4 if some do not
    Check {
        /// Connectors [default: all]
        #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
        names: Vec<String>,
    },
    /// Start no more jobs there; what runs goes on
    Pause {
        /// The connector
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
    /// Start jobs there again
    Resume {
        /// The connector
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
}

/// `longhaul vendors …`
#[derive(Debug, Subcommand)]
pub enum VendorsCommand {
    /// List them
    List,
    /// Show what one can do, its settings, options and prices; for a service that cannot be had, why not
    Show {
        /// The vendor
        vendor: String,
    },
}

/// `longhaul usage`
#[derive(Debug, Args)]
pub struct UsageArgs {
    /// Group by these, several with commas
    #[arg(
        long,
        default_value = "vendor,unit",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(["vendor", "unit", "tenant", "connector", "day"]),
    )]
    pub by: Vec<String>,
    /// First day, YYYY-MM-DD (UTC)
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// Last day, YYYY-MM-DD (UTC)
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
}

/// `longhaul probe`
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// The file
    pub file: PathBuf,
    /// The media type that was declared for it
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// Print JSON (as -o json)
    #[arg(long)]
    pub json: bool,
}

/// `longhaul doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Also run every connector's free check through the running server (talks to the vendors)
    #[arg(long)]
    pub check: bool,
}

/// `longhaul explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The code, such as start_unknown [default: list every code]
    pub code: Option<String>,
}

/// `longhaul tokens …`
#[derive(Debug, Subcommand)]
pub enum TokensCommand {
    /// Create a token; it is shown once
    #[command(after_help = "\
read     look at what its tenant has
submit   read, and submit jobs and inputs
operate  submit, and answer, cancel, replay, resolve; connectors too where it has no tenant
admin    everything")]
    Create {
        /// What it may do
        #[arg(long, value_parser = PossibleValuesParser::new(Role::ALL.map(Role::as_str)))]
        role: String,
        /// Only this tenant [default: every tenant]
        #[arg(long, value_parser = tenant)]
        tenant: Option<String>,
        /// A name for people
        #[arg(long)]
        name: Option<String>,
    },
    /// List tokens, without the secrets
    List,
    /// Revoke a token; it stops working within a second
    Revoke {
        /// The token's id, tok_…
        id: String,
    },
}

fn tenant(text: &str) -> Result<String, String> {
    let rule = "a tenant is letters, digits, `_`, `-` and `.`, at most 64, and begins with a letter or digit";
    if longhaul_registry::is_tenant(text) { Ok(text.to_owned()) } else { Err(rule.to_owned()) }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
