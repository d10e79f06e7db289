//! Small things that calls are made of.

use longhaul_registry::Connector;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;

/// How long a paid start may stay silent at this connector's vendor: the model's figure, else the vendor's.
#[must_use]
pub fn start_silence(connector: &Connector, model: Option<&str>) -> Option<Duration> {
    let of_model = model.and_then(|model| connector.vendor.model_silence_s.get(model));
    let seconds = of_model.copied().unwrap_or(connector.vendor.start_silence_s);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Text from data as one segment of a path. `-`, `_` and `.` stay readable.
///
/// `None` where no encoding makes a segment of it: the empty text, `.` and `..`.
#[must_use]
pub fn path_segment(text: &str) -> Option<String> {
    const SET: &percent_encoding::AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    (!matches!(text, "" | "." | "..")).then(|| utf8_percent_encode(text, SET).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_leave_its_segment() {
        assert_eq!(path_segment("flux-2-pro").as_deref(), Some("flux-2-pro"));
        assert_eq!(path_segment("a/../b?c#d e%2f").as_deref(), Some("a%2F..%2Fb%3Fc%23d%20e%252f"));
        for none in ["", ".", ".."] {
            assert_eq!(path_segment(none), None, "{none}");
        }
    }
}
