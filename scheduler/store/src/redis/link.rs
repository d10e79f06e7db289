//! Connections: one server (plain, TLS, or found through Sentinel), or a Cluster. They come back by themselves.

use super::script::Script;
use super::value::{Row, list, strange, text};
use crate::{StoreError, StoreResult};
use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo, Slot};
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisError, Value};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, RwLock};
use url::Url;

/// A connection is given up after this long without getting through.
const CONNECT: Duration = Duration::from_secs(5);
/// An answer that takes longer is taken as lost; whatever is sent twice is told by its mark.
const ANSWER: Duration = Duration::from_secs(10);

/// The URLs that lead to Redis, for people.
pub(crate) const SCHEMES: &str = "write redis://[USER:PASSWORD@]HOST:PORT[/DB], redis+sentinel://HOST:PORT,HOST:PORT/NAME or \
    redis-cluster://HOST:PORT,HOST:PORT, each with rediss for TLS";

/// How a server is reached.
enum Dial {
    Direct(Box<Client>),
    Sentinel(Box<Mutex<SentinelClient>>),
}

enum Kind {
    One {
        dial: Dial,
        now: Box<RwLock<Option<(u64, MultiplexedConnection)>>>,
        dialling: Mutex<u64>,
    },
    Cluster {
        connection: ClusterConnection,
        seeds: Vec<Client>,
        /// Scheme and login of every node.
        before: String,
        /// Which primary has a slot, as far as it was asked for.
        slots: Box<RwLock<HashMap<Slot, String>>>,
    },
}

/// The way to the server or servers.
pub(super) struct Link {
    kind: Kind,
    /// What people may see of the address.
    pub(super) shown: String,
}

/// Where a walk over all names goes on: a primary, and the place that it told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScanAt {
    /// `host:port` of a primary; empty for the first one.
    node: String,
    at: String,
}

impl Default for ScanAt {
    fn default() -> Self {
        Self { node: String::new(), at: "0".to_owned() }
    }
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// `Refused` where the URL is no Redis URL; `Unavailable` where nobody answers.
    pub(super) async fn open(url: &str) -> StoreResult<Arc<Self>> {
        let shown = shown(url);
        let kind = match url.split_once("://") {
            Some(("redis" | "rediss", _)) => {
                let client = Client::open(server_url(url)).map_err(|error| refused(&shown, &error))?;
                Kind::One { dial: Dial::Direct(Box::new(client)), now: Box::default(), dialling: Mutex::new(0) }
            }
            Some(("redis+sentinel" | "rediss+sentinel", rest)) => {
                let dial = Dial::Sentinel(Box::new(Mutex::new(sentinel(url, rest, &shown)?)));
                Kind::One { dial, now: Box::default(), dialling: Mutex::new(0) }
            }
            Some(("redis-cluster" | "rediss-cluster", rest)) => cluster(url, rest, &shown).await?,
            _ => return Err(StoreError::Refused(format!("{shown} is no Redis URL; {SCHEMES}"))),
        };
        let link = Arc::new(Self { kind, shown });
        link.run(&redis::cmd("PING")).await?;
        Ok(link)
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.kind, Kind::Cluster { .. })
    }

    /// One command, sent once.
    pub(super) async fn run(&self, cmd: &Cmd) -> StoreResult<Value> {
        self.send(cmd).await.map_err(|error| fault(&self.shown, &error))
    }

    /// One script on one slot, sent once.
    pub(super) async fn eval(&self, script: &Script, keys: &[&str], args: &[Vec<u8>]) -> StoreResult<Value> {
        match self.send(&script.by_digest(keys, args)).await {
            Err(error) if is_no_script(&error) => self.run(&script.by_text(keys, args)).await,
            answer => answer.map_err(|error| fault(&self.shown, &error)),
        }
    }

    /// Addresses of all primaries, in order; one without a name where there is only one.
    pub(super) async fn primaries(&self) -> StoreResult<Vec<String>> {
        let Kind::Cluster { connection, .. } = &self.kind else { return Ok(vec![String::new()]) };
        let every = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let answers = connection.clone().route_command(redis::cmd("PING"), every).await;
        let Value::Map(answers) = answers.map_err(|error| fault(&self.shown, &error))? else {
            return Err(strange("every primary's name"));
        };
        let mut names = answers.into_iter().map(|(name, _)| text(name)).collect::<StoreResult<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    /// One command to one of [`Link::primaries`].
    pub(super) async fn ask(&self, node: &str, cmd: &Cmd) -> StoreResult<Value> {
        let answer = self.ask_node(node, cmd).await?;
        answer.map_err(|error| fault(&self.shown, &error))
    }

    /// The same, where the server may say that this is not for us: then its words.
    pub(super) async fn ask_leave(&self, node: &str, cmd: &Cmd) -> StoreResult<Result<Value, String>> {
        match self.ask_node(node, cmd).await? {
            Ok(answer) => Ok(Ok(answer)),
            Err(error) if matches!(error.code(), Some("NOPERM" | "ERR")) => Ok(Err(error.to_string())),
            Err(error) => Err(fault(&self.shown, &error)),
        }
    }

    async fn ask_node(&self, node: &str, cmd: &Cmd) -> StoreResult<Result<Value, RedisError>> {
        let (Kind::Cluster { connection, .. }, Some((host, port))) = (&self.kind, node.rsplit_once(':')) else {
            return Ok(self.send(cmd).await);
        };
        let port = port.parse().map_err(|_| strange("a primary's port"))?;
        let to = RoutingInfo::SingleNode(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port });
        Ok(connection.clone().route_command(cmd.clone(), to).await.and_then(Value::extract_error))
    }

    /// The primary that has a key; one without a name where there is only one.
    pub(super) async fn node_of(&self, key: &str) -> StoreResult<String> {
        let Kind::Cluster { connection, slots, .. } = &self.kind else { return Ok(String::new()) };
        let slot = Slot::for_key(key);
        if let Some(node) = slots.read().await.get(&slot) {
            return Ok(node.clone());
        }
        let answer = connection.clone().req_packed_command(redis::cmd("CLUSTER").arg("SLOTS")).await;
        let answer = answer.and_then(Value::extract_error).map_err(|error| fault(&self.shown, &error))?;
        let mut known = HashMap::new();
        for range in list(answer)? {
            let mut row = Row::of(range)?;
            let (first, last) = (row.int()?, row.int()?);
            let mut primary = Row::of(row.next()?)?;
            let node = format!("{}:{}", primary.text()?, primary.int()?);
            let in_range = (first..=last).filter_map(|at| Slot::new(u16::try_from(at).ok()?));
            known.extend(in_range.map(|slot| (slot, node.clone())));
        }
        let away = || StoreError::Unavailable(format!("{}: no primary has the slot of {key} now", self.shown));
        let node = known.get(&slot).cloned().ok_or_else(away)?;
        *slots.write().await = known;
        Ok(node)
    }

    /// A connection of its own to a primary.
    pub(super) async fn dial(&self, node: &str) -> StoreResult<MultiplexedConnection> {
        let dialled = match &self.kind {
            Kind::One { dial, .. } => dial.connect().await,
            Kind::Cluster { before, .. } => {
                let client = Client::open(format!("{before}{node}")).map_err(|error| refused(&self.shown, &error))?;
                client.get_multiplexed_async_connection_with_config(&timeouts()).await
            }
        };
        dialled.map_err(|error| fault(&self.shown, &error))
    }

    /// What was known of the Cluster's slots no longer holds.
    pub(super) async fn forget_slots(&self) {
        if let Kind::Cluster { slots, .. } = &self.kind {
            slots.write().await.clear();
        }
    }

    /// An error on a connection of [`Link::dial`].
    pub(super) fn fault(&self, error: &RedisError) -> StoreError {
        fault(&self.shown, error)
    }

    /// One piece of a walk over all names that match, of every primary, and where it goes on; nothing after the last piece.
    /// A name may be told twice where a server shrinks its tables meanwhile.
    pub(super) async fn scan(
        &self,
        pattern: &str,
        from: ScanAt,
        count: usize,
    ) -> StoreResult<(Vec<String>, Option<ScanAt>)> {
        let primaries = self.primaries().await?;
        let node = match primaries.first() {
            Some(first) if from.node.is_empty() => first.clone(),
            _ => from.node,
        };
        if !primaries.contains(&node) {
            let why = format!("{}: {node} is no primary any more, and what it held was not read whole", self.shown);
            return Err(StoreError::Unavailable(why));
        }
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(&from.at).arg("MATCH").arg(pattern).arg("COUNT").arg(count);
        let mut row = Row::of(self.ask(&node, &cmd).await?)?;
        let at = row.text()?;
        let mut names = list(row.next()?)?.into_iter().map(text).collect::<StoreResult<Vec<_>>>()?;
        names.sort();
        names.dedup();
        let next = match at.as_str() {
            "0" => primaries.into_iter().find(|other| *other > node).map(|node| ScanAt { node, ..ScanAt::default() }),
            _ => Some(ScanAt { node, at }),
        };
        Ok((names, next))
    }

    async fn send(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        match &self.kind {
            Kind::Cluster { connection, .. } => {
                connection.clone().req_packed_command(cmd).await.and_then(Value::extract_error)
            }
            Kind::One { dial, now, dialling } => {
                // The guard is let go before anybody dials, who must write.
                let known = now.read().await.clone();
                let (number, mut connection) = match known {
                    Some(known) => known,
                    None => redial(dial, now, dialling).await?,
                };
                let answer = connection.req_packed_command(cmd).await.and_then(Value::extract_error);
                if let Err(error) = &answer
                    && is_broken(error)
                {
                    let mut now = now.write().await;
                    if now.as_ref().is_some_and(|(current, _)| *current == number) {
                        *now = None;
                    }
                }
                answer
            }
        }
    }

    /// A connection that hears what is published.
    pub(super) async fn listen(&self) -> Result<PubSub, RedisError> {
        match &self.kind {
            Kind::One { dial: Dial::Direct(client), .. } => client.get_async_pubsub().await,
            Kind::One { dial: Dial::Sentinel(client), .. } => {
                let client = client.lock().await.async_get_client().await?;
                client.get_async_pubsub().await
            }
            Kind::Cluster { seeds, .. } => {
                let mut last = None;
                for seed in seeds {
                    match seed.get_async_pubsub().await {
                        Ok(heard) => return Ok(heard),
                        Err(error) => last = Some(error),
                    }
                }
                Err(last.unwrap_or_else(|| RedisError::from((ErrorKind::InvalidClientConfig, "no node is named"))))
            }
        }
    }
}

async fn redial(
    dial: &Dial,
    now: &RwLock<Option<(u64, MultiplexedConnection)>>,
    dialling: &Mutex<u64>,
) -> Result<(u64, MultiplexedConnection), RedisError> {
    let mut number = dialling.lock().await;
    // Another may have got through while this one waited.
    let known = now.read().await.clone();
    if let Some(known) = known {
        return Ok(known);
    }
    let connection = dial.connect().await?;
    *number += 1;
    *now.write().await = Some((*number, connection.clone()));
    Ok((*number, connection))
}

impl Dial {
    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        match self {
            Self::Direct(client) => client.get_multiplexed_async_connection_with_config(&timeouts()).await,
            Self::Sentinel(client) => client.lock().await.get_async_connection_with_config(&timeouts()).await,
        }
    }
}

fn timeouts() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(Some(ANSWER))
}

/// The connection is of no use any more, or leads to a server that is no longer the primary.
fn is_broken(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Server(redis::ServerErrorKind::ReadOnly | redis::ServerErrorKind::MasterDown)
        )
}

pub(super) fn is_no_script(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(redis::ServerErrorKind::NoScript))
}

fn refused(shown: &str, error: &RedisError) -> StoreError {
    StoreError::Refused(format!("{shown} cannot be used: {error}; see [store] url in docs/CONFIGURATION.md"))
}

/// An engine error in the store's words.
fn fault(shown: &str, error: &RedisError) -> StoreError {
    let text = format!("{shown}: {error}");
    match (error.kind(), error.code()) {
        (_, Some("OOM" | "MISCONF" | "NOREPLICAS")) => StoreError::Full(text),
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
            StoreError::Refused(format!("{text}; give [store] url a user and a password that may use these keys"))
        }
        (ErrorKind::InvalidClientConfig | ErrorKind::Client, _) => StoreError::Refused(text),
        _ => StoreError::Unavailable(text),
    }
}

/// The address without what is secret in it.
pub(crate) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "the store's address".to_owned() };
    let rest = rest.split('?').next().unwrap_or(rest);
    let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    format!("{scheme}://{hosts}")
}

/// The URL without our own parameters.
fn server_url(url: &str) -> String {
    url.split('?').next().unwrap_or(url).to_owned()
}

/// `user:password@` of an address, as it stands.
fn login(rest: &str) -> (Option<&str>, &str) {
    rest.rsplit_once('@').map_or((None, rest), |(login, hosts)| (Some(login), hosts))
}

/// `redis+sentinel://[user:password@]host:port,host:port/name[/db]`: the hosts are sentinels, the login is the server's.
fn sentinel(url: &str, rest: &str, shown: &str) -> StoreResult<SentinelClient> {
    let rest = rest.split('?').next().unwrap_or(rest);
    let (login, rest) = login(rest);
    let (hosts, name) = rest.split_once('/').unwrap_or((rest, ""));
    let (name, db) = name.split_once('/').unwrap_or((name, "0"));
    if name.is_empty() || hosts.is_empty() {
        return Err(StoreError::Refused(format!(
            "{shown} names no primary; write redis+sentinel://host:26379,host:26379/NAME"
        )));
    }
    let sentinels = hosts.split(',').map(|host| address(host, 26_379, shown)).collect::<StoreResult<Vec<_>>>()?;
    let mut builder = SentinelClientBuilder::new(sentinels, name, SentinelServerType::Master)
        .map_err(|error| refused(shown, &error))?
        .set_client_to_redis_db(db.parse().unwrap_or(0));
    if let Some((user, password)) = login.map(|login| login.split_once(':').unwrap_or(("", login))) {
        builder = builder.set_client_to_redis_password(decoded(password));
        if !user.is_empty() {
            builder = builder.set_client_to_redis_username(decoded(user));
        }
    }
    if url.starts_with("rediss") {
        builder = builder.set_client_to_redis_tls_mode(redis::TlsMode::Secure);
    }
    builder.build().map_err(|error| refused(shown, &error))
}

/// `redis-cluster://[user:password@]host:port,host:port`.
async fn cluster(url: &str, rest: &str, shown: &str) -> StoreResult<Kind> {
    let rest = rest.split(['?', '/']).next().unwrap_or(rest);
    let (login, hosts) = login(rest);
    let scheme = if url.starts_with("rediss") { "rediss" } else { "redis" };
    let login = login.map(|login| format!("{login}@")).unwrap_or_default();
    let before = format!("{scheme}://{login}");
    let urls: Vec<String> = hosts.split(',').map(|host| format!("{before}{host}")).collect();
    let bad = |error: RedisError| refused(shown, &error);
    let infos =
        urls.iter().map(|url| url.as_str().into_connection_info()).collect::<Result<Vec<_>, _>>().map_err(bad)?;
    let seeds = infos.iter().map(|info| Client::open(info.clone())).collect::<Result<Vec<_>, _>>().map_err(bad)?;
    let client = ClusterClientBuilder::new(infos)
        .connection_timeout(CONNECT)
        .response_timeout(ANSWER)
        .retries(3)
        .build()
        .map_err(bad)?;
    let connection = client.get_async_connection().await.map_err(|error| fault(shown, &error))?;
    Ok(Kind::Cluster { connection, seeds, before, slots: Box::default() })
}

fn address(host: &str, port: u16, shown: &str) -> StoreResult<ConnectionAddr> {
    let url = Url::parse(&format!("redis://{host}"))
        .map_err(|error| StoreError::Refused(format!("{host} in {shown} is no address: {error}")))?;
    let name = url.host_str().unwrap_or(host).to_owned();
    Ok(ConnectionAddr::Tcp(name, url.port().unwrap_or(port)))
}

/// A login's text, percent signs read.
fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
