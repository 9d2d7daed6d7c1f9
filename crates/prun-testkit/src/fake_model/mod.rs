//! A scripted model server on loopback: the part of OpenAI's Responses API that Codex uses.
//!
//! The script stands in the prompt, as a line `FAKE-MODEL: [{"sh":"make"},{"text":"done"}]`, so that
//! one server plays a different model for each worker. Which step is played follows from the request
//! alone (see [`request`]): nothing is remembered, so requests may come in any order, at once, twice.

mod reply;
pub mod request;
pub mod script;
mod server;

pub use script::{Step, directive};
pub use server::Server;
