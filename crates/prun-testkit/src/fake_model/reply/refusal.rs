//! HTTP errors, in the words of each API.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::fake_model::request::Api;

/// The body and further headers of a refusal with `status`; `limit_until`: the account's usage limit is spent
/// until then.
pub(crate) fn refusal(
    api: Api,
    status: u16,
    limit_until: Option<i64>,
    message: &str,
) -> (Value, Vec<(&'static str, String)>) {
    match (api, limit_until) {
        (Api::Messages, Some(until)) => {
            (anthropic(status, "This request would exceed your account's rate limit."), limit_headers(until))
        }
        (Api::Messages, None) => (anthropic(status, message), Vec::new()),
        (Api::Gemini, Some(_)) => (google_quota(status), Vec::new()),
        (Api::Gemini, None) => {
            (json!({"error": {"code": status, "message": message, "status": google_status(status)}}), Vec::new())
        }
        (Api::Responses | Api::Chat, Some(until)) => {
            let error = json!({"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus", "resets_at": until});
            (json!({"error": error}), Vec::new())
        }
        (Api::Responses | Api::Chat, None) => (json!({"error": {"type": "error", "message": message}}), Vec::new()),
    }
}

fn anthropic(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

/// With these headers a limit of an account is told apart from too many requests a minute.
fn limit_headers(until: i64) -> Vec<(&'static str, String)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let left = until.saturating_sub(i64::try_from(now).unwrap_or(i64::MAX)).max(0);
    vec![
        ("retry-after", left.to_string()),
        ("anthropic-ratelimit-unified-status", "rejected".to_owned()),
        ("anthropic-ratelimit-unified-representative-claim", "five_hour".to_owned()),
        ("anthropic-ratelimit-unified-reset", until.to_string()),
        ("anthropic-ratelimit-unified-5h-status", "rejected".to_owned()),
        ("anthropic-ratelimit-unified-5h-reset", until.to_string()),
        ("anthropic-ratelimit-unified-overage-status", "rejected".to_owned()),
    ]
}

fn google_quota(status: u16) -> Value {
    let violation = json!({"quotaMetric": "generativelanguage.googleapis.com/generate_requests_per_day",
                           "quotaId": "GenerateRequestsPerDayPerProjectPerModel"});
    let detail = json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]});
    json!({"error": {"code": status, "message": "You exceeded your current quota.", "status": google_status(status),
                     "details": [detail]}})
}

fn google_status(status: u16) -> &'static str {
    match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    }
}
