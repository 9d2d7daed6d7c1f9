//! The classes of Codex's errors, and when a limit is lifted.

use jiff::{SignedDuration, Span, ZonedDateTime, civil};
use prun_core::outcome::Cause;
use prun_core::time::Timestamp;

/// The class of an error that Codex reported in an `error` or `turn.failed` event. Never to be asked
/// about any other text: a unit may well write about rate limits.
#[must_use]
pub fn classify(message: &str) -> Cause {
    let text = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&["usage limit", "quota exceeded", "exceeded your current quota", "insufficient_quota", "out of credits"]) {
        return Cause::UsageLimit;
    }
    if let Some(status) = http_status(&text) {
        return class_of_status(status);
    }
    if says(&["context window", "context_length_exceeded", "context length"]) {
        return Cause::Context;
    }
    if says(&["not logged in", "log in again", "missing environment variable", "incorrect api key", "invalid api key"])
        || says(&["refresh token", "unauthorized"])
    {
        return Cause::Auth;
    }
    if says(&["rate limit", "too many requests", "at capacity", "high demand", "overloaded"]) {
        return Cause::RateLimit;
    }
    if says(&["stream disconnected", "connection failed", "error sending request", "waiting for network"])
        || says(&["network error", "timeout waiting", "timed out", "connection reset", "connection refused"])
    {
        return Cause::Network;
    }
    if says(&["permission denied", "operation not permitted", "sandbox denied", "denied by sandbox"]) {
        return Cause::Permission;
    }
    Cause::Worker
}

/// The HTTP status that Codex puts into `unexpected status 401 …` and `last status: 429 …`.
fn http_status(text: &str) -> Option<u16> {
    let rest = ["unexpected status ", "last status: "].iter().find_map(|before| text.split_once(before))?.1;
    rest.get(..3)?.parse().ok()
}

fn class_of_status(status: u16) -> Cause {
    match status {
        401 | 403 => Cause::Auth,
        402 => Cause::UsageLimit,
        408 => Cause::Network,
        429 | 500..=599 => Cause::RateLimit,
        _ => Cause::Worker,
    }
}

/// When a limit is lifted, as far as the message says so: `try again at 2:22 PM`, `try again at
/// Dec 3rd, 2026 9:05 AM`, `try again in 1.5s`.
///
/// The local times have no seconds, so the end of that minute is meant. A time of day that has been
/// over for more than an hour is tomorrow's.
#[must_use]
pub fn reset_time(message: &str, now: &ZonedDateTime) -> Option<Timestamp> {
    let (_, when) = message.split_once("try again ")?;
    let at = match when.split_once(' ')? {
        ("in", span) => now.checked_add(leading_span(span)?).ok()?,
        ("at", time) => local_time(time, now)?,
        _ => return None,
    };
    Some(Timestamp(at.timestamp().as_millisecond()))
}

/// The longest row of words at the start of `text` that reads as a span of time.
fn leading_span(text: &str) -> Option<Span> {
    let words: Vec<&str> = text.split(' ').take(8).collect();
    (1..=words.len()).rev().find_map(|count| words[..count].join(" ").trim_end_matches(['.', ',']).parse().ok())
}

fn local_time(text: &str, now: &ZonedDateTime) -> Option<ZonedDateTime> {
    let words: Vec<&str> = text.split_whitespace().take(5).collect();
    let (date, time) = match words.as_slice() {
        [month, day, year, clock, half, ..] => match civil_date(month, day, year) {
            Some(date) => (Some(date), civil_time(clock, half)?),
            None => (None, civil_time(month, day)?),
        },
        [clock, half, ..] => (None, civil_time(clock, half)?),
        _ => return None,
    };
    let minute = Span::new().minutes(1);
    let on = |date: civil::Date| {
        date.to_datetime(time).to_zoned_datetime(now.time_zone().clone()).ok()?.checked_add(minute).ok()
    };
    match date {
        Some(date) => on(date),
        None => on(now.date())
            .filter(|at| at.timestamp() >= now.timestamp() - SignedDuration::from_hours(1))
            .or_else(|| on(now.date().tomorrow().ok()?)),
    }
}

fn civil_date(month: &str, day: &str, year: &str) -> Option<civil::Date> {
    let day = day.trim_end_matches(|c: char| !c.is_ascii_digit());
    civil::Date::strptime("%b %d %Y", format!("{month} {day} {year}")).ok()
}

fn civil_time(clock: &str, half: &str) -> Option<civil::Time> {
    let half = half.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
    civil::Time::strptime("%I:%M %p", format!("{clock} {half}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_a_class() {
        for (message, class) in [
            ("unexpected status 401 Unauthorized: Incorrect API key provided", Cause::Auth),
            ("unexpected status 403 Forbidden: no", Cause::Auth),
            ("Missing environment variable: `KEY`.", Cause::Auth),
            ("Your access token could not be refreshed because your refresh token was revoked.", Cause::Auth),
            ("unexpected status 402 Payment Required: pay", Cause::UsageLimit),
            ("You’ve hit your usage limit. Try again later.", Cause::UsageLimit),
            ("exceeded retry limit, last status: 429 Too Many Requests", Cause::RateLimit),
            ("unexpected status 529 <unknown status code>: Overloaded", Cause::RateLimit),
            ("Selected model is at capacity. Please try a different model.", Cause::RateLimit),
            ("stream disconnected before completion: idle timeout waiting for SSE", Cause::Network),
            ("Connection failed: error sending request", Cause::Network),
            ("Codex ran out of room in the model's context window.", Cause::Context),
            ("unexpected status 404 Not Found: no rate limit for this model", Cause::Worker),
            ("something new", Cause::Worker),
            ("unexpected status ", Cause::Worker),
            ("", Cause::Worker),
        ] {
            assert_eq!(classify(message), class, "{message}");
        }
    }

    #[test]
    fn the_reset_is_read_in_local_time() {
        let now: ZonedDateTime = "2026-11-30T14:11:50+01:00[Europe/Zurich]".parse().unwrap();
        for (message, at) in [
            ("try again at 2:22 PM.", Some("2026-11-30T14:23:00+01:00")),
            // The minute that is running, and one that was over a moment ago.
            ("or try again at 2:11 PM.", Some("2026-11-30T14:12:00+01:00")),
            ("try again at 1:40 PM.", Some("2026-11-30T13:41:00+01:00")),
            ("try again at 9:05 AM.", Some("2026-12-01T09:06:00+01:00")),
            ("try again at Dec 3rd, 2026 9:05 AM.", Some("2026-12-03T09:06:00+01:00")),
            ("Please try again in 1.5s.", Some("2026-11-30T14:11:51.5+01:00")),
            ("Please try again in 250ms. See the docs.", Some("2026-11-30T14:11:50.25+01:00")),
            ("try again in 2 hours 5 minutes, or buy more.", Some("2026-11-30T16:16:50+01:00")),
            ("try again in 3 days", Some("2026-12-03T14:11:50+01:00")),
            ("try again later.", None),
            ("try again at 25:00 PM.", None),
            ("try again at", None),
            ("try again in a while", None),
            ("no such words", None),
        ] {
            let expected = at.map(|at| Timestamp(at.parse::<jiff::Timestamp>().unwrap().as_millisecond()));
            assert_eq!(reset_time(message, &now), expected, "{message}");
        }
    }
}
