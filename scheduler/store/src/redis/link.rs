//! Connections: one server (plain, TLS, or found through Sentinel), or a Cluster. They come back by themselves.

use crate::{StoreError, StoreResult};
use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, RwLock};
use url::Url;

/// A connection is given up after this long without getting through.
const CONNECT: Duration = Duration::from_secs(5);
/// An answer that takes longer is taken as lost; whatever is sent twice is told by its mark.
const ANSWER: Duration = Duration::from_secs(10);

/// How a server is reached.
enum Dial {
    Direct(Box<Client>),
    Sentinel(Box<Mutex<SentinelClient>>),
}

enum Kind {
    One { dial: Dial, now: Box<RwLock<Option<(u64, MultiplexedConnection)>>>, dialling: Mutex<u64> },
    Cluster { connection: ClusterConnection, seeds: Vec<Client> },
}

/// The way to the server or servers.
pub(super) struct Link {
    kind: Kind,
    /// What people may see of the address.
    pub(super) shown: String,
}

/// A Lua script and its digest, by which the server knows it.
pub(super) struct Script {
    pub(super) text: String,
    sha: String,
}

impl Script {
    pub(super) fn new(parts: &[&str]) -> Self {
        let text = parts.join("\n");
        let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let sha = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { text, sha }
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
            Some(("redis" | "rediss" | "redis+unix" | "unix", _)) => {
                let client = Client::open(server_url(url)).map_err(|error| refused(&shown, &error))?;
                Kind::One { dial: Dial::Direct(Box::new(client)), now: Box::default(), dialling: Mutex::new(0) }
            }
            Some(("redis+sentinel" | "rediss+sentinel", rest)) => {
                let dial = Dial::Sentinel(Box::new(Mutex::new(sentinel(url, rest, &shown)?)));
                Kind::One { dial, now: Box::default(), dialling: Mutex::new(0) }
            }
            Some(("redis-cluster" | "rediss-cluster", rest)) => cluster(url, rest, &shown).await?,
            _ => {
                return Err(StoreError::Refused(format!(
                    "{shown} is no Redis URL; write redis://, rediss://, redis+sentinel:// or redis-cluster://host:port,host:port"
                )));
            }
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
        let call = |name: &str, body: &str| {
            let mut cmd = redis::cmd(name);
            cmd.arg(body).arg(keys.len()).arg(keys);
            for arg in args {
                cmd.arg(arg.as_slice());
            }
            cmd
        };
        match self.send(&call("EVALSHA", &script.sha)).await {
            Err(error) if is_no_script(&error) => self.run(&call("EVAL", &script.text)).await,
            answer => answer.map_err(|error| fault(&self.shown, &error)),
        }
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
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(Some(ANSWER));
    let connection = match dial {
        Dial::Direct(client) => client.get_multiplexed_async_connection_with_config(&config).await?,
        Dial::Sentinel(client) => client.lock().await.get_async_connection_with_config(&config).await?,
    };
    *number += 1;
    *now.write().await = Some((*number, connection.clone()));
    Ok((*number, connection))
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

fn is_no_script(error: &RedisError) -> bool {
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
pub(super) fn shown(url: &str) -> String {
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
    let urls: Vec<String> = hosts.split(',').map(|host| format!("{scheme}://{login}{host}")).collect();
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
    Ok(Kind::Cluster { connection, seeds })
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
