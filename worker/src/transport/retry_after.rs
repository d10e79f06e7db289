//! `Retry-After` in all its forms (RFC 9110 sections 5.6.7 and 10.2.3), and the clocks of hosts.

use chrono::{DateTime, Datelike, NaiveDateTime, Utc};
use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// No vendor means more than this (some 300 years): what is larger is unreadable.
const MAX_SECONDS: f64 = 1e10;
/// Hosts whose clocks are remembered.
const MAX_HOSTS: usize = 512;

/// How long an answer asks to wait: `retry-after-ms`, else `Retry-After` in seconds (with a fraction or
/// not) or as a date. A date is read against the answer's own `Date`, else against our `now`.
///
/// `None` where nothing readable above zero was said: our own backoff decides then.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    if let Some(wait) = single(headers, "retry-after-ms").and_then(|text| seconds(text, 1000.0)) {
        return Some(wait);
    }
    let text = single(headers, RETRY_AFTER.as_str())?;
    if let Some(wait) = seconds(text, 1.0) {
        return Some(wait);
    }
    let reference = headers.get(DATE).and_then(|value| value.to_str().ok());
    let reference = reference.and_then(|text| http_date(text, now)).unwrap_or(now);
    let wait = http_date(text, reference)? - reference;
    wait.to_std().ok().filter(|wait| !wait.is_zero())
}

/// A header's one value: said twice, it says nothing.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok().map(str::trim)
}

/// Digits, and a fraction where there is one: no sign, no exponent, no words that a float parser knows.
fn seconds(text: &str, per_second: f64) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let value = text.parse::<f64>().ok()? / per_second;
    (value > 0.0 && value <= MAX_SECONDS).then(|| Duration::from_secs_f64(value))
}

/// Reads an HTTP date: IMF-fixdate, RFC 850 or asctime. `near` decides the century of RFC 850's two digits.
#[must_use]
pub fn http_date(text: &str, near: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let text = text.trim();
    let read = |form: &str| NaiveDateTime::parse_from_str(text, form).ok().map(|date| date.and_utc());
    read("%a, %d %b %Y %H:%M:%S GMT").or_else(|| read("%a %b %e %H:%M:%S %Y")).or_else(|| rfc850(text, near))
}

/// The weekday of a two-digit year hangs on the century, so it is not compared.
fn rfc850(text: &str, near: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let (weekday, rest) = text.split_once(", ")?;
    weekday.parse::<chrono::Weekday>().ok()?;
    let date = NaiveDateTime::parse_from_str(rest, "%d-%b-%y %H:%M:%S GMT").ok()?;
    let century = near.year() - near.year().rem_euclid(100);
    let year = century + date.year().rem_euclid(100);
    // RFC 9110: more than 50 years ahead means the century before.
    let year = if year > near.year() + 50 { year - 100 } else { year };
    date.with_year(year).map(|date| date.and_utc())
}

/// How far the clocks of hosts are from ours, learned from their `Date` headers.
#[derive(Debug, Default)]
pub struct Skews {
    hosts: Mutex<HashMap<String, i64>>,
}

impl Skews {
    /// Milliseconds that a host's clock is ahead of ours (negative: behind), to about a second; `None`
    /// before its first answer with a `Date`.
    #[must_use]
    pub fn ahead_ms(&self, host: &str) -> Option<i64> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).get(host).copied()
    }

    /// Learns from an answer that was asked for at `sent_ms` and came at `came_ms`, by our clock.
    pub(crate) fn learn(&self, host: &str, headers: &HeaderMap, sent_ms: i64, came_ms: i64) {
        let middle = sent_ms + (came_ms - sent_ms) / 2;
        let near = DateTime::from_timestamp_millis(middle).unwrap_or_default();
        let Some(date) = headers.get(DATE).and_then(|value| value.to_str().ok()).and_then(|text| http_date(text, near))
        else {
            return;
        };
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= MAX_HOSTS && !hosts.contains_key(host) {
            hosts.clear();
        }
        // A Date is cut to its second: on the average it was half a second later.
        hosts.insert(host.to_owned(), date.timestamp_millis() + 500 - middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeZone;

    fn now() -> DateTime<Utc> {
        Utc.with_ymd_and_hms(2026, 11, 30, 7, 28, 0).unwrap()
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn wait(value: &str) -> Option<Duration> {
        retry_after(&headers(&[("retry-after", value)]), now())
    }

    /// The rows of https://github.com/earendil-works/pi/issues/9571 as the field cases give them.
    #[test]
    fn every_readable_form_is_read_and_nothing_else() {
        assert_eq!(wait("3"), Some(Duration::from_secs(3)));
        assert_eq!(wait("1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(wait(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(wait("86400000"), Some(Duration::from_secs(86_400_000)));
        // RFC 9110 section 5.6.7's three spellings, of 2026-11-30 07:28:04, a Monday.
        assert_eq!(wait("Mon, 30 Nov 2026 07:28:04 GMT"), Some(Duration::from_secs(4)));
        assert_eq!(wait("Monday, 30-Nov-26 07:28:04 GMT"), Some(Duration::from_secs(4)));
        assert_eq!(wait("Mon Nov 30 07:28:04 2026"), Some(Duration::from_secs(4)));
        assert_eq!(wait("Tue Dec  1 07:28:00 2026"), Some(Duration::from_secs(86_400)));
        for unreadable in [
            "Mon, 30 Nov 2026 07:27:00 GMT",
            "Mon, 30 Nov 2026 07:28:00 GMT",
            "Wed, 99 Foo 2026 07:28:00 GMT",
            "-5",
            "+5",
            "",
            "soon",
            "NaN",
            "inf",
            "infinity",
            "0",
            "0.0",
            "4, 9",
            "1e3",
            "0x10",
            "5.",
            ".5",
            "1.5.2",
            "3 seconds",
            "99999999999999999999999999",
            "2026-11-30T07:28:04Z",
            "Mon, 30 Nov 2026 07:28:04 +0000",
        ] {
            assert_eq!(wait(unreadable), None, "{unreadable:?}");
        }
        assert_eq!(retry_after(&headers(&[("retry-after", "4"), ("retry-after", "9")]), now()), None);
        assert_eq!(retry_after(&HeaderMap::new(), now()), None);
    }

    #[test]
    fn dates_are_read_against_the_answers_own_clock() {
        let ahead = "Mon, 30 Nov 2026 07:38:00 GMT";
        for date in ["Mon, 30 Nov 2026 07:38:04 GMT", "Monday, 30-Nov-26 07:38:04 GMT", "Mon Nov 30 07:38:04 2026"] {
            let headers = headers(&[("retry-after", date), ("date", ahead)]);
            assert_eq!(retry_after(&headers, now()), Some(Duration::from_secs(4)), "{date}");
        }
        let past = headers(&[("retry-after", "Mon, 30 Nov 2026 07:37:00 GMT"), ("date", ahead)]);
        assert_eq!(retry_after(&past, now()), None);
        let garbage = headers(&[("retry-after", "Mon, 30 Nov 2026 07:28:04 GMT"), ("date", "yesterday")]);
        assert_eq!(retry_after(&garbage, now()), Some(Duration::from_secs(4)));
    }

    #[test]
    fn milliseconds_win_where_they_are_readable() {
        let both = headers(&[("retry-after-ms", "1250"), ("retry-after", "9")]);
        assert_eq!(retry_after(&both, now()), Some(Duration::from_millis(1250)));
        let broken = headers(&[("retry-after-ms", "soon"), ("retry-after", "9")]);
        assert_eq!(retry_after(&broken, now()), Some(Duration::from_secs(9)));
        let zero = headers(&[("retry-after-ms", "0")]);
        assert_eq!(retry_after(&zero, now()), None);
    }

    #[test]
    fn two_digit_years_fall_into_the_nearer_century() {
        let read = |text: &str| http_date(text, now()).unwrap().year();
        // RFC 9110's own example is of 1994.
        assert_eq!(read("Sunday, 06-Nov-94 08:49:37 GMT"), 1994);
        assert_eq!(read("Sunday, 06-Nov-76 08:49:37 GMT"), 2076);
        assert_eq!(read("Sunday, 06-Nov-77 08:49:37 GMT"), 1977);
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT", now()).unwrap().timestamp(), 784_111_777);
    }

    #[test]
    fn clock_differences_are_learned_a_host() {
        let skews = Skews::default();
        let at = now().timestamp_millis();
        assert_eq!(skews.ahead_ms("a.test"), None);
        skews.learn("a.test", &headers(&[("date", "Mon, 30 Nov 2026 07:38:00 GMT")]), at, at + 1000);
        assert_eq!(skews.ahead_ms("a.test"), Some(600_000));
        skews.learn("a.test", &headers(&[("date", "nonsense")]), at, at);
        assert_eq!((skews.ahead_ms("a.test"), skews.ahead_ms("b.test")), (Some(600_000), None));
    }
}
