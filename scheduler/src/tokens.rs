//! API tokens: `lh_<id>_<secret>`, of which only a hash is kept.

use crate::canonical::{hex, sha256_hex};
use longhaul_store::clock::Clock;
use longhaul_store::{Store, StoreError, TokenRow};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// How long a list of tokens is used before it is read again: a revoked token works no longer than that.
const FRESH: Duration = Duration::from_secs(1);

/// A token that is not in the list makes it be read again, at most this often.
const RECHECK: Duration = Duration::from_millis(50);

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look at what its tenant has.
    Read,
    /// Submit jobs and inputs, and look at what its tenant has.
    Submit,
    /// Submit, look, answer, cancel, replay, resolve; connectors too where it has no tenant.
    Operate,
    /// Everything.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 4] = [Self::Read, Self::Submit, Self::Operate, Self::Admin];

    /// The word in rows and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is no role; use read, submit, operate or admin"))
    }
}

/// A new token. The secret is shown here and nowhere again.
#[derive(Clone, PartialEq, Eq)]
pub struct NewToken {
    /// `tok_…`, for lists and for revoking.
    pub id: String,
    /// The whole token.
    pub token: String,
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Makes a token and stores its hash.
///
/// # Errors
/// Where the store cannot write, or the system gives no random bytes.
pub async fn create(
    store: &dyn Store,
    role: Role,
    tenant: Option<String>,
    name: Option<String>,
) -> Result<NewToken, StoreError> {
    let mut secret = [0_u8; 32];
    let random = SystemRandom::new().fill(&mut secret);
    random.map_err(|_| StoreError::Refused("the system gives no random bytes; check /dev/urandom".to_owned()))?;
    let public = Uuid::now_v7().simple().to_string();
    let token = format!("lh_{public}_{}", hex(&secret));
    let id = format!("tok_{public}");
    let row = TokenRow {
        id: id.clone(),
        hash: sha256_hex(token.as_bytes()),
        role: role.as_str().to_owned(),
        tenant,
        name,
        created_ms: store.now_ms().await?,
        revoked_ms: None,
    };
    store.add_token(row).await?;
    Ok(NewToken { id, token })
}

/// The tokens as last read, kept for a moment.
#[derive(Default)]
pub(crate) struct TokenCache {
    last: Mutex<Option<(Duration, Arc<Rows>)>>,
}

/// Live tokens by id.
type Rows = HashMap<String, TokenRow>;

impl TokenCache {
    /// The live row that a presented token belongs to; `None` for an unknown, revoked or malformed one.
    pub(crate) async fn find(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        presented: &str,
    ) -> Result<Option<TokenRow>, StoreError> {
        let mut parts = presented.splitn(3, '_');
        let (Some("lh"), Some(public), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
            return Ok(None);
        };
        let id = format!("tok_{public}");
        let mut rows = self.rows(store, clock, FRESH).await?;
        if !rows.contains_key(&id) {
            rows = self.rows(store, clock, RECHECK).await?;
        }
        let hash = sha256_hex(presented.as_bytes());
        Ok(rows.get(&id).filter(|row| equal(row.hash.as_bytes(), hash.as_bytes())).cloned())
    }

    async fn rows(&self, store: &dyn Store, clock: &dyn Clock, fresh: Duration) -> Result<Arc<Rows>, StoreError> {
        let now = clock.monotonic();
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, rows)) = last
            && now.saturating_sub(at) < fresh
        {
            return Ok(rows);
        }
        let live = store.tokens().await?.into_iter().filter(|row| row.revoked_ms.is_none());
        let rows: Arc<Rows> = Arc::new(live.map(|row| (row.id.clone(), row)).collect());
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Arc::clone(&rows)));
        Ok(rows)
    }
}

/// Compares without telling by its time where the first difference is.
fn equal(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |seen, (a, b)| seen | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_read_as_they_are_written() {
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().unwrap_err().contains("operate"));
    }

    #[test]
    fn comparing_takes_length_and_every_byte_into_account() {
        assert!(equal(b"abcd", b"abcd"));
        assert!(!equal(b"abcd", b"abce") && !equal(b"abcd", b"xbcd") && !equal(b"abcd", b"abc"));
    }

    #[test]
    fn a_new_token_does_not_show_itself_in_logs() {
        let token = NewToken { id: "tok_1".to_owned(), token: "lh_1_sandbox-secret".to_owned() };
        assert!(!format!("{token:?}").contains("sandbox-secret"));
    }
}
