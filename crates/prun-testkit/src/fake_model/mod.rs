//! A scripted model server on loopback: the parts of the four APIs ([`request::Api`]) that agent clients use.
//!
//! The script stands in the prompt, as a line `FAKE-MODEL: [{"sh":"make"},{"text":"done"}]`, so that
//! one server plays a different model for each worker. Which step is played follows from the request
//! alone (see [`request`]), so requests may come in any order, at once, twice. Only how often a step with `times`
//! was played is remembered.

mod reply;
pub mod request;
pub mod script;
mod server;

pub use request::Api;
pub use script::{Step, directive};
pub use server::Server;
