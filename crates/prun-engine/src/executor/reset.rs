//! When a limit is lifted, as clients say it in words.

use std::sync::LazyLock;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, ZonedDateTime, civil};
use prun_core::time::Timestamp;
use regex::{Captures, Regex};

/// `2:22 PM`, `3pm (Europe/Zurich)`, `Dec 3rd, 2026 9:05 AM`, `Dec 3 at 9am`.
static LOCAL_TIME: LazyLock<Regex> = LazyLock::new(|| {
    let date = r"(?:(?<month>[a-z]{3})[a-z]* (?<day>\d{1,2})(?:st|nd|rd|th)?,?(?: (?<year>\d{4}),?)?(?: at)? )?";
    let time = r"(?<hour>\d{1,2})(?::(?<minute>\d\d))? ?(?<half>[ap]m)\b(?: \((?<zone>[\w/+-]+)\))?";
    // ASCII alone: the tables for more would be relocated at the start of every dispatcher.
    Regex::new(&format!("(?i-u)^{date}{time}")).expect("the pattern is tested")
});

/// When a limit is lifted, as far as the message says so: `try again at 2:22 PM`, `try again in 1.5s`,
/// `resets 3pm (Europe/Zurich)`, `limit reached|1796046000` (seconds since 1970).
///
/// Local times have no seconds, so the end of that minute is meant. A time of day that has been over for more
/// than an hour is tomorrow's; a day without a year that has been over for as long is next year's.
#[must_use]
pub(super) fn reset_time(message: &str, now: &ZonedDateTime) -> Option<Timestamp> {
    let at = after(message, &["try again in ", "resets in "])
        .and_then(|span| now.checked_add(leading_span(span)?).ok())
        .or_else(|| local_time(after(message, &["try again at ", "resets at ", "resets "])?, now))
        .map(|at| at.timestamp());
    at.or_else(|| seconds(message)).map(|at| Timestamp(at.as_millisecond()))
}

fn after<'a>(message: &'a str, marks: &[&str]) -> Option<&'a str> {
    marks.iter().find_map(|mark| message.split_once(mark)).map(|(_, rest)| rest)
}

fn seconds(message: &str) -> Option<jiff::Timestamp> {
    let (_, rest) = message.split_once("limit reached|")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    jiff::Timestamp::from_second(digits.parse().ok()?).ok()
}

/// The longest row of words at the start of `text` that reads as a span of time.
fn leading_span(text: &str) -> Option<Span> {
    let words: Vec<&str> = text.split(' ').take(8).collect();
    (1..=words.len()).rev().find_map(|count| words[..count].join(" ").trim_end_matches(['.', ',']).parse().ok())
}

fn local_time(text: &str, now: &ZonedDateTime) -> Option<ZonedDateTime> {
    let found = LOCAL_TIME.captures(text)?;
    let zone = found.name("zone").and_then(|zone| TimeZone::get(zone.as_str()).ok());
    let now = zone.map_or_else(|| now.clone(), |zone| now.with_time_zone(zone));
    let time = civil_time(&found)?;
    let minute = Span::new().minutes(1);
    let on = |date: civil::Date| {
        date.to_datetime(time).to_zoned_datetime(now.time_zone().clone()).ok()?.checked_add(minute).ok()
    };
    let is_to_come = |at: &ZonedDateTime| at.timestamp() >= now.timestamp() - SignedDuration::from_hours(1);
    let Some(day) = found.name("day") else {
        return on(now.date()).filter(is_to_come).or_else(|| on(now.date().tomorrow().ok()?));
    };
    let date =
        |year: i16| civil::Date::strptime("%b %d %Y", format!("{} {} {year}", &found["month"], day.as_str())).ok();
    match found.name("year") {
        Some(year) => on(date(year.as_str().parse().ok()?)?),
        None => on(date(now.year())?).filter(is_to_come).or_else(|| on(date(now.year() + 1)?)),
    }
}

fn civil_time(found: &Captures<'_>) -> Option<civil::Time> {
    let minute = found.name("minute").map_or("00", |minute| minute.as_str());
    civil::Time::strptime("%I:%M %p", format!("{}:{minute} {}", &found["hour"], &found["half"])).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("You've hit your session limit · resets 3pm (Europe/Zurich)", Some("2026-11-30T15:01:00+01:00")),
            ("5-hour limit reached ∙ resets 1:30pm", Some("2026-11-30T13:31:00+01:00")),
            ("You've hit your limit · resets 6am (America/Los_Angeles)", Some("2026-11-30T15:01:00+01:00")),
            ("Weekly limit reached · resets Dec 3, 9am", Some("2026-12-03T09:01:00+01:00")),
            ("Weekly limit reached · resets Jan 2 at 6pm", Some("2027-01-02T18:01:00+01:00")),
            ("Claude AI usage limit reached|1796046000", Some("2026-11-30T13:40:00Z")),
            ("resets soon", None),
            ("limit reached|later", None),
            ("try again at 9:05", None),
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
