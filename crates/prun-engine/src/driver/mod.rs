//! To come.
pub mod clock;
pub mod pool;
pub mod watcher;
