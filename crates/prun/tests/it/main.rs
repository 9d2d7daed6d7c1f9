//! The integration tests, through the real binary.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod attempts;
mod bad_input;
mod bench_verbs;
mod beside;
mod budget;
mod chaos;
mod codex_client;
mod codex_run;
mod config;
mod contract;
mod coordinators;
mod detached;
mod dispatch;
mod doctor;
mod examples;
mod figures;
mod generated;
mod holds;
mod input;
mod json;
mod json_pages;
mod ledger;
mod map;
mod mcp;
mod observe;
mod panels;
mod real;
mod recovery;
mod scale;
mod support;
mod tidy;
mod transcripts;
mod tutorial;
mod walk;
mod workspaces;
