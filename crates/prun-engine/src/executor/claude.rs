//! Claude Code: its program, its command line, what is known of its versions.
//!
//! The flags were tried with Claude Code 2.1.332.

pub(super) mod errors;
pub(super) mod events;
