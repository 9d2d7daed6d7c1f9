//! Test tools of prun. Nothing here is part of what users get.

pub mod chaos;
pub mod clients;
pub mod env;
pub mod fake_model;
pub mod fake_worker;
pub mod locks;
