//! The part of prun that touches the world.
//!
//! [`dispatcher`] owns one worker's life, [`driver`] turns the core's decisions into acts, [`git`] is the
//! only code that runs git, [`ledger`] the only code that knows SQLite, [`home`] knows where things are.

pub mod begin;
pub mod brief;
pub mod clock;
pub mod clones;
pub mod contain;
pub mod control;
pub mod depth;
pub mod dispatcher;
pub mod doctor;
pub mod driver;
pub mod executor;
pub mod export;
pub mod files;
pub mod git;
pub mod home;
pub mod hooks;
pub mod import;
pub mod integrate;
pub mod landing;
pub mod ledger;
pub mod map;
pub mod pressure;
pub mod process;
pub mod rebuild;
pub mod recover;
pub mod reharvest;
pub mod remove;
pub mod retention;
pub mod runs;
pub mod sandbox;
pub mod settings;
pub mod slots;
pub mod spec;
pub mod state_dir;
pub mod survey;
pub mod verbs;
pub mod workshop;
pub mod workspace;
