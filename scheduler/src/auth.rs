//! Who calls, and what that caller may do.

use crate::api::{Api, Shared};
use crate::error::{ApiError, ApiResult};
use crate::tokens::Role;
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
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

    /// A job that the caller may see.
    ///
    /// # Errors
    /// 404 where there is none, or it is another tenant's.
    pub(crate) async fn job(&self, api: &Api, id: &str) -> ApiResult<JobRecord> {
        let record = api.store.get(id).await?.filter(|record| self.sees(&record.job.tenant));
        record.ok_or_else(|| ApiError::not_found("job", id))
    }
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Shared) -> ApiResult<Self> {
        let Some(header) = parts.headers.get(AUTHORIZATION) else {
            return match api.options.require_token {
                true => Err(ApiError::unauthenticated("this server wants a token")),
                false => Ok(Self::local()),
            };
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
