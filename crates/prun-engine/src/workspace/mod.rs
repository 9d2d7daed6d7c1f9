//! Where workers work: prepare and harvest.

pub mod harvest;
