//! Integration of real trees, by real git, into real working trees.

mod bench;
mod cases;
mod full_disk;
mod landing;
mod random;
mod resolving;
mod speed;

use bench::Bench;
