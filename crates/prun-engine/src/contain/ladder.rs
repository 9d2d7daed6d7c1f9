//! The containment that is in force for an attempt: all rungs that there are, at once.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use prun_core::outcome::SweepFacts;

use super::births::Births;
use super::cgroup::{Group, GroupUsage, own_place};
use super::hunt::{Hunt, pause};
use super::linux::Children;
use super::{Rungs, SWEEP_BOUND, TOKEN_VARIABLE, become_subreaper};
use crate::process::{ProcessStat, descendants, is_alive, own_identity, stat, with_environment_entry};
use crate::state_dir::Identity;

/// How long a strike at processes that flee goes on before they are looked at again.
const STRIKE: Duration = Duration::from_millis(50);

/// What holds an attempt's processes together. A rung that cannot be set up is dropped, which shows in
/// [`names`](Self::names).
#[derive(Debug)]
pub struct Containment {
    /// Where the group is to be made.
    place: Option<PathBuf>,
    group: Option<Group>,
    is_subreaper: bool,
    token: Option<String>,
}

impl Containment {
    /// Sets up the rungs that may be used, all but the group, which is only planned: whoever may have to remove
    /// it must be told of it [before](Self::make_group). `token` names it too.
    #[must_use]
    pub fn plan(rungs: Rungs, token: &str) -> Self {
        let place = || Some(Group::path_in(&own_place()?, token));
        Self {
            place: rungs.cgroup.then(place).flatten(),
            group: None,
            is_subreaper: rungs.subreaper && become_subreaper(),
            token: rungs.token.then(|| token.to_owned()),
        }
    }

    /// Makes the planned group.
    pub fn make_group(&mut self) {
        self.group = self.place.take().and_then(|place| Group::make(place).ok());
    }

    /// What is in force: of `cgroup`, `subreaper`, `token`.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let rungs = [
            ("cgroup", self.group_path().is_some()),
            ("subreaper", self.is_subreaper),
            ("token", self.token.is_some()),
        ];
        rungs.into_iter().filter(|(_, is_in_force)| *is_in_force).map(|(name, _)| name.to_owned()).collect()
    }

    /// Where the attempt's group is, or is to be.
    #[must_use]
    pub fn group_path(&self) -> Option<&Path> {
        self.group.as_ref().map(Group::path).or(self.place.as_deref())
    }

    /// The attempt's group, where it has one.
    #[must_use]
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// The value of [`TOKEN_VARIABLE`], where that rung is in force.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Drops the group where `leader`, which was to enter it before it became its program, is not in it. One that
    /// was born in it is.
    pub fn confirm(&mut self, leader: u32, is_born_in_it: bool) {
        self.group.take_if(|group| !is_born_in_it && !group.holds(leader));
    }

    /// What the attempt's group has used so far; nothing without a group.
    #[must_use]
    pub fn usage(&self) -> GroupUsage {
        self.group.as_ref().map(Group::usage).unwrap_or_default()
    }

    /// Ends everything that is left of what this process started. `collect` takes the ended children (it
    /// repeats [`reap_one`](super::reap_one)) and tells whether any child is left.
    pub fn sweep(&self, collect: &mut dyn FnMut() -> bool) -> SweepFacts {
        let mut hunt = Hunt::new(SWEEP_BOUND);
        let mut survivors = Vec::new();
        let mut rounds = 0_u32;
        loop {
            let is_clean = !self.is_anything_left(collect());
            if is_clean && self.vouches() || hunt.is_quiet(is_clean) {
                break;
            }
            if let Some(group) = &self.group {
                hunt.note(group.processes());
                group.kill();
            }
            // What is new once all that was there is stopped is being born all the time, and so is what is left when
            // all that was ever seen is dead: where it leaves many dead behind, no listing is true any more.
            let is_new = hunt.freeze_and_kill(&mut || self.find());
            if self.is_subreaper && rounds > 0 && (is_new || hunt.living().is_empty()) {
                strike(collect);
            }
            if hunt.is_over() {
                survivors = self.living();
                if survivors.is_empty() {
                    survivors = newborn(collect);
                }
                break;
            }
            if !self.vouches() || self.is_anything_left(collect()) {
                pause();
            }
            rounds += 1;
        }
        // Where the bound ended it, only dead entries that another process keeps may be left: no proof.
        let proven = self.vouches() && !hunt.is_over();
        SweepFacts { containment: self.names(), leftovers: hunt.count(), proven, survivors }
    }

    /// Whether the kernel itself tells that nothing is left.
    fn vouches(&self) -> bool {
        self.is_subreaper || self.group.is_some()
    }

    fn is_anything_left(&self, has_children: bool) -> bool {
        has_children
            || self.group.as_ref().is_some_and(Group::is_populated)
            || !self.vouches() && self.find().iter().any(|stat| !stat.is_dead())
    }

    /// The tree below this process, and where nothing better is in force, what carries the token.
    fn find(&self) -> Vec<ProcessStat> {
        let own = std::process::id();
        let mut found = descendants(own);
        if let Some(token) = self.token.as_ref().filter(|_| !self.vouches()) {
            found.extend(with_token(token, own));
        }
        found
    }

    fn living(&self) -> Vec<u32> {
        let found = self.find().into_iter().filter(|stat| !stat.is_dead()).map(|stat| stat.pid);
        let mut pids: Vec<u32> = found.chain(self.group.iter().flat_map(Group::processes)).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// Kills what turns up as fast as it does: at its birth, and once it has become this process's child, which under a
/// subreaper all that descends from it does in the end.
fn strike(collect: &mut dyn FnMut() -> bool) {
    let (Some(children), births) = (Children::own(), Births::open()) else { return };
    let until = Instant::now() + STRIKE;
    while collect() && Instant::now() < until {
        if let Some(births) = &births {
            births.kill_descendants(until);
        }
        children.kill();
    }
}

/// The children that turn up between two looks: something lives that is too brief to be met.
fn newborn(collect: &mut dyn FnMut() -> bool) -> Vec<u32> {
    let Some(children) = Children::own() else { return Vec::new() };
    let before = children.list();
    pause();
    collect();
    children.list().into_iter().filter(|child| !before.contains(child)).collect()
}

/// Ends what is left of an attempt whose dispatcher is gone: its group, the worker that it recorded, what
/// descends from it, and every process that carries its token, with what descends from those.
///
/// It is proven where the recorded group, which the worker was in, is gone afterwards: only an empty one can
/// be removed. The caller
/// has made sure that the dispatcher is dead.
#[must_use]
pub fn reap_by_token(identity: &Identity) -> SweepFacts {
    let group = identity.cgroup.as_deref().and_then(|path| recorded_group(path, identity));
    let has_token = identity.containment.iter().any(|name| name == "token");
    // A dispatcher records a worker once it has seen it in the group; one that died before shows there itself.
    let mut was_entered = identity.worker.is_some();
    let mut hunt = Hunt::new(SWEEP_BOUND);
    loop {
        if let Some(group) = group.as_ref().filter(|group| group.is_populated()) {
            was_entered = true;
            hunt.note(group.processes());
            group.kill();
        }
        hunt.freeze_and_kill(&mut || left_of(identity));
        // Who made the group is gone. Once it is removed nothing can enter it: a child that was on its way sees
        // that its dispatcher is dead, and ends.
        let is_empty = hunt.living().is_empty() && group.as_ref().is_none_or(Group::remove);
        let is_clean = is_empty && left_of(identity).is_empty();
        if is_clean && group.is_some() || hunt.is_quiet(is_clean) || hunt.is_over() {
            break;
        }
        pause();
    }
    let mut survivors = hunt.living();
    survivors.extend(group.iter().flat_map(Group::processes));
    survivors.sort_unstable();
    survivors.dedup();
    let is_gone = group.as_ref().is_some_and(|group| !group.exists());
    let proven = is_gone && was_entered && survivors.is_empty();
    let rungs = [("cgroup", group.is_some()), ("token", has_token)];
    let containment = rungs.into_iter().filter(|(_, is_used)| *is_used).map(|(name, _)| name.to_owned()).collect();
    SweepFacts { containment, leftovers: hunt.count(), proven, survivors }
}

/// Ends every process that carries `token`, and what descends from it: what is left of a check that ran without
/// a dispatcher. It proves nothing.
pub fn reap_marked(token: &str) -> SweepFacts {
    let own = own_identity().pid;
    let mut hunt = Hunt::new(SWEEP_BOUND);
    let mut find = || {
        let mut found = with_token(token, own);
        found.retain(|stat| !stat.is_dead());
        found
    };
    loop {
        hunt.freeze_and_kill(&mut find);
        let is_clean = hunt.living().is_empty() && find().is_empty();
        if hunt.is_quiet(is_clean) || hunt.is_over() {
            break;
        }
        pause();
    }
    let containment = vec!["token".to_owned()];
    SweepFacts { containment, leftovers: hunt.count(), proven: false, survivors: hunt.living() }
}

/// Whether anything lives in the group that was recorded for the attempt with this token.
#[must_use]
pub fn lives_in(group: &Path, token: &str) -> bool {
    Group::recorded(group, token).is_some_and(|group| group.exists() && group.is_populated())
}

/// Removes the group of an attempt whose dispatcher is gone, where nothing lives in it.
pub fn remove_group(identity: &Identity) {
    if let Some(group) = identity.cgroup.as_deref().and_then(|path| recorded_group(path, identity)) {
        group.remove();
    }
}

/// The group of a dead dispatcher's attempt, where it says that it was in force.
fn recorded_group(path: &Path, identity: &Identity) -> Option<Group> {
    let group = Group::recorded(path, &identity.token)?;
    identity.containment.iter().any(|name| name == "cgroup").then_some(group)
}

fn left_of(identity: &Identity) -> Vec<ProcessStat> {
    let worker = identity.worker.as_ref().filter(|worker| is_alive(worker)).and_then(|worker| stat(worker.pid));
    let own = own_identity().pid;
    let mut found = with_token(&identity.token, own);
    if let Some(worker) = worker {
        found.extend(descendants(worker.pid));
        found.push(worker);
    }
    found.retain(|stat| !stat.is_dead() && stat.pid != own);
    found
}

/// The processes that carry the token, and what descends from them; without `own`.
fn with_token(token: &str, own: u32) -> Vec<ProcessStat> {
    let entry = format!("{TOKEN_VARIABLE}={token}");
    let roots = with_environment_entry(entry.as_bytes());
    let below: Vec<ProcessStat> = roots.iter().flat_map(|root| descendants(root.pid)).collect();
    roots.into_iter().chain(below).filter(|stat| stat.pid != own).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_carries_the_token_is_ended_although_its_parent_is_gone() {
        let token = crate::state_dir::random_hex::<16>().unwrap();
        // The leader starts a child in a session of its own and leaves; the child says its number.
        let mut leader = Command::new("/bin/sh")
            .args(["-c", "setsid sh -c 'echo $$; exec sleep 600 >/dev/null' & exit 0"])
            .env(TOKEN_VARIABLE, &token)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        leader.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        leader.wait().unwrap();
        let child = crate::process::identity(said.trim().parse().unwrap()).unwrap();
        let identity = Identity {
            version: crate::state_dir::IDENTITY_VERSION,
            dispatcher: own_identity(),
            worker: None,
            containment: vec!["token".to_owned()],
            cgroup: None,
            read_only: Vec::new(),
            token,
        };
        let facts = reap_by_token(&identity);
        assert_eq!((facts.leftovers, facts.proven, facts.survivors), (1, false, vec![]));
        assert!(!is_alive(&child));
    }
}
