//! Auth schemes as data: how a credential is put on a request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use longhaul_registry::AuthScheme;
use secrecy::{ExposeSecret, SecretString};

/// A credential that the scheme cannot carry. It never shows the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Not fit for a header.
    #[error("the credential holds characters that a header cannot carry; check it for stray quotes or accents")]
    Unfit,
    /// Basic wants both halves.
    #[error("the credential has no colon; basic authentication wants user:password")]
    NoColon,
    /// The connector file's header name is none.
    #[error("the header name {0:?} is none; correct the vendor's auth scheme")]
    HeaderName(String),
}

/// Puts a credential on a request. The value is marked sensitive, so that no log prints it.
///
/// # Errors
/// Where the scheme cannot carry the credential.
pub fn apply(scheme: &AuthScheme, credential: &SecretString, headers: &mut HeaderMap) -> Result<(), AuthError> {
    let key = credential.expose_secret();
    let (name, value) = match scheme {
        AuthScheme::None => return Ok(()),
        AuthScheme::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
        AuthScheme::Basic if !key.contains(':') => return Err(AuthError::NoColon),
        AuthScheme::Basic => (AUTHORIZATION, format!("Basic {}", STANDARD.encode(key))),
        AuthScheme::Header { name } => {
            let name: HeaderName = name.parse().map_err(|_| AuthError::HeaderName(name.clone()))?;
            (name, key.to_owned())
        }
    };
    if !value.is_ascii() {
        return Err(AuthError::Unfit);
    }
    let mut value = HeaderValue::try_from(value).map_err(|_| AuthError::Unfit)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(scheme: &AuthScheme, key: &str) -> Result<HeaderMap, AuthError> {
        let mut headers = HeaderMap::new();
        apply(scheme, &SecretString::from(key), &mut headers).map(|()| headers)
    }

    #[test]
    fn each_scheme_writes_its_header() {
        // RFC 7617 section 2 and RFC 6750 section 2.1 give these two.
        let basic = applied(&AuthScheme::Basic, "Aladdin:open sesame").unwrap();
        assert_eq!(basic["authorization"], "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        let bearer = applied(&AuthScheme::Bearer, "mF_9.B5f-4.1JqM").unwrap();
        assert_eq!(bearer["authorization"], "Bearer mF_9.B5f-4.1JqM");
        let named = applied(&AuthScheme::Header { name: "x-key".to_owned() }, "sandbox-1").unwrap();
        assert_eq!(named["x-key"], "sandbox-1");
        assert!(applied(&AuthScheme::None, "sandbox-1").unwrap().is_empty());
        for headers in [basic, bearer, named] {
            assert!(headers.values().all(HeaderValue::is_sensitive));
            assert!(!format!("{headers:?}").contains("sandbox"));
        }
    }

    #[test]
    fn unfit_credentials_are_refused_without_being_shown() {
        for (scheme, key) in [
            (AuthScheme::Bearer, "sandbox-CANARY\r\nx: y"),
            (AuthScheme::Bearer, "sandbox-CANARY-\u{e9}"),
            (AuthScheme::Basic, "CANARY-without-colon"),
            (AuthScheme::Header { name: "not a name".to_owned() }, "CANARY"),
        ] {
            let error = applied(&scheme, key).unwrap_err();
            assert!(!error.to_string().contains("CANARY") && !format!("{error:?}").contains("CANARY"));
        }
    }
}
