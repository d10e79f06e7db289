//! `longhaul store …`: work on a store itself, without a server.

use super::args::Output;
use super::exit::Exit;
use super::output::{list, one, say, text};
use crate::config::{Config, env};
use clap::Subcommand;
use longhaul_store::clock::{Clock, SystemClock};
use longhaul_store::storage::ArtifactStorage;
use longhaul_store::{Access, CopyProgress, Durability, OpenOptions, Store, copy, open, shown_url};
use serde_json::{Value, json};
use std::sync::Arc;

/// `longhaul store …`
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Copy everything from one store into an empty one, and compare the two
    #[command(after_help = "\
Stop every serve, scheduler and worker on both stores first. Leases are not copied: a step under way is due again
at once, and a start that was sent is looked for before it is sent again. Artifacts' bytes stay where they are.

  longhaul store copy sqlite:longhaul.db sqlite:/srv/longhaul/longhaul.db
  longhaul store copy sqlite:longhaul.db redis://db.internal:6379

Of a store on Redis, recorded exchanges lie in artifact storage too: [artifacts] url of the configuration (--config) must be
the one that the store's processes use.

At the end the copy is read back: the table shows records and SHA-256 by kind on both sides. Only a copy that agrees
can be opened; exit 1 where it does not. Then let [store] url name it, start, and keep the old one for a while.")]
    Copy {
        /// The store to copy from, as [store] url has it
        from: String,
        /// The store to copy into: empty, or not there yet
        to: String,
    },
}

/// Records between two lines of progress.
const TOLD_EVERY: u64 = 20_000;

/// Does it.
///
/// # Errors
/// Where a store cannot be opened or copied, and where the copy differs.
pub async fn run(
    output: Output,
    command: StoreCommand,
    load: impl Fn() -> anyhow::Result<Config>,
) -> anyhow::Result<()> {
    let StoreCommand::Copy { from, to } = command;
    if from == to {
        return Err(
            Exit::usage(format!("{} cannot be copied into itself; name another store", shown_url(&from))).into()
        );
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    // A copy's last word makes it whole: should a server forget its last second, what is left is half a copy and opens for nobody.
    let durability = Durability::Everysec;
    let artifacts = if from.starts_with("sqlite:") && to.starts_with("sqlite:") { None } else { artifacts(&load()?)? };
    let options =
        |access| OpenOptions { access, durability, name: "store copy".to_owned(), artifacts: artifacts.clone() };
    let source = open(&from, options(Access::CopyFrom), clock.clone()).await?;
    let target = open(&to, options(Access::CopyInto), clock).await?;
    // What is secret in a URL is in no output.
    let copied = copied(&*source, &*target, &shown_url(&from), &shown_url(&to), output).await;
    target.close().await;
    source.close().await;
    copied
}

/// Where a fleet's store keeps recorded exchanges; `None` where no configuration says anything: a guess would put them where nobody
/// looks for them.
fn artifacts(config: &Config) -> anyhow::Result<Option<ArtifactStorage>> {
    Ok(config.artifacts_named().map(|url| ArtifactStorage::open(url, env::lookup)).transpose()?)
}

async fn copied(from: &dyn Store, to: &dyn Store, from_url: &str, to_url: &str, output: Output) -> anyhow::Result<()> {
    say(&format!("copying {} into {}", shown_url(from_url), shown_url(to_url)));
    let mut told = 0;
    let progress = |progress| {
        let (CopyProgress::Copied(count) | CopyProgress::Verified(count)) = progress;
        told = if count < told { 0 } else { told };
        if count >= told + TOLD_EVERY {
            told = count;
            let verb = if matches!(progress, CopyProgress::Copied(_)) { "copied" } else { "read back" };
            say(&format!("{count} records {verb}"));
        }
    };
    let copied = copy(from, to, progress).await?;
    let rows: Vec<Value> = copied
        .from
        .kinds()
        .into_iter()
        .zip(copied.to.kinds())
        .map(|((kind, from, from_hash), (_, to, to_hash))| {
            let same = (from, &from_hash) == (to, &to_hash);
            json!({"kind": kind, "from": from, "to": to, "from_sha256": from_hash, "to_sha256": to_hash, "same": same})
        })
        .collect();
    let (from_sha256, to_sha256) = (copied.from.sha256(), copied.to.sha256());
    if output == Output::Json {
        let whole = json!({
            "from": from_url, "to": to_url, "same": copied.agrees(), "records": copied.from.count(), "lost": copied.lost,
            "from_sha256": from_sha256, "to_sha256": to_sha256, "kinds": rows,
        });
        one(output, &whole, &[]);
    } else {
        list(
            output,
            "kinds",
            &rows,
            &[
                ("kind", |row| text(&row["kind"])),
                ("from", |row| text(&row["from"])),
                ("to", |row| text(&row["to"])),
                ("from sha256", |row| short(&row["from_sha256"])),
                ("to sha256", |row| short(&row["to_sha256"])),
                ("same", |row| if row["same"] == json!(true) { "yes" } else { "NO" }.to_owned()),
            ],
        );
    }
    say(&format!("from: {} records, sha256 {from_sha256}", copied.from.count()));
    say(&format!("to:   {} records, sha256 {to_sha256}", copied.to.count()));
    if copied.lost > 0 {
        say(&format!(
            "{} recorded exchanges lost their texts: artifact storage does not hold them, and the copy says so in their place; if \
             [artifacts] url names another place than {from_url} uses, name the right one and copy again",
            copied.lost
        ));
    }
    if copied.agrees() {
        say(&format!("the copy agrees; let [store] url be {to_url:?}"));
        return Ok(());
    }
    Err(Exit::failed(format!(
        "the copy differs from its source and cannot be opened; make sure that nobody uses {from_url}, remove what {to_url} \
         holds and copy again"
    ))
    .into())
}

/// The first digits of a hash: enough to see that two differ.
fn short(hash: &Value) -> String {
    text(hash).chars().take(16).collect()
}
