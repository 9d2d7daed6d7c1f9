//! The classes of Claude Code's errors. They stand in fields of their own, not only in words.

use prun_core::outcome::Cause;
use serde_json::Value;

use crate::executor::errors::{class_of_status, classify};
use crate::executor::stream::event::text_of;

/// What is known of a request that the provider refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::executor) struct Refusal {
    /// Claude's own word for it: `authentication_failed`, `rate_limit`, …
    pub(super) kind: String,
    /// The HTTP status; `None` where no answer came.
    pub(super) status: Option<u16>,
    /// The type of error that the provider named.
    pub(super) api_type: String,
    /// The provider refused because an account's limit is used up.
    pub(super) is_limit: bool,
}

impl Refusal {
    /// What an `assistant` event says of an error; `None` where it is no error.
    pub(super) fn of(event: &Value) -> Option<Self> {
        let kind = text_of(event, "error");
        if kind.is_empty() && event["is_api_error_message"] != Value::Bool(true) {
            return None;
        }
        Some(Self {
            kind: kind.to_owned(),
            status: status_of(event),
            api_type: text_of(event, "api_error_type").to_owned(),
            is_limit: kind == "usage_limit_reached" || event["rate_limit_info"]["status"] == "rejected",
        })
    }

    /// The class of an error. `is_first`: the client did not try again before it gave up, which it does where
    /// waiting would not help.
    pub(super) fn class(&self, reason: &str, message: &str, is_first: bool) -> Cause {
        let is = |names: &[&str]| names.iter().any(|name| self.kind == *name || self.api_type == *name);
        if reason == "prompt_too_long" {
            return Cause::Context;
        }
        if self.is_limit || is(&["billing_error", "usage_limit_reached"]) {
            return Cause::UsageLimit;
        }
        if is(&["authentication_failed", "authentication_error", "oauth_org_not_allowed"]) {
            return Cause::Auth;
        }
        if self.kind == "rate_limit" {
            return if is_first { Cause::UsageLimit } else { Cause::RateLimit };
        }
        match (self.status, self.kind.as_str()) {
            (Some(status), _) => class_of_status(status),
            (None, "server_error") => Cause::Network,
            (None, _) => classify(message),
        }
    }
}

/// The HTTP status that an event names.
pub(super) fn status_of(event: &Value) -> Option<u16> {
    event["api_error_status"].as_u64().and_then(|status| status.try_into().ok())
}
