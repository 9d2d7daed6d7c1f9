//! The plan file: what a person or an agent writes, and what the rest of prun gets from it.
//!
//! [`parse`] tells every problem at once, each with its place. It knows the text alone; what depends on the
//! world (the repository, executors, uncommitted work) is [`crate::gate`]'s.

mod ad_hoc;
mod budget;
pub mod duration;
mod fields;
mod map;
pub mod model;
mod panel;
pub mod problem;
mod prompts;
mod read;
pub mod schema;
mod settings;
mod tree;

pub use ad_hoc::{AdHoc, ad_hoc};
pub use model::{CommandLine, Dirty, Env, PlanFile, Prompt, ResultFrom, UnitPlan};
pub use problem::{Place, Problem, render};
pub use prompts::{MAX_PROMPT_BYTES, NamedBy, NamedFile, fill_prompts};
pub use read::{Format, MAX_PLAN_BYTES, MAX_UNITS, check_owned, parse};
pub use schema::schema;

pub(crate) use fields::nearest;

/// What `prun init` writes: a plan that passes [`parse`], with the other keys as comments.
pub const TEMPLATE: &str = include_str!("template.toml");
