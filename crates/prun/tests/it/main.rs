//! The integration tests, through the real binary.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod dispatch;
//! prun's tests from outside, in one binary.

#![expect(clippy::unwrap_used, reason = "a test whose set-up fails has failed")]

mod codex_client;
