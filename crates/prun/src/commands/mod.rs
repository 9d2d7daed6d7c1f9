//! The verbs, one a file.

pub(crate) mod dispatch_task;
