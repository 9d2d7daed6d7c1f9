//! The published shapes of `--json`, by name. `docs/schema/` holds them as files.

use prun_core::answer::{
    BriefView, CheckView, DiffView, ErrorView, EventView, ExecutorsView, LandedView, OfRun, ResultView, RunsView,
    StartedView, StoryView, WaitView,
};
use prun_core::comparison::CompareView;
use prun_core::finding::Report;
use prun_core::reconcile::Reconciliation;
use prun_core::usage::UsageView;
use prun_core::view::RunView;
use prun_engine::integrate::DryRun;

use crate::commands::clean::Cleaned;
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};

/// A shape, and the command that prints it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Its name.
    pub(crate) name: &'static str,
    /// Who prints it.
    pub(crate) command: &'static str,
    make: fn(SchemaGenerator) -> Schema,
}

const fn shape<T: JsonSchema>(name: &'static str, command: &'static str) -> Shape {
    Shape { name, command, make: SchemaGenerator::into_root_schema_for::<T> }
}

/// All shapes.
pub(crate) const SHAPES: &[Shape] = &[
    shape::<CheckView>("check", "prun check --json"),
    shape::<StartedView>("run", "prun run -d --json"),
    shape::<ExecutorsView>("executors", "prun executors --json"),
    shape::<RunsView>("runs", "prun runs --json"),
    shape::<RunView>("status", "prun status --json"),
    shape::<WaitView>("wait", "prun wait --json"),
    shape::<EventView>("events", "prun events (each line)"),
    shape::<ResultView>("result", "prun result UNIT --json"),
    shape::<BriefView>("brief", "prun result --brief --json"),
    shape::<StoryView>("explain", "prun explain UNIT --json"),
    shape::<DiffView>("diff", "prun diff --json"),
    shape::<CompareView>("compare", "prun compare --json"),
    shape::<OfRun<Reconciliation>>("reconcile", "prun reconcile --json"),
    shape::<OfRun<DryRun>>("integrate", "prun integrate --dry-run --json"),
    shape::<LandedView>("landed", "prun integrate --tree TREE --json"),
    shape::<OfRun<Cleaned>>("clean", "prun clean --json"),
    shape::<UsageView>("usage", "prun usage --json"),
    shape::<Report>("doctor", "prun doctor --json"),
    shape::<ErrorView>("error", "any command with --json that fails, on stderr"),
];

impl Shape {
    /// Its JSON Schema.
    pub(crate) fn schema(&self) -> Schema {
        // What is printed, not what would be read: an optional member is there and null.
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let mut schema = (self.make)(settings.into_generator());
        schema.insert("title".to_owned(), format!("prun: {}", self.command).into());
        schema
    }
}
