//! The agent skill, carried in the binary, and how it comes into a client's directory and out again.

mod bundle;
mod plan;

pub(crate) use bundle::{BUNDLE, BundledFile};
pub(crate) use plan::{Change, Step, install, uninstall};

/// Beside the installed files: what was installed, so that an edited file is known as such.
pub(crate) const MANIFEST: &str = ".prun-skill.json";
