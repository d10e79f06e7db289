//! What a server must be like, and what its settings can lose.

use super::link::Link;
use super::value::{Row, text};
use crate::{Durability, StoreError, StoreResult};

/// What a URL says that it is meant so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meant {
    /// `volatile=allowed`: jobs may vanish.
    pub(super) volatile: bool,
    /// `unchecked=allowed`: what the server does not show is as it must be.
    pub(super) unchecked: bool,
}

/// What makes a change lasting before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seal {
    /// Nothing more: the server does it before it answers, or nobody promised.
    None,
    /// `WAITAOF 1 0`: it is in the server's file on disk.
    Disk,
    /// `WAIT 1`: a replica has it.
    Replica,
}

/// What one primary says of itself; nothing where it does not let us ask.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    /// `host:port` in a Cluster, else empty.
    pub(super) node: String,
    pub(super) version: Option<(u32, u32)>,
    pub(super) version_text: String,
    pub(super) appendonly: Option<bool>,
    pub(super) appendfsync: Option<String>,
    /// Snapshots, as `save` has them; empty for none.
    pub(super) save: Option<String>,
    pub(super) policy: Option<String>,
    pub(super) used: u64,
    /// 0 where there is no limit.
    pub(super) most: u64,
    pub(super) replicas: u32,
    /// The server's words where something was not shown.
    pub(super) hidden: Vec<String>,
}

/// Asks every primary.
pub(super) async fn look(link: &Link) -> StoreResult<Vec<Server>> {
    let mut servers = Vec::new();
    for node in link.primaries().await? {
        let mut server = Server { node, ..Server::default() };
        match link.ask_leave(&server.node, &redis::cmd("INFO")).await? {
            Ok(info) => server.read_info(&text(info)?),
            Err(words) => server.hidden.push(format!("INFO: {words}")),
        }
        for name in ["appendfsync", "save"] {
            match link.ask_leave(&server.node, redis::cmd("CONFIG").arg("GET").arg(name)).await? {
                Ok(pair) => {
                    let mut pair = Row::of(pair)?;
                    let value = if pair.left() == 2 { pair.next().and_then(|_| pair.maybe())? } else { None };
                    match name {
                        "save" => server.save = value,
                        _ => server.appendfsync = value,
                    }
                }
                Err(words) if name != "save" => server.hidden.push(format!("CONFIG GET {name}: {words}")),
                Err(_) => {}
            }
        }
        servers.push(server);
    }
    Ok(servers)
}

impl Server {
    fn read_info(&mut self, info: &str) {
        for line in info.lines() {
            let Some((name, value)) = line.trim_end().split_once(':') else { continue };
            match name {
                "redis_version" => {
                    let mut parts = value.split('.').map(|part| part.parse().unwrap_or(0));
                    self.version = Some((parts.next().unwrap_or(0), parts.next().unwrap_or(0)));
                    value.clone_into(&mut self.version_text);
                }
                "aof_enabled" => self.appendonly = Some(value == "1"),
                "maxmemory_policy" => self.policy = Some(value.to_owned()),
                "used_memory" => self.used = value.parse().unwrap_or(0),
                "maxmemory" => self.most = value.parse().unwrap_or(0),
                _ if name.starts_with("slave") && value.contains("state=online") => self.replicas += 1,
                _ => {}
            }
        }
    }

    fn name<'a>(&'a self, shown: &'a str) -> &'a str {
        if self.node.is_empty() { shown } else { &self.node }
    }

    fn fsync(&self) -> &str {
        self.appendfsync.as_deref().unwrap_or("not shown")
    }

    fn writes_always(&self) -> bool {
        self.appendonly == Some(true) && self.appendfsync.as_deref() == Some("always")
    }

    fn seals_on_disk(&self) -> bool {
        self.appendonly == Some(true) && self.version >= Some((7, 2))
    }

    /// What its settings can lose, in words.
    pub(super) fn can_lose(&self) -> String {
        let snapshots = match self.save.as_deref() {
            Some("") | None => String::new(),
            Some(save) => format!(" (snapshots: save {save})"),
        };
        match (self.appendonly, self.appendfsync.as_deref()) {
            (Some(false), _) => format!("appendonly no: all since its last snapshot goes with the server{snapshots}"),
            (Some(true), Some("always")) => {
                "appendonly yes, appendfsync always: nothing acknowledged is lost with the server".to_owned()
            }
            (Some(true), Some("everysec")) => {
                "appendonly yes, appendfsync everysec: about the last second is lost with the machine".to_owned()
            }
            (Some(true), Some("no")) => {
                "appendonly yes, appendfsync no: half a minute or more is lost with the machine".to_owned()
            }
            _ => "persistence is not shown by the server".to_owned(),
        }
    }

    /// Redis 7 at least: earlier ones lack what scripts use.
    pub(super) fn check_version(&self, shown: &str) -> StoreResult<()> {
        match self.version {
            Some((major, _)) if major < 7 => Err(StoreError::Refused(format!(
                "{} is Redis {}; Longhaul needs 7.0 or newer",
                self.name(shown),
                self.version_text
            ))),
            _ => Ok(()),
        }
    }

    fn check_kept(&self, shown: &str, meant: Meant) -> StoreResult<()> {
        let name = self.name(shown);
        let refused = |why: String| Err(StoreError::Refused(why));
        if !self.hidden.is_empty() && !meant.unchecked {
            return refused(format!(
                "{name} does not let us see whether it keeps what it is told ({}); let the user ask (ACL SETUSER NAME +info \
                 +config|get), or make sure yourself of appendonly yes, appendfsync and maxmemory-policy noeviction, and put \
                 unchecked=allowed into [store] url",
                self.hidden.join("; ")
            ));
        }
        if meant.volatile {
            return Ok(());
        }
        if let Some(policy) = self.policy.as_ref().filter(|policy| *policy != "noeviction") {
            return refused(format!(
                "{name} throws data away when its memory is full (maxmemory-policy {policy}): jobs would vanish; CONFIG SET \
                 maxmemory-policy noeviction, or, where that is meant, put volatile=allowed into [store] url"
            ));
        }
        if self.appendonly == Some(false) {
            return refused(format!(
                "{name} does not keep what it is told (appendonly no): jobs would go with it; CONFIG SET appendonly yes and \
                 CONFIG REWRITE, or, where that is meant, put volatile=allowed into [store] url"
            ));
        }
        if self.appendfsync.as_deref() == Some("no") {
            return refused(format!(
                "{name} writes to disk when its system likes (appendfsync no); CONFIG SET appendfsync everysec, or, where \
                 that is meant, put volatile=allowed into [store] url"
            ));
        }
        Ok(())
    }

    fn check_strict(&self, shown: &str) -> StoreError {
        let file = match (self.appendonly, self.version >= Some((7, 2))) {
            (Some(true), false) => format!("Redis {} has no WAITAOF (7.2)", self.version_text),
            _ => "it writes no append-only file (appendonly no)".to_owned(),
        };
        StoreError::Refused(format!(
            "{} cannot keep [store] durability = \"strict\": appendfsync is {}, {file} and no replica is connected; either \
             CONFIG SET appendonly yes and appendfsync always (then CONFIG REWRITE), or Redis 7.2, or a replica, or set [store] \
             durability = \"everysec\", which may lose the last second of what was acknowledged",
            self.name(shown),
            self.fsync(),
        ))
    }
}

/// Checks all primaries; answers what makes a change lasting.
///
/// # Errors
/// `Refused` with the settings to change and the other way out.
pub(super) fn decide(servers: &[Server], shown: &str, meant: Meant, durability: Durability) -> StoreResult<Seal> {
    for server in servers {
        server.check_version(shown)?;
        server.check_kept(shown, meant)?;
    }
    if durability == Durability::Everysec || servers.iter().all(Server::writes_always) {
        return Ok(Seal::None);
    }
    if servers.iter().all(Server::seals_on_disk) {
        return Ok(Seal::Disk);
    }
    if servers.iter().all(|server| server.replicas > 0) {
        return Ok(Seal::Replica);
    }
    let weak = servers.iter().find(|server| {
        let vouched = meant.unchecked && server.appendfsync.is_none() && server.appendonly != Some(false);
        !(vouched || server.writes_always())
    });
    // What nobody shows is vouched for, and everything else writes always.
    weak.map_or(Ok(Seal::None), |server| Err(server.check_strict(shown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(version: (u32, u32), appendonly: bool, appendfsync: &str, replicas: u32) -> Server {
        Server {
            version: Some(version),
            version_text: format!("{}.{}.0", version.0, version.1),
            appendonly: Some(appendonly),
            appendfsync: Some(appendfsync.to_owned()),
            policy: Some("noeviction".to_owned()),
            replicas,
            ..Server::default()
        }
    }

    fn hidden() -> Server {
        Server {
            hidden: vec!["CONFIG GET appendfsync: NOPERM".to_owned()],
            appendfsync: None,
            ..server((7, 0), true, "", 0)
        }
    }

    const PLAIN: Meant = Meant { volatile: false, unchecked: false };

    fn strict(servers: &[Server], meant: Meant) -> Result<Seal, String> {
        decide(servers, "redis://db", meant, Durability::Strict).map_err(|error| error.to_string())
    }

    #[test]
    fn strict_takes_the_first_way_that_every_primary_has() {
        let (always, newer, backed) = (
            server((7, 0), true, "always", 0),
            server((7, 2), true, "everysec", 0),
            server((7, 0), true, "everysec", 1),
        );
        assert_eq!(strict(std::slice::from_ref(&always), PLAIN), Ok(Seal::None));
        assert_eq!(strict(std::slice::from_ref(&newer), PLAIN), Ok(Seal::Disk));
        assert_eq!(strict(&[backed.clone(), backed], PLAIN), Ok(Seal::Replica));
        let why = strict(&[always, server((7, 0), true, "everysec", 0)], PLAIN).unwrap_err();
        assert!(why.contains("appendfsync always") && why.contains("durability = \"everysec\""), "{why}");
        let newest = server((8, 0), true, "everysec", 0);
        assert_eq!(strict(&[newest], PLAIN), Ok(Seal::Disk));
    }

    #[test]
    fn what_is_volatile_must_be_meant_and_is_never_strict() {
        let (gone, volatile) = (server((7, 4), false, "always", 0), Meant { volatile: true, unchecked: false });
        let everysec = |meant| decide(std::slice::from_ref(&gone), "redis://db", meant, Durability::Everysec);
        assert!(everysec(PLAIN).unwrap_err().to_string().contains("appendonly no"));
        assert_eq!(everysec(volatile).unwrap(), Seal::None);
        assert!(strict(std::slice::from_ref(&gone), volatile).unwrap_err().contains("appendonly no"));
        let evicts = Server { policy: Some("volatile-lru".to_owned()), ..server((7, 4), true, "always", 0) };
        assert!(strict(&[evicts], PLAIN).unwrap_err().contains("maxmemory-policy volatile-lru"));
    }

    #[test]
    fn what_is_not_shown_must_be_vouched_for() {
        let why = strict(&[hidden()], PLAIN).unwrap_err();
        assert!(why.contains("NOPERM") && why.contains("unchecked=allowed"), "{why}");
        let vouched = Meant { volatile: false, unchecked: true };
        assert_eq!(strict(&[hidden()], vouched), Ok(Seal::None));
        // Vouching for one primary says nothing of another that shows what it is.
        assert!(strict(&[hidden(), server((7, 0), true, "everysec", 0)], vouched).is_err());
        assert!(strict(&[server((6, 2), true, "always", 0)], vouched).unwrap_err().contains("7.0 or newer"));
    }

    #[test]
    fn info_is_read() {
        let mut server = Server::default();
        server.read_info(
            "# Server\r\nredis_version:7.2.5\r\nused_memory:1048576\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n\
             aof_enabled:1\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0\r\n\
             slave1:ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=0\r\n",
        );
        assert_eq!((server.version, server.appendonly, server.replicas), (Some((7, 2)), Some(true), 1));
        assert_eq!((server.used, server.most, server.policy.as_deref()), (1 << 20, 0, Some("noeviction")));
    }
}
