//! The commands, one a file: a struct whose doc comments are the help, and one short function.

pub(crate) mod attach;
pub(crate) mod brief;
pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod dispatch_task;
pub(crate) mod executors;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod integrate;
pub(crate) mod logs;
pub(crate) mod path;
pub(crate) mod reconcile;
pub(crate) mod result;
pub(crate) mod resume;
pub(crate) mod retry;
pub(crate) mod review;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod submit;
pub(crate) mod supervise;
pub(crate) mod undo;
pub(crate) mod wait;
