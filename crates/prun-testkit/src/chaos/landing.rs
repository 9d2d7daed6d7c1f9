//! A landing and its undo under fire: all of it is in the working tree, or nothing, whoever is killed when.

use super::plan::CHANGED;
use super::round::{Round, reap};

/// How often one act is cut off before it is left in peace.
const CUTS: u64 = 3;

impl Round {
    /// Lands the run and takes it back, each of them killed a few times on the way.
    pub(super) fn land_and_undo(&mut self) {
        let id = self.id();
        for _ in 0..self.random.below(CUTS) {
            // Its tree is asked for anew: what is shown may change with what is there.
            if let Some(tree) = self.tree() {
                self.cut_off(&["integrate", &id, "--tree", &tree]);
            }
            self.mend();
            if self.is_landed() {
                break;
            }
            self.check_repository();
        }
        if !self.is_landed() {
            let tree = self.tree().unwrap_or_else(|| panic!("{}: nothing can be landed", self.name()));
            let said = self.env.prun(&format!("integrate {id} --tree {tree}"));
            assert_eq!(said.code, 0, "{}: {said}", self.name());
        }
        self.check_landed();
        for _ in 0..self.random.below(CUTS) {
            self.cut_off(&["undo", &id]);
            // An undo that was cut off is finished by another one.
            if !self.is_landed() && self.is_whole() {
                break;
            }
        }
        if self.is_landed() || !self.is_whole() {
            let said = self.env.prun(&format!("undo {id}"));
            assert_eq!(said.code, 0, "{}: {said}", self.name());
        }
        self.check_repository();
        self.wait_for("the last process to go", || self.env.processes().is_empty());
    }

    /// The tree that a dry run shows.
    fn tree(&self) -> Option<String> {
        let said = self.env.prun(&format!("integrate {} --dry-run", self.id()));
        let rest = said.stdout.split(" · tree ").nth(1).unwrap_or_else(|| panic!("{}: {said}", self.name()));
        Some(rest.split(' ').next()?.to_owned())
    }

    /// Starts it, and kills it or the git that it runs at some moment.
    fn cut_off(&mut self, args: &[&str]) {
        let mut child = self.spawn(args);
        self.pause(900);
        if self.random.below(4) == 0 {
            self.kill_git();
            self.pause(200);
        }
        reap(&mut child);
    }

    /// Finishes a landing that was cut off, or takes it back.
    fn mend(&mut self) {
        if self.is_whole() {
            return;
        }
        let id = self.id();
        let line = if self.random.below(2) == 0 { format!("integrate {id} --continue") } else { format!("undo {id}") };
        let said = self.env.prun(&line);
        assert_eq!(said.code, 0, "{}: {line}: {said}", self.name());
        assert!(self.is_whole(), "{}: {line} mended nothing: {said}", self.name());
    }

    fn is_whole(&self) -> bool {
        self.status()["landing_trouble"].is_null()
    }

    fn is_landed(&self) -> bool {
        self.status()["landed"].as_array().is_some_and(|trees| !trees.is_empty())
    }

    /// Exactly the files of the run are changed, and nothing of git's own.
    fn check_landed(&self) {
        let changes = self.before.changes(&self.env.tree("repo"));
        let mut changed: Vec<&str> = changes.iter().map(|change| &change[1..]).collect();
        changed.sort_unstable();
        assert_eq!(changed, CHANGED, "{}", self.name());
    }
}
