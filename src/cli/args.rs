//! The command line, as clap knows it.

use clap::{Args, Parser, Subcommand, ValueEnum};
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

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing matched, 4 partly failed.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Configuration file [default: longhaul.toml in the current folder, where there is one]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Server that `jobs`, `connectors` and `usage` speak to [default: where the configuration listens]
    #[arg(long, global = true, env = "LONGHAUL_URL", value_name = "URL", hide_env_values = true)]
    pub url: Option<String>,
    /// Token for it
    #[arg(long, global = true, env = "LONGHAUL_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// How results are printed on stdout; everything else goes to stderr
    #[arg(long, short = 'o', global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

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
    /// Look at configuration, store, storage, clock and credentials, and say what is wrong
    Doctor(DoctorArgs),
    /// Explain an error code
    Explain(ExplainArgs),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the API's OpenAPI document
    Openapi,
    /// Create, list and revoke API tokens (works on the configured store directly)
    #[command(subcommand)]
    Tokens(TokensCommand),
}

/// `longhaul demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Folder for the artifacts
    #[arg(long, default_value = "./longhaul-demo", value_name = "DIR")]
    pub out: PathBuf,
    /// Print one job object a line on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}

/// `longhaul serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Listen here instead of where the configuration says
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
}

/// `longhaul sandbox`
#[derive(Debug, Args)]
#[command(after_help = "\
Each vendor's base URL is http://ADDR:PORT/<vendor>. Any key that starts with `sandbox-` works.
Instructions containing `sandbox:<scenario>` choose a path: slow, moderated, fails, asks, empty, expired_url, …
  GET /_control/requests?vendor=   the journal
  GET /_control/starts?vendor=     paid starts, by job
  PUT /_control/faults             inject faults
  PUT /_control/script             script exact answers")]
pub struct SandboxArgs {
    /// Where to listen
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
        job: String,
        /// Its history too
        #[arg(long)]
        events: bool,
    },
    /// Follow one job until it ends
    Watch {
        /// The job's id
        job: String,
    },
    /// Answer the question a job asks
    Answer(AnswerArgs),
    /// Ask for a stop; the job shows what became of it
    Cancel {
        /// Jobs
        #[arg(required = true)]
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
pub struct SubmitArgs {
    /// A JSON file, an NDJSON file (a batch), or `-` for stdin
    pub file: PathBuf,
    /// The same key and body always give the same job
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Show the mapped request and the estimate; store nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the job ends; exit 1 if it did not succeed
    #[arg(long)]
    pub wait: bool,
}

/// `longhaul jobs list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// State, several with commas
    #[arg(long)]
    pub state: Option<String>,
    /// Connector
    #[arg(long)]
    pub connector: Option<String>,
    /// Vendor
    #[arg(long)]
    pub vendor: Option<String>,
    /// Tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Label, KEY=VALUE
    #[arg(long)]
    pub label: Option<String>,
    /// Error code or kind
    #[arg(long)]
    pub error: Option<String>,
    /// Created at or after, RFC 3339
    #[arg(long)]
    pub since: Option<String>,
    /// Created before, RFC 3339
    #[arg(long)]
    pub until: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    pub limit: usize,
}

/// `longhaul jobs answer`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("with").required(true))]
pub struct AnswerArgs {
    /// The job's id
    pub job: String,
    /// The question's id [default: the one that stands]
    #[arg(long)]
    pub question: Option<String>,
    /// Answer with a text
    #[arg(long, group = "with")]
    pub text: Option<String>,
    /// Answer with one of the options
    #[arg(long, group = "with")]
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
    #[arg(required = true)]
    pub jobs: Vec<String>,
    /// From here [default: the cheapest that can help]
    #[arg(long, value_enum)]
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
pub struct ResolveArgs {
    /// The job's id
    pub job: String,
    /// It ran: this is the vendor's id
    #[arg(long, group = "how", value_name = "ID")]
    pub vendor_job_id: Option<String>,
    /// Start again; it may be paid twice (wants --accept-cost)
    #[arg(long, group = "how")]
    pub start_again: bool,
    /// Give up: failed
    #[arg(long, group = "how")]
    pub give_up: bool,
    /// Accept that a start is paid again
    #[arg(long)]
    pub accept_cost: bool,
}

/// `longhaul connectors …`
#[derive(Debug, Subcommand)]
pub enum ConnectorsCommand {
    /// List them with state, jobs in flight and last check
    List,
    /// Try the credential with the vendor's free call
    Check {
        /// Connectors [default: all]
        names: Vec<String>,
    },
    /// Start no more jobs there
    Pause {
        /// The connector
        name: String,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
    /// Start jobs there again
    Resume {
        /// The connector
        name: String,
    },
}

/// `longhaul vendors …`
#[derive(Debug, Subcommand)]
pub enum VendorsCommand {
    /// List them
    List,
    /// Show what one can do, its settings, options and prices
    Show {
        /// The vendor
        vendor: String,
    },
}

/// `longhaul usage`
#[derive(Debug, Args)]
pub struct UsageArgs {
    /// Group by: vendor, unit, tenant, connector, day; several with commas
    #[arg(long, default_value = "vendor,unit")]
    pub by: String,
    /// First day, YYYY-MM-DD
    #[arg(long)]
    pub from: Option<String>,
    /// Last day, YYYY-MM-DD
    #[arg(long)]
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
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `longhaul doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Also run every connector's free check (talks to the vendors)
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
    Create {
        /// submit, read, operate or admin
        #[arg(long)]
        role: String,
        /// Only this tenant
        #[arg(long)]
        tenant: Option<String>,
        /// A name for people
        #[arg(long)]
        name: Option<String>,
    },
    /// List tokens, without the secrets
    List,
    /// Revoke a token
    Revoke {
        /// The token's id
        id: String,
    },
}
