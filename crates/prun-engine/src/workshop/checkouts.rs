//! Where units work: fresh checkouts of the base from one template a run, or the workspace of the attempt before.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;

use prun_core::event::{Guard, Mode};
use prun_core::run::RunState;
use prun_core::unit::{Unit, UnitState};

use super::{Order, Previous, Workshop};
use crate::home::AttemptDir;
use crate::spec::{AttemptSpec, GuardSpec, HarvestSpec};
use crate::workspace::clone::{self, ClonePlan};
use crate::workspace::extras::Extras;
use crate::workspace::mirror::{self, Mirror};
use crate::workspace::scratch::{self, Checkout};
use crate::workspace::source::Source;
use crate::workspace::store::Store;
use crate::workspace::template::Template;
use crate::workspace::{Base, WorkspaceError};

/// Where a unit works.
pub(super) struct Workspace {
    pub(super) cwd: PathBuf,
    pub(super) checkout: Option<PathBuf>,
    pub(super) harvest: Option<HarvestSpec>,
}

impl Workshop {
    /// Makes the workspace of an attempt that begins afresh.
    pub(super) fn new_workspace(&self, dir: &AttemptDir, order: &Order) -> Result<Workspace, String> {
        let base = order.base.as_ref().filter(|_| order.unit.checkout);
        let (Some(store), Some(base)) = (self.store.as_ref(), base) else {
            let scratch = dir.scratch();
            scratch::prepare(&scratch, None).map_err(|error| error.to_string())?;
            return Ok(Workspace { cwd: scratch, checkout: None, harvest: None });
        };
        let mirror = self.mirror(store, base)?;
        let trusted_index = dir.trusted_index();
        let extras = self.extras(store, base, order.repo.as_deref())?;
        let make = |template: Option<&Template>| -> Result<(PathBuf, PathBuf), WorkspaceError> {
            let trusted_index = &trusted_index;
            let (checkout, cwd) = if order.unit.mode == Mode::Write {
                let clone = dir.clone_dir();
                clone::prepare(&ClonePlan { store, mirror, base, dir: &clone, trusted_index, template })?;
                let cwd = clone.join(&order.subdir);
                (clone, cwd)
            } else {
                let scratch = dir.scratch();
                let checkout = Checkout { store, mirror, base, trusted_index, template };
                let repo = scratch::prepare(&scratch, Some(&checkout))?;
                (repo.unwrap_or_else(|| scratch.clone()), scratch)
            };
            extras.iter().try_for_each(|extras| extras.add(&self.home, &checkout, trusted_index))?;
            Ok((checkout, cwd))
        };
        // This one is among those that were ordered.
        let others = order.has_queued || self.ordered.load(SeqCst) > 1;
        let (checkout, cwd) = self.with_template(store, base, others, make).map_err(|error| error.to_string())?;
        let harvest = HarvestSpec {
            work_tree: checkout.clone(),
            store: self.run_dir.store(),
            trusted_index,
            base_tree: base.tree.clone(),
            base: base.commit.clone(),
            exclude: Vec::new(),
        };
        Ok(Workspace { cwd, checkout: Some(checkout), harvest: Some(harvest) })
    }

    /// Whether a unit that has not begun yet will need a checkout of the base.
    pub(super) fn has_queued_checkout(&self, run: &RunState) -> bool {
        // Asked at each start, of up to ten thousand units: no search through the plan for each of the run's.
        let fresh = |unit: &Unit| unit.state == UnitState::Queued && unit.attempts.is_empty();
        self.plan.units.iter().any(|plan| plan.checkout && run.unit(&plan.id).is_some_and(fresh))
    }

    /// Has `make` make a checkout from the template. Where there is none yet, git writes this checkout, and the
    /// template is taken from it, if others are to follow; the others wait for it.
    fn with_template(
        &self,
        store: &Store,
        base: &Base,
        others: bool,
        make: impl Fn(Option<&Template>) -> Result<(PathBuf, PathBuf), WorkspaceError>,
    ) -> Result<(PathBuf, PathBuf), WorkspaceError> {
        let read = || self.template.read().unwrap_or_else(PoisonError::into_inner);
        if others && read().is_none() {
            let mut template = self.template.write().unwrap_or_else(PoisonError::into_inner);
            if template.is_none() {
                let made = make(None)?;
                // Without a template git writes every checkout: slower, and just as good.
                let format = &store.facts.object_format;
                *template = Template::take(base, &made.0, format, self.run_dir.root()).ok().flatten();
                return Ok(made);
            }
        }
        make(read().as_ref())
    }

    /// What clones get beside the base, found once a supervisor.
    fn extras(&self, store: &Store, base: &Base, repo: Option<&str>) -> Result<Option<&Extras>, String> {
        let find = || -> Result<Option<Extras>, String> {
            let Some(source) = self.source(repo)? else { return Ok(None) };
            let read = |args: &[&str]| store.command(args.iter().copied());
            Extras::find(source, base, &read).map(Some).map_err(|error| error.to_string())
        };
        self.extras.get_or_init(find).as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// The user's repository, looked at once a supervisor.
    fn source(&self, repo: Option<&str>) -> Result<Option<&Source>, String> {
        let open = |repo: &str| Source::open(&self.git, Path::new(repo)).map_err(|error| error.to_string());
        self.source.get_or_init(|| repo.map(open).transpose()).as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// What the processes of an attempt must not write, where the plan says so.
    pub(crate) fn guard(&self, repo: Option<&str>, writable: &[PathBuf]) -> Result<Option<GuardSpec>, String> {
        let Some(Guard::Mount) = self.plan.guard else { return Ok(None) };
        Ok(self.source(repo)?.map(|source| GuardSpec::of(source, writable)))
    }

    /// The mirror, filled once a supervisor; all preparations wait for it.
    pub(super) fn mirror(&self, store: &Store, base: &Base) -> Result<&Mirror, String> {
        let fill = || mirror::ensure(&self.home, store, base).map_err(|error| error.to_string());
        self.mirror.get_or_init(fill).as_ref().map_err(Clone::clone)
    }
}

/// Removes a workspace that was never handed to a worker.
pub fn remove_workspace(dir: &AttemptDir) {
    for path in [dir.clone_dir(), dir.scratch()] {
        // What cannot be removed now is removed with the run.
        let _ = std::fs::remove_dir_all(path);
    }
}

/// The workspace of the attempt before, to go on in.
pub(super) fn previous_workspace(previous: &Previous) -> Result<Workspace, String> {
    let path = previous.dir.spec();
    let text = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let spec: AttemptSpec =
        serde_json::from_slice(&text).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let cwd = spec.cwd.ok_or_else(|| format!("{} names no workspace", path.display()))?;
    if !cwd.is_dir() {
        return Err(format!("the workspace {} is gone; retry without --continue", cwd.display()));
    }
    let checkout = spec.harvest.as_ref().map(|harvest| harvest.work_tree.clone());
    Ok(Workspace { cwd, checkout, harvest: spec.harvest })
}
