//! Credentials by reference, resolved at the moment of use and never kept.

use secrecy::SecretString;
use std::fmt;
use std::sync::Arc;

/// A credential's file holds no more than this.
const MAX_BYTES: u64 = 64 << 10;

/// Why a credential cannot be used. It names the reference, never the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The reference is neither `env:NAME` nor `file:PATH`.
    #[error("a credential is given as env:NAME or file:PATH, never as the value itself")]
    NotAReference,
    /// The variable is not set.
    #[error("{reference} is not set; export the variable for the worker's process")]
    Unset {
        /// The reference.
        reference: String,
    },
    /// The file cannot be read.
    #[error("{reference} cannot be read ({why}); check that the file exists and that the worker may read it")]
    Unreadable {
        /// The reference.
        reference: String,
        /// The operating system's word.
        why: String,
    },
    /// There is nothing in it.
    #[error("{reference} is empty; put the key into it")]
    Empty {
        /// The reference.
        reference: String,
    },
    /// It holds what no key holds.
    #[error("{reference} holds a line break or another control character; keep the key alone in it, on one line")]
    ControlCharacter {
        /// The reference.
        reference: String,
    },
}

/// Reads one environment variable.
pub type EnvLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Resolves references. Files are read again at every use, so that a rotated secret is taken up at once.
#[derive(Clone)]
pub struct Credentials {
    env: EnvLookup,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// A resolver over an environment.
    #[must_use]
    pub fn new(env: EnvLookup) -> Self {
        Self { env }
    }

    /// Resolves `env:NAME` or `file:PATH` (one trailing line break is cut, as editors and `echo` leave it).
    ///
    /// # Errors
    /// Where nothing usable stands behind the reference.
    pub async fn resolve(&self, reference: &str) -> Result<SecretString, CredentialError> {
        let value = if let Some(name) = reference.strip_prefix("env:") {
            (self.env)(name).ok_or_else(|| CredentialError::Unset { reference: reference.to_owned() })?
        } else if let Some(path) = reference.strip_prefix("file:") {
            read_file(path).await.map_err(|why| CredentialError::Unreadable { reference: reference.to_owned(), why })?
        } else {
            return Err(CredentialError::NotAReference);
        };
        let value = value.strip_suffix('\n').unwrap_or(&value);
        let value = value.strip_suffix('\r').unwrap_or(value);
        if value.trim().is_empty() {
            return Err(CredentialError::Empty { reference: reference.to_owned() });
        }
        if value.chars().any(char::is_control) {
            return Err(CredentialError::ControlCharacter { reference: reference.to_owned() });
        }
        Ok(SecretString::from(value))
    }
}

async fn read_file(path: &str) -> Result<String, String> {
    let about = tokio::fs::metadata(path).await.map_err(|error| error.kind().to_string())?;
    if !about.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if about.len() > MAX_BYTES {
        return Err(format!("it is larger than {MAX_BYTES} bytes"));
    }
    let bytes = tokio::fs::read(path).await.map_err(|error| error.kind().to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is no UTF-8 text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    fn credentials() -> Credentials {
        Credentials::new(Arc::new(|name| match name {
            "GOOD" => Some("sandbox-CANARY-1".to_owned()),
            "BLANK" => Some(" \n".to_owned()),
            "BROKEN" => Some("sandbox-\r\nCANARY".to_owned()),
            _ => None,
        }))
    }

    #[tokio::test]
    async fn references_are_read_at_every_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let reference = format!("file:{}", path.display());
        for key in ["sandbox-one", "sandbox-two\n", "sandbox-three\r\n"] {
            std::fs::write(&path, key).unwrap();
            assert_eq!(credentials().resolve(&reference).await.unwrap().expose_secret(), key.trim_end());
        }
        // A Kubernetes secret is a link to a file in a folder that is swapped.
        #[cfg(unix)]
        {
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            let reference = format!("file:{}", link.display());
            assert_eq!(credentials().resolve(&reference).await.unwrap().expose_secret(), "sandbox-three");
        }
        assert_eq!(credentials().resolve("env:GOOD").await.unwrap().expose_secret(), "sandbox-CANARY-1");
    }

    #[tokio::test]
    async fn errors_name_the_reference_and_never_the_value() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| format!("file:{}", folder.path().join(name).display());
        std::fs::write(folder.path().join("two-lines"), "sandbox-CANARY\nsandbox-CANARY\n").unwrap();
        std::fs::write(folder.path().join("latin"), b"sandbox-CANARY-\xff").unwrap();
        let references = [
            "env:MISSING",
            "env:BLANK",
            "env:BROKEN",
            "sandbox-CANARY",
            &at("two-lines"),
            &at("none"),
            &at("latin"),
            &at(""),
        ];
        for reference in references {
            let error = credentials().resolve(reference).await.unwrap_err();
            assert!(!error.to_string().contains("CANARY"), "{error}");
            if reference != "sandbox-CANARY" {
                assert!(error.to_string().contains(reference), "{error} / {reference}");
            }
        }
        assert_eq!(
            credentials().resolve("env:BLANK").await.unwrap_err(),
            CredentialError::Empty { reference: "env:BLANK".to_owned() }
        );
        assert!(!format!("{:?}", credentials().resolve("env:GOOD").await.unwrap()).contains("CANARY"));
    }
}
