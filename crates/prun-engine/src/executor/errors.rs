//! The classes of errors that clients report in words.

use prun_core::outcome::Cause;
use regex::bytes::{Regex, RegexBuilder};

/// A pattern of the user's for lines of a command's output. Its classes and its `(?i)` know ASCII alone: the
/// tables for more would cost every dispatcher time at its start.
///
/// # Errors
/// It is no regular expression.
pub fn pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).unicode(false).build()
}

/// The class of an error that a client reported in an event of its own for errors. Never to be asked
/// about any other text: a unit may well write about rate limits.
#[must_use]
pub(super) fn classify(message: &str) -> Cause {
    let text = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&["usage limit", "quota exceeded", "exceeded your current quota", "insufficient_quota", "out of credits"])
        || says(&["daily quota", "credit balance is too low"])
    {
        return Cause::UsageLimit;
    }
    if let Some(status) = http_status(&text) {
        return class_of_status(status);
    }
    if says(&["context window", "context_length_exceeded", "context length", "prompt is too long"]) {
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
        || says(&["connection dropped", "econnreset", "econnrefused", "socket", "api error: terminated"])
    {
        return Cause::Network;
    }
    if says(&["permission denied", "operation not permitted", "sandbox denied", "denied by sandbox"]) {
        return Cause::Permission;
    }
    Cause::Worker
}

/// The HTTP status in an error's text: Codex's `unexpected status 401 …` and `last status: 429 …`, qwen's
/// `[API Error: 401 …`, gemini's `"code":401`.
fn http_status(text: &str) -> Option<u16> {
    let marks = ["unexpected status ", "last status: ", "api error: ", "\"code\":"];
    marks.iter().filter_map(|mark| text.split_once(mark)?.1.get(..3)?.parse().ok()).next()
}

/// The class of an HTTP status with which a model's provider refused a request.
#[must_use]
pub(super) fn class_of_status(status: u16) -> Cause {
    match status {
        401 | 403 => Cause::Auth,
        402 => Cause::UsageLimit,
        408 => Cause::Network,
        429 | 500..=599 => Cause::RateLimit,
        _ => Cause::Worker,
    }
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
}
