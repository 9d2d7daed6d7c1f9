//! The integration tests, through the real binary.

mod dispatch;
