//! Who calls, and what that caller may do.

use crate::api::{Api, Shared};
use crate::archive::ArchivedJob;
use crate::error::{ApiError, ApiResult};
use crate::tokens::Role;
use crate::view::JobJson;
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use longhaul_store::JobRecord;

/// The tenant where nobody names one.
pub(crate) const DEFAULT_TENANT: &str = "default";

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// To look.
    Read,
    /// To submit jobs and inputs.
    Submit,
    /// To act on jobs and connectors.
    Operate,
}

/// A job that was looked up.
#[derive(Debug)]
pub(crate) enum Seen {
    /// In the store.
    Here(Box<JobRecord>),
    /// In the archive: it changes no more.
    Archived(Box<ArchivedJob>),
}

impl Seen {
    /// As callers see it.
    pub(crate) fn json(&self) -> JobJson {
        match self {
            Self::Here(record) => JobJson::new(record),
            Self::Archived(archived) => JobJson::archived(archived),
        }
    }
}

/// A caller whose token was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// For histories: the token's id and name, or `local`.
    pub(crate) name: String,
    role: Role,
    /// Only this tenant; every tenant where `None`.
    tenant: Option<String>,
}

impl Caller {
    /// Whoever reaches a listener that wants no token.
    fn local() -> Self {
        Self { name: "local".to_owned(), role: Role::Admin, tenant: None }
    }

    /// The role allows it.
    ///
    /// # Errors
    /// 403, naming the roles that would do.
    pub(crate) fn may(&self, need: Need) -> ApiResult<()> {
        let (allowed, wanted) = match need {
            Need::Read => (true, "read"),
            Need::Submit => (self.role >= Role::Submit, "submit"),
            Need::Operate => (self.role >= Role::Operate, "operate"),
        };
        if allowed {
            return Ok(());
        }
        let hint = format!("use a token with the role {wanted} or a higher one (read < submit < operate < admin)");
        Err(ApiError::forbidden(format!("the role {} may not do this", self.role), hint))
    }

    /// It may act on what belongs to no tenant, such as connectors.
    ///
    /// # Errors
    /// 403 for a lower role or a token of one tenant.
    pub(crate) fn may_operate_all(&self) -> ApiResult<()> {
        self.may(Need::Operate)?;
        match &self.tenant {
            None => Ok(()),
            Some(tenant) => Err(ApiError::forbidden(
                format!("connectors are shared, and this token is only for tenant {tenant:?}"),
                "use a token that was created without --tenant",
            )),
        }
    }

    /// Whether what belongs to a tenant is the caller's to see.
    pub(crate) fn sees(&self, tenant: &str) -> bool {
        self.tenant.as_deref().is_none_or(|own| own == tenant)
    }

    /// The tenant of a new job or input.
    ///
    /// # Errors
    /// 403 where another tenant than the token's is asked for.
    pub(crate) fn tenant_for(&self, asked: Option<&str>) -> ApiResult<String> {
        match (&self.tenant, asked) {
            (Some(own), Some(asked)) if own != asked => Err(ApiError::forbidden(
                format!("this token is for tenant {own:?}, not for {asked:?}"),
                "leave `tenant` out, or use that tenant's token",
            )),
            (Some(own), _) => Ok(own.clone()),
            (None, asked) => Ok(asked.unwrap_or(DEFAULT_TENANT).to_owned()),
        }
    }

    /// The tenant that a list is narrowed to.
    ///
    /// # Errors
    /// 403 where another tenant than the token's is asked for.
    pub(crate) fn tenant_filter(&self, asked: Option<String>) -> ApiResult<Option<String>> {
        match &self.tenant {
            None => Ok(asked),
            Some(_) => self.tenant_for(asked.as_deref()).map(Some),
        }
    }

    /// A job that the caller may see and that can still change.
    ///
    /// # Errors
    /// 404 where there is none, or it is another tenant's; 409 where it is in the archive.
    pub(crate) async fn job(&self, api: &Api, id: &str) -> ApiResult<JobRecord> {
        match self.seen(api, id).await? {
            Seen::Here(record) => Ok(*record),
            Seen::Archived(_) => Err(ApiError::archived(id)),
        }
    }

    /// A job that the caller may see, in the store or in the archive.
    ///
    /// # Errors
    /// 404 where there is none, or it is another tenant's.
    pub(crate) async fn seen(&self, api: &Api, id: &str) -> ApiResult<Seen> {
        let not_found = || ApiError::not_found("job", id);
        if let Some(record) = api.store.get(id).await? {
            let visible = Some(record).filter(|record| self.sees(&record.job.tenant));
            return visible.map(|record| Seen::Here(Box::new(record))).ok_or_else(not_found);
        }
        let archived = api.archive.find(id).await?.filter(|archived| self.sees(&archived.job.tenant));
        archived.map(|archived| Seen::Archived(Box::new(archived))).ok_or_else(not_found)
    }
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Shared) -> ApiResult<Self> {
        let Some(header) = parts.headers.get(AUTHORIZATION) else {
            if api.options.require_token {
                return Err(ApiError::unauthenticated("this server wants a token"));
            }
            refuse_web_pages(&parts.headers)?;
            return Ok(Self::local());
        };
        let bearer = header.to_str().ok().and_then(|text| text.split_once(' '));
        let Some((_, presented)) = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) else {
            return Err(ApiError::unauthenticated("the Authorization header is no bearer token"));
        };
        let row = api.tokens.find(&*api.store, &*api.clock, presented.trim()).await?;
        let row = row.ok_or_else(|| ApiError::unauthenticated("the token is unknown or revoked"))?;
        let role =
            row.role.parse().map_err(|message: String| ApiError::internal(format!("token {}: {message}", row.id)))?;
        let name = row.name.map_or_else(|| row.id.clone(), |name| format!("{name} ({})", row.id));
        Ok(Self { name, role, tenant: row.tenant })
    }
}

/// Where no token is needed, whoever reaches loopback may spend money: a web page that the user happens to
/// have open must not, neither across origins nor by a name that was rebound to loopback.
fn refuse_web_pages(headers: &HeaderMap) -> ApiResult<()> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"));
    let host = text(HOST.as_str());
    let foreign_host = host.is_some_and(|host| !is_loopback(host));
    let foreign_origin = text(ORIGIN.as_str()).is_some_and(|origin| {
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        own.is_none() || own != host
    });
    let foreign_site = text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
    if foreign_host || foreign_origin || foreign_site {
        let message = "this server wants no token, so it answers loopback callers only, not web pages of others";
        let hint = "call it as http://127.0.0.1 or http://localhost, or with a token";
        return Err(ApiError::forbidden(message, hint));
    }
    Ok(())
}

/// Whether a `Host` header names this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let by_name = name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost");
    by_name || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
