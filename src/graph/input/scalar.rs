//! Texts of days and moments.

use chrono::{DateTime, NaiveDate};

/// Days since 1970-01-01 of `YYYY-MM-DD`.
pub(super) fn days(text: &str) -> Option<i32> {
    let bytes = text.as_bytes();
    let shaped = bytes.len() == 10
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if !shaped {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u32>().ok();
    let year = i32::try_from(number(0, 4)?).ok()?;
    let day = NaiveDate::from_ymd_opt(year, number(5, 7)?, number(8, 10)?)?;
    i32::try_from(day.signed_duration_since(NaiveDate::default()).num_days()).ok()
}

/// Microseconds since 1970-01-01 UTC of an RFC 3339 text, or why there are none.
pub(super) fn micros(text: &str) -> Result<i64, &'static str> {
    const SHAPE: &str = "a moment as RFC 3339 with its offset, such as \"2024-05-01T12:00:00Z\"";
    let moment = DateTime::parse_from_rfc3339(text).map_err(|_| SHAPE)?;
    // Beyond nine digits the parser drops what it reads, so the text itself tells.
    let fraction = text.split_once('.').map_or("", |(_, rest)| rest);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit);
    if digits.skip(6).any(|digit| digit != b'0') {
        return Err("a moment to the microsecond: at most six digits of a second");
    }
    if moment.timestamp_subsec_nanos() >= 1_000_000_000 {
        return Err("a moment outside of a leap second: at most 59 seconds");
    }
    Ok(moment.timestamp_micros())
}
