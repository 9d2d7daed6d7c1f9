//! The decisions of prun as pure functions of values.
//!
//! Nothing here does I/O, reads a clock, the environment or a random number. Read [`unit`] first:
//! the state machine of one unit; then [`event`], the durable vocabulary; then [`supervise`], every
//! decision of a live run.

pub mod answer;
pub mod budget;
pub mod comparison;
pub mod contract;
pub mod digest;
pub mod event;
pub mod explain;
pub mod finding;
pub mod gate;
pub mod ids;
pub mod judge;
pub mod outcome;
pub mod panel;
pub mod plan;
pub mod policy;
pub mod queue;
pub mod rebuild;
pub mod reconcile;
pub mod route;
pub mod run;
pub mod schedule;
pub mod supervise;
pub mod time;
pub mod unit;
pub mod usage;
pub mod view;
