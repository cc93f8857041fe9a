//! When a request is made again.

use std::time::Duration;

use chrono::DateTime;

/// The wait before the second attempt; it doubles with each.
const FIRST_MICROS: u64 = 250_000;
const MOST_MICROS: u64 = 20_000_000;

/// What an HTTP status means to a request for vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The answer is there.
    Good,
    /// The server refuses these texts; fewer of them may pass.
    Refused,
    /// The server may do better later.
    Later,
    /// Neither time nor other texts will help.
    Lost,
}

/// The verdict on a status and, for a status that is none of success, on the body.
pub(super) fn verdict(status: u16, body: &str) -> Verdict {
    match status {
        200..=299 => Verdict::Good,
        400 | 413 | 422 => Verdict::Refused,
        429 if is_out_of_quota(body) => Verdict::Lost,
        408 | 429 | 500 | 502 | 503 | 504 => Verdict::Later,
        _ => Verdict::Lost,
    }
}

/// OpenAI's way to say that the account is empty, which no wait mends.
fn is_out_of_quota(body: &str) -> bool {
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    ["/error/code", "/error/type"]
        .iter()
        .filter_map(|path| body.pointer(path))
        .any(|value| value == "insufficient_quota")
}

/// The wait before the attempt after number `attempt` (from 0): anywhere between nothing and a bound
/// that doubles, so that clients which failed together do not come back together.
pub(super) fn backoff(attempt: u32, jitter: u64) -> Duration {
    let doubled = FIRST_MICROS.saturating_mul(1u64 << attempt.min(32));
    let bound = doubled.min(MOST_MICROS);
    Duration::from_micros(jitter % (bound + 1))
}

/// The wait that a `Retry-After` asks for: seconds, or a date against `now_micros`.
pub(super) fn retry_after(value: &str, now_micros: i64) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // Digits only, so a failure means too many of them.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = DateTime::parse_from_rfc2822(value).ok()?;
    let micros = date.timestamp_micros().saturating_sub(now_micros);
    Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_told_apart() {
        for (status, expected) in [
            (200, Verdict::Good),
            (301, Verdict::Lost),
            (400, Verdict::Refused),
            (401, Verdict::Lost),
            (403, Verdict::Lost),
            (404, Verdict::Lost),
            (408, Verdict::Later),
            (413, Verdict::Refused),
            (422, Verdict::Refused),
            (424, Verdict::Lost),
            (429, Verdict::Later),
            (500, Verdict::Later),
            (501, Verdict::Lost),
            (502, Verdict::Later),
            (503, Verdict::Later),
            (504, Verdict::Later),
        ] {
            assert_eq!(verdict(status, ""), expected, "{status}");
        }
        for body in [
            r#"{"error":{"code":"insufficient_quota"}}"#,
            r#"{"error":{"type":"insufficient_quota","code":null}}"#,
        ] {
            assert_eq!(verdict(429, body), Verdict::Lost);
        }
        let other = r#"{"error":{"code":"rate_limit_exceeded"}}"#;
        assert_eq!(verdict(429, other), Verdict::Later);
    }

    #[test]
    fn waits_double_up_to_their_bound() {
        let most: Vec<u64> = (0..9)
            .map(|attempt| {
                let bound = FIRST_MICROS.saturating_mul(1 << attempt).min(MOST_MICROS);
                assert_eq!(backoff(attempt, 0), Duration::ZERO);
                assert_eq!(backoff(attempt, bound + 1), Duration::ZERO);
                backoff(attempt, bound).as_millis() as u64
            })
            .collect();
        let expected = [250, 500, 1000, 2000, 4000, 8000, 16000, 20000, 20000];
        assert_eq!(most, expected);
        assert!(backoff(u32::MAX, u64::MAX) <= Duration::from_micros(MOST_MICROS));
    }

    #[test]
    fn retry_after_has_two_forms() {
        let now = 1_767_225_600_000_000; // 2026-01-01T00:00:00Z
        let seconds = |text| retry_after(text, now).map(|wait| wait.as_secs());
        assert_eq!(seconds("3"), Some(3));
        assert_eq!(seconds(" 0 "), Some(0));
        assert_eq!(seconds("99999999999999999999999"), Some(u64::MAX));
        assert_eq!(seconds("Thu, 01 Jan 2026 00:00:07 GMT"), Some(7));
        assert_eq!(seconds("Wed, 31 Dec 2025 23:59:59 GMT"), Some(0));
        for bad in ["", "soon", "-1", "1.5", "Thu, 01 Foo 2026 00:00:07 GMT"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
