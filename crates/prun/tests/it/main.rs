//! The integration tests, through the real binary.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod chaos;
mod codex_client;
mod codex_run;
mod dispatch;
mod examples;
mod scale;
mod attempts;
mod codex_client;
mod detached;
mod dispatch;
mod examples;
mod support;
mod tidy;
mod walk;
