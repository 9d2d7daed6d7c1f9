//! `prun mcp` through the real binary, as a client sees it.

pub(crate) mod client;
mod depth;
mod flow;
mod fuzz;
mod inspector;
mod life;
mod look;
