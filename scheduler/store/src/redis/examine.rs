//! What `longhaul doctor` says of a Redis store.

use super::durability::{self, Seal, Server};
use super::link::Link;
use super::names::Names;
use super::open::Parameters;
use super::value::Row;
use crate::{Durability, Finding, StoreResult};

/// Looks at every primary and at what is stored below the prefix.
pub(crate) async fn examine(url: &str, durability: Durability) -> Vec<Finding> {
    let looked = async {
        let parameters = Parameters::of(url)?;
        let link = Link::open(url).await?;
        let servers = durability::look(&link).await?;
        let store = describe(&link, &parameters.prefix).await?;
        StoreResult::Ok((parameters, link, servers, store))
    };
    let (parameters, link, servers, store) = match looked.await {
        Ok(looked) => looked,
        Err(error) => return vec![Finding::new("store", Err(error.to_string()))],
    };
    let mut findings = vec![Finding::new("store", Ok(store))];
    for server in &servers {
        findings.extend(of_server(server, &link.shown));
    }
    let decided = durability::decide(&servers, &link.shown, parameters.meant, durability);
    findings.push(match (decided, durability) {
        (Err(error), _) => Finding::new("store durability", Err(error.to_string())),
        (Ok(_), Durability::Everysec) => Finding::warn(
            "store durability",
            "everysec: a server that dies may forget the last second of what was acknowledged".to_owned(),
        ),
        (Ok(seal), Durability::Strict) => Finding::new("store durability", Ok(in_words(seal).to_owned())),
    });
    for (meant, what) in [
        (parameters.meant.volatile, "volatile=allowed: that jobs may vanish is allowed by [store] url"),
        (parameters.meant.unchecked, "unchecked=allowed: what the server does not show is trusted"),
    ] {
        if meant {
            findings.push(Finding::warn("store durability", what.to_owned()));
        }
    }
    findings
}

fn in_words(seal: Seal) -> &'static str {
    match seal {
        Seal::None => "strict: the server writes each change to disk before it answers",
        Seal::Disk => "strict: submits, signals and starts are waited for on disk (WAITAOF)",
        Seal::Replica => "strict: submits, signals and starts are waited for on a replica (WAIT)",
    }
}

async fn describe(link: &Link, prefix: &str) -> StoreResult<String> {
    let meta = Names::new(prefix, 1).meta();
    let mut row = Row::of(link.run(redis::cmd("HMGET").arg(meta).arg(&["layout", "shards", "loading"])).await?)?;
    Ok(match (row.maybe()?, row.maybe()?, row.maybe()?) {
        (Some(_), _, Some(_)) => {
            return Err(crate::StoreError::Refused(format!(
                "{} holds part of a copy below prefix {prefix}; remove its keys and copy again",
                link.shown
            )));
        }
        (Some(layout), Some(shards), _) => {
            format!("{}, prefix {prefix}: {shards} shards, layout {layout}", link.shown)
        }
        _ => format!("{}, prefix {prefix}: will be founded at the first start", link.shown),
    })
}

fn of_server(server: &Server, shown: &str) -> Vec<Finding> {
    let at = |text: String| if server.node.is_empty() { text } else { format!("{}: {text}", server.node) };
    let mut findings = vec![match server.check_version(shown) {
        Err(error) => Finding::new("store server", Err(error.to_string())),
        Ok(()) if server.version.is_none() => Finding::warn("store server", at(server.hidden.join("; "))),
        Ok(()) => {
            Finding::new("store server", Ok(at(format!("Redis {}, {} replicas", server.version_text, server.replicas))))
        }
    }];
    findings.push(Finding::new("store persistence", Ok(at(server.can_lose()))));
    if let Some(policy) = &server.policy {
        let mib = |bytes: u64| bytes >> 20;
        findings.push(match server.most {
            0 => Finding::warn(
                "store memory",
                at(format!(
                    "{} MiB used, policy {policy}, no limit: where memory runs out the system ends the server; CONFIG SET \
                     maxmemory below what the machine has",
                    mib(server.used)
                )),
            ),
            most => Finding::new(
                "store memory",
                Ok(at(format!("{} of {} MiB used, policy {policy}", mib(server.used), mib(most)))),
            ),
        });
    }
    findings
}
