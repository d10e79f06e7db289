//! What buckets need: the names of their settings, and errors without secrets.

use super::StorageError;

/// Settings that are looked up for `s3://`.
pub(super) const S3_NAMES: [&str; 16] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_ALLOW_HTTP",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];
/// Settings that are looked up for `az://`.
pub(super) const AZURE_NAMES: [&str; 17] = [
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "AZURE_AUTHORITY_HOST",
    "AZURE_STORAGE_USE_EMULATOR",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_MSI_ENDPOINT",
    "AZURE_ALLOW_HTTP",
];
/// Settings that are looked up for `gs://`.
pub(super) const GCS_NAMES: [&str; 5] = [
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_BASE_URL",
    "GOOGLE_ALLOW_HTTP",
];

/// A fault of the URL, shown without what must not be shown.
pub(super) fn settings(url: &str, reason: &str) -> StorageError {
    // A URL with a password or a signed query in it is shown without them.
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let url = match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, rest)), Some((_, host))) if rest.contains(':') => format!("{scheme}://…@{host}"),
        _ => url.to_owned(),
    };
    StorageError::Settings { url, reason: reason.to_owned() }
}

/// The values that must never reach an error text.
pub(super) fn secrets_of(options: &[(String, String)]) -> Vec<String> {
    let secret = ["secret", "token", "key", "sas"];
    options
        .iter()
        .filter(|(name, value)| value.len() >= 8 && secret.iter().any(|word| name.contains(word)))
        .map(|(_, value)| value.clone())
        .collect()
}

/// A text without the secrets, and not too long for a log line.
pub(super) fn scrubbed(text: &str, secrets: &[String]) -> String {
    let clean = secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "…"));
    clean.chars().take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::aws::AmazonS3ConfigKey;
    use object_store::azure::AzureConfigKey;
    use object_store::gcp::GoogleConfigKey;

    #[test]
    fn every_name_that_is_looked_up_means_something_to_its_cloud() {
        for name in S3_NAMES {
            name.to_lowercase().parse::<AmazonS3ConfigKey>().unwrap();
        }
        for name in AZURE_NAMES {
            name.to_lowercase().parse::<AzureConfigKey>().unwrap();
        }
        for name in GCS_NAMES {
            name.to_lowercase().parse::<GoogleConfigKey>().unwrap();
        }
    }
}
