//! Cutting secrets and media out of what is kept or shown.
//!
//! Two different things are done here. [`Redactor`] removes values that are known to be secret (our own
//! credentials), in every form in which an answer may echo them. The free functions remove what has the
//! shape of a secret or of media: signed queries, masked headers, base64 bodies.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose};
use http::{HeaderMap, HeaderName, HeaderValue};
use ring::digest;
use std::borrow::Cow;
use std::fmt::Write as _;
use url::Url;

/// What stands where our credential stood.
const CREDENTIAL: &str = "[credential]";
/// What stands for a value that is not kept.
const MASKED: &str = "[masked]";
/// The shortest value, and the shortest encoded form, that is looked for: anything shorter would be found
/// in innocent text.
const MIN_SECRET: usize = 4;
const MIN_ENCODED: usize = 8;
/// A run of base64 characters this long is media, not a word, an id or a token.
const MIN_MEDIA_RUN: usize = 512;

/// Removes known secrets from texts, headers and bodies.
#[derive(Clone, Default)]
pub struct Redactor {
    needles: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("forms", &self.needles.len()).finish()
    }
}

impl Redactor {
    /// Adds a secret: as it is, as JSON writes it, percent-encoded, and as base64 at each of the three
    /// alignments it can have inside a longer encoded text (`user:key` among them). Of `user:password` the
    /// password is one more.
    pub fn add(&mut self, secret: &str) {
        self.add_one(secret);
        if let Some((_, password)) = secret.split_once(':') {
            self.add_one(password);
        }
        // Longest first: a form that contains another is replaced as a whole.
        self.needles.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.needles.dedup();
    }

    fn add_one(&mut self, secret: &str) {
        if secret.len() < MIN_SECRET {
            return;
        }
        self.needles.push(secret.to_owned());
        let quoted = serde_json::to_string(secret).unwrap_or_default();
        let json = quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default().to_owned();
        let percent = percent_encoding::utf8_percent_encode(secret, UNRESERVED).to_string();
        let form: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        for text in [json.replace('/', "\\/"), json, lower_hex(&percent), percent, lower_hex(&form), form] {
            if text.len() >= MIN_SECRET && text != secret {
                self.needles.push(text);
            }
        }
        for shift in 0..3 {
            for engine in [general_purpose::STANDARD_NO_PAD, general_purpose::URL_SAFE_NO_PAD] {
                let core = base64_core(secret.as_bytes(), shift, &engine);
                if core.len() >= MIN_ENCODED {
                    self.needles.push(core);
                }
            }
        }
    }

    /// A text without the secrets.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = Cow::Borrowed(text);
        for needle in &self.needles {
            if out.contains(needle.as_str()) {
                out = Cow::Owned(out.replace(needle.as_str(), CREDENTIAL));
            }
        }
        out
    }

    /// Bytes without the secrets; `None` where there was none in them.
    #[must_use]
    pub fn bytes(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return match self.text(text) {
                Cow::Borrowed(_) => None,
                Cow::Owned(clean) => Some(clean.into_bytes()),
            };
        }
        let mut out: Option<Vec<u8>> = None;
        for needle in &self.needles {
            if let Some(clean) = replace_bytes(out.as_deref().unwrap_or(bytes), needle.as_bytes()) {
                out = Some(clean);
            }
        }
        out
    }

    /// Headers without the secrets.
    pub fn headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            if let Some(clean) = self.bytes(value.as_bytes()) {
                *value = HeaderValue::from_bytes(&clean).unwrap_or(HeaderValue::from_static(CREDENTIAL));
            }
        }
    }
}

/// RFC 3986: everything else is encoded.
const UNRESERVED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn lower_hex(encoded: &str) -> String {
    let mut out = String::with_capacity(encoded.len());
    let mut hex = 0;
    for c in encoded.chars() {
        out.push(if hex > 0 { c.to_ascii_lowercase() } else { c });
        hex = if c == '%' { 2 } else { usize::saturating_sub(hex, 1) };
    }
    out
}

/// The characters of an encoding that depend on the secret alone when `shift` other bytes stand before it.
fn base64_core(secret: &[u8], shift: usize, engine: &GeneralPurpose) -> String {
    let padded: Vec<u8> = std::iter::repeat_n(0, shift).chain(secret.iter().copied()).collect();
    let encoded = engine.encode(&padded);
    let whole = padded.len() * 8 / 6;
    let skip = (shift * 8).div_ceil(6);
    encoded.get(skip..whole).unwrap_or_default().to_owned()
}

fn replace_bytes(haystack: &[u8], needle: &[u8]) -> Option<Vec<u8>> {
    let found = |from: usize| {
        let rest = haystack.get(from..)?;
        rest.windows(needle.len()).position(|window| window == needle).map(|at| from + at)
    };
    let mut at = found(0)?;
    let mut out = Vec::with_capacity(haystack.len());
    let mut done = 0;
    loop {
        out.extend_from_slice(haystack.get(done..at)?);
        out.extend_from_slice(CREDENTIAL.as_bytes());
        done = at + needle.len();
        match found(done) {
            Some(next) => at = next,
            None => break,
        }
    }
    out.extend_from_slice(haystack.get(done..)?);
    Some(out)
}

/// Query names whose values tell a reader something and open nothing.
const PLAIN_QUERY: [&str; 34] = [
    "after",
    "after_id",
    "api-version",
    "before",
    "before_id",
    "beta",
    "count",
    "cursor",
    "date_after_unix",
    "filter",
    "format",
    "from",
    "id",
    "include",
    "limit",
    "model",
    "model_id",
    "offset",
    "order",
    "output_format",
    "page",
    "page_size",
    "per_page",
    "request_id",
    "search",
    "sort",
    "source",
    "start_after_history_item_id",
    "starting_after",
    "state",
    "status",
    "task_id",
    "types",
    "version",
];

/// A URL fit to be kept: no user, no fragment, and of the query only the names, but for values that open
/// nothing (`id`, `limit`, `page`, …).
#[must_use]
pub fn url(url: &Url) -> String {
    let mut out = String::new();
    let host = crate::guard::host_of(url);
    let _ = write!(out, "{}://{host}{}", url.scheme(), url.path());
    for (n, (name, value)) in url.query_pairs().enumerate() {
        let key = name.trim_end_matches("[]").to_ascii_lowercase();
        let plain = PLAIN_QUERY.contains(&key.as_str()) && value.len() <= 128;
        let name: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let value: String =
            if plain { url::form_urlencoded::byte_serialize(value.as_bytes()).collect() } else { "…".into() };
        let _ = write!(out, "{}{name}={value}", if n == 0 { '?' } else { '&' });
    }
    out
}

/// Request headers whose values are kept, besides those the vendor's file fixes.
const PLAIN_REQUEST: [&str; 12] = [
    "accept",
    "accept-encoding",
    "content-length",
    "content-type",
    "idempotency-key",
    "if-range",
    "prefer",
    "range",
    "user-agent",
    "webhook-id",
    "webhook-timestamp",
    "x-idempotency-key",
];

/// Answer headers whose values are kept although they have a word of [`SECRET_WORDS`] in their name.
const PLAIN_ANSWER: [&str; 4] =
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens", "x-tokens-used"];

/// Words in the name of a header that make its value a secret.
const SECRET_WORDS: [&str; 9] =
    ["auth", "cookie", "credential", "key", "password", "secret", "session", "signature", "token"];

/// The value of a request's header as it is kept. `fixed` names the headers of the vendor's file.
#[must_use]
pub fn request_header<'a>(name: &HeaderName, value: &'a HeaderValue, fixed: &dyn Fn(&str) -> bool) -> Cow<'a, str> {
    if value.is_sensitive() {
        return Cow::Borrowed(CREDENTIAL);
    }
    let plain = PLAIN_REQUEST.contains(&name.as_str()) || fixed(name.as_str());
    if plain { String::from_utf8_lossy(value.as_bytes()) } else { Cow::Borrowed(MASKED) }
}

/// The value of an answer's header as it is kept: vendors put ids, prices and limits in headers of their
/// own, so what is masked is what is named like a secret, or longer than such figures are.
#[must_use]
pub fn answer_header<'a>(name: &HeaderName, value: &'a HeaderValue) -> Cow<'a, str> {
    let name = name.as_str();
    let text = String::from_utf8_lossy(value.as_bytes());
    if matches!(name, "location" | "content-location" | "link" | "refresh") {
        return Cow::Owned(match Url::parse(&text) {
            Ok(parsed) => url(&parsed),
            Err(_) => signed_values(&text).into_owned(),
        });
    }
    let secret = SECRET_WORDS.iter().any(|word| name.contains(word)) && !PLAIN_ANSWER.contains(&name);
    if secret || text.len() > 512 { Cow::Borrowed(MASKED) } else { text }
}

/// Query names that sign or open something wherever they stand.
const SIGNED_QUERY: [&str; 22] = [
    "access_token",
    "api_key",
    "apikey",
    "awsaccesskeyid",
    "googleaccessid",
    "hmac",
    "jwt",
    "key",
    "key-pair-id",
    "password",
    "policy",
    "secret",
    "sig",
    "signature",
    "token",
    "x-amz-credential",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-credential",
    "x-goog-signature",
    "x-oss-signature",
    "x-tos-signature",
];

/// A text in which the values of signing query parameters are cut from every URL.
#[must_use]
pub fn signed_values(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut done = 0;
    for (at, _) in text.match_indices('=') {
        if at < done {
            continue;
        }
        let before = text.get(done..at).unwrap_or_default();
        let name_at =
            before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').map_or(0, |found| found + 1);
        let (lead, name) = before.split_at(name_at);
        // In JSON an ampersand may stand as \u0026, whose last digits read as part of the name.
        let (opened, name) = match name.strip_prefix("u0026") {
            Some(rest) if lead.ends_with('\\') => (true, rest),
            _ => (lead.ends_with(['?', '&']) || lead.ends_with("&amp;"), name),
        };
        if !opened || !SIGNED_QUERY.contains(&name.trim_start_matches('_').to_ascii_lowercase().as_str()) {
            continue;
        }
        let value = text.get(at + 1..).unwrap_or_default();
        let length = value.find(|c: char| c.is_whitespace() || "&\"'<>\\)]}`".contains(c)).unwrap_or(value.len());
        if length > 0 {
            out.push_str(text.get(done..=at).unwrap_or_default());
            out.push('…');
            done = at + 1 + length;
        }
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// A text in which long runs of base64 (pictures and sound inside JSON, `data:` URLs) are replaced by hash
/// and length of what they encode.
#[must_use]
pub fn media_runs(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut done, mut at) = (0, 0);
    while at < bytes.len() {
        let end = run_end(bytes, at);
        if end - at >= MIN_MEDIA_RUN {
            let run = text.get(at..end).unwrap_or_default();
            out.push_str(text.get(done..at).unwrap_or_default());
            out.push_str(&describe_base64(run));
            done = end;
        }
        at = end + 1;
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// The end of the run of base64 characters that begins at `from`. JSON may write a slash as `\/`, and the
/// line breaks of an encoding that is folded at 60 characters and more as `\n`.
fn run_end(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut line) = (from, from);
    while let Some(&byte) = bytes.get(at) {
        let inside = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
        match (inside, byte, bytes.get(at + 1)) {
            (true, ..) => at += 1,
            (_, b'\\', Some(b'/')) => at += 2,
            (_, b'\\', Some(b'n' | b'r')) if at - line >= 60 || at == line => {
                at += 2;
                line = at;
            }
            _ => break,
        }
    }
    at
}

fn describe_base64(run: &str) -> String {
    let clean = run.replace("\\n", "").replace("\\r", "").replace("\\/", "/").replace('-', "+").replace('_', "/");
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    match GeneralPurpose::new(&alphabet::STANDARD, config).decode(clean.as_bytes()) {
        Ok(media) => format!("[base64 of {} bytes, sha256 {}]", media.len(), sha256_hex(&media)),
        Err(_) => format!("[{} characters, sha256 {}]", run.len(), sha256_hex(run.as_bytes())),
    }
}

/// Hex SHA-256.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

    const KEY: &str = "sandbox-CANARY/51f0+c2?é";

    fn redactor(secret: &str) -> Redactor {
        let mut redactor = Redactor::default();
        redactor.add(secret);
        redactor
    }

    #[test]
    fn a_secret_is_found_in_every_form_an_answer_may_echo() {
        let redactor = redactor(KEY);
        let percent = "sandbox-CANARY%2F51f0%2Bc2%3F%C3%A9";
        let forms = [
            format!("invalid key {KEY}!"),
            format!("Bearer {KEY}"),
            r"sandbox-CANARY\/51f0+c2?é".to_owned(),
            percent.to_owned(),
            percent.replace("%2F", "%2f").replace("%2B", "%2b").replace("%3F", "%3f").replace("%C3%A9", "%c3%a9"),
        ];
        for form in &forms {
            let clean = redactor.text(form);
            assert!(!clean.contains("CANARY") && clean.contains("[credential]"), "{form} -> {clean}");
        }
        for (before, after) in [("", ""), ("a", "b"), ("user:", ""), ("xx", "yyyy"), ("", ":"), ("{\"k\":\"", "\"}")] {
            let plain = format!("{before}{KEY}{after}");
            for form in [STANDARD.encode(&plain), URL_SAFE_NO_PAD.encode(&plain)] {
                let clean = redactor.text(&form);
                assert!(clean.contains("[credential]"), "{plain}: {form} -> {clean}");
                // What is left of the encoding is at most what the neighbours share with it.
                assert!(clean.len() + STANDARD.encode(KEY).len() <= form.len() + "[credential]".len() + 8, "{clean}");
            }
        }
        assert!(!format!("{redactor:?}").contains("CANARY"));
    }

    #[test]
    fn a_basic_credential_is_found_whole_and_by_its_password() {
        let redactor = redactor("user:sandbox-CANARY");
        assert_eq!(redactor.text("wrong password sandbox-CANARY"), "wrong password [credential]");
        assert!(!redactor.text("Basic dXNlcjpzYW5kYm94LUNBTkFSWQ==").contains("dXNlcjpzYW5kYm94LUNBTkFS"));
        assert_eq!(redactor.text("the user is fine"), "the user is fine");
    }

    #[test]
    fn bytes_that_are_no_text_are_searched_too() {
        let redactor = redactor("sandbox-CANARY");
        let mut body = b"\xff\xfe sandbox-CANARY and sandbox-CANARY".to_vec();
        assert_eq!(redactor.bytes(&body).unwrap(), b"\xff\xfe [credential] and [credential]");
        body.truncate(5);
        assert_eq!(redactor.bytes(&body), None);
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", HeaderValue::from_bytes(b"\xffsandbox-CANARY").unwrap());
        redactor.headers(&mut headers);
        assert_eq!(headers["x-echo"].as_bytes(), b"\xff[credential]");
    }

    #[test]
    fn short_values_are_not_looked_for() {
        assert_eq!(redactor("abc").text("abc abcabc"), "abc abcabc");
    }

    #[test]
    fn of_a_query_only_harmless_values_are_kept() {
        let kept = |text: &str| url(&Url::parse(text).unwrap());
        assert_eq!(
            kept(
                "https://u:CANARY@cdn.test:8443/a/b.png?X-Amz-Signature=CANARY&id=42&types[]=agent.x&key=CANARY#CANARY"
            ),
            "https://cdn.test:8443/a/b.png?X-Amz-Signature=…&id=42&types%5B%5D=agent.x&key=…"
        );
        assert_eq!(kept("https://a.test/x"), "https://a.test/x");
        let long = format!("https://a.test/x?id={}", "a".repeat(129));
        assert_eq!(kept(&long), "https://a.test/x?id=…");
    }

    #[test]
    fn signatures_are_cut_from_links_inside_bodies() {
        let body = r#"{"sample":"https://cdn.test/a.png?se=2026&sig=CANARY%3D&sp=r","n":"https://a.test/?id=7\u0026X-Amz-Signature=CANARY","v":"https://video.test/watch?v=abc","html":"<a href='x?a=1&amp;token=CANARY'>"}"#;
        let clean = signed_values(body);
        assert!(!clean.contains("CANARY"), "{clean}");
        for kept in ["?se=2026&sig=…&sp=r", r"?id=7\u0026X-Amz-Signature=…", "watch?v=abc", "&amp;token=…'>"] {
            assert!(clean.contains(kept), "{kept} in {clean}");
        }
        assert!(matches!(signed_values("signature=kept key=kept a?b=c"), Cow::Borrowed(_)));
    }

    #[test]
    fn base64_media_becomes_hash_and_length() {
        let media: Vec<u8> = (0..1500u32).map(|n| (n * 7 % 251) as u8).collect();
        let expected = format!("[base64 of 1500 bytes, sha256 {}]", sha256_hex(&media));
        let encoded = STANDARD.encode(&media);
        for form in [encoded.clone(), URL_SAFE_NO_PAD.encode(&media), encoded.replace('/', "\\/")] {
            let body = format!(r#"{{"b64_json":"{form}","prompt":"a copper kettle"}}"#);
            assert_eq!(media_runs(&body), format!(r#"{{"b64_json":"{expected}","prompt":"a copper kettle"}}"#));
        }
        let data_url = format!("data:image/png;base64,{encoded}");
        assert_eq!(media_runs(&data_url), format!("data:image/png;base64,{expected}"));
        assert!(matches!(media_runs(&"word ".repeat(500)), Cow::Borrowed(_)));
        // FIPS 180-2, the one-block message "abc".
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn headers_are_masked_by_name() {
        let value = HeaderValue::from_static("https://b.test/?key=CANARY&id=1");
        assert_eq!(answer_header(&HeaderName::from_static("location"), &value), "https://b.test/?key=…&id=1");
        let value = HeaderValue::from_static("42");
        for (name, kept) in
            [("x-fal-billable-units", "42"), ("request-id", "42"), ("x-api-key", MASKED), ("set-cookie", MASKED)]
        {
            assert_eq!(answer_header(&HeaderName::from_static(name), &value), kept);
        }
        let fixed = |name: &str| name == "anthropic-version";
        for (name, kept) in [("anthropic-version", "42"), ("accept", "42"), ("x-own", MASKED)] {
            assert_eq!(request_header(&HeaderName::from_static(name), &value, &fixed), kept);
        }
        let mut secret = HeaderValue::from_static("CANARY");
        secret.set_sensitive(true);
        assert_eq!(request_header(&HeaderName::from_static("accept"), &secret, &fixed), CREDENTIAL);
    }
}
