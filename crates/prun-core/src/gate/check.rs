//! Everything that the gate asks, and its verdict.

use crate::event::Mode;
use crate::gate::owns;
use crate::gate::world::{DiskFacts, ExecutorFacts, ExecutorProblem, GateWorld, Login, RepoFacts};
use crate::ids::{ExecutorName, UnitId};
use crate::plan::problem::shown;
use crate::plan::{Place, PlanFile, Problem, UnitPlan, nearest};

/// The gate's verdict. A run may start only without problems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// What keeps the plan from running, sorted by place.
    pub problems: Vec<Problem>,
    /// What may go wrong later.
    pub warnings: Vec<Warning>,
}

/// Something that may go wrong later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where the plan can be changed.
    pub place: Option<Place>,
    /// What is to be seen, in one sentence without a full stop.
    pub message: String,
}

/// Tells everything that stands against a run of `plan` in `world`.
#[must_use]
pub fn check(plan: &PlanFile, world: &GateWorld) -> Gate {
    let mut gate = Gate::default();
    check_repo(plan, world, &mut gate);
    check_executors(plan, world, &mut gate);
    if plan.jobs == Some(0) {
        let problem = Problem::new(plan.places.jobs, "with 0 jobs no unit ever starts");
        gate.problems.push(problem.hint("leave it out for the sum of the executors' slots"));
    }
    gate.problems.extend(world.disk.as_ref().and_then(no_space));
    let tracked = world.repo.as_ref().and_then(|repo| repo.tracked.as_deref());
    gate.warnings.extend(owns::warnings(plan, tracked));
    gate.warnings.extend(unchecked(plan));
    gate.warnings.extend(one_model_for_several(plan));
    check_guard(plan, world, &mut gate);
    gate.problems.sort();
    gate
}

/// Whether the plan must say what happens to uncommitted work and does not: a question at a terminal, else a problem.
#[must_use]
pub fn must_say_dirty(plan: &PlanFile, world: &GateWorld) -> bool {
    plan.dirty.is_none() && world.repo.as_ref().is_some_and(|repo| repo.dirty > 0)
}

fn check_repo(plan: &PlanFile, world: &GateWorld, gate: &mut Gate) {
    let writers: Vec<&UnitPlan> = plan.units.iter().filter(|unit| unit.mode == Mode::Write).collect();
    match (&world.repo, writers.first()) {
        (None, Some(first)) => {
            let who = names(writers.iter().map(|unit| &unit.id));
            let verb = if writers.len() == 1 { "changes" } else { "change" };
            let place = plan.places.repo.or(first.places.id);
            gate.problems.push(
                Problem::new(place, format!("{who} {verb} code, and there is no repository"))
                    .hint("start in one, name it with `repo`, or say mode = \"read\""),
            );
        }
        (Some(repo), _) if must_say_dirty(plan, world) => gate.problems.push(undecided(repo)),
        _ => {}
    }
}

/// The coordinator's own subagent is no process of prun's.
fn check_guard(plan: &PlanFile, world: &GateWorld, gate: &mut Gate) {
    if plan.guard.is_none() {
        return;
    }
    if world.repo.is_none() {
        let problem = Problem::new(plan.places.guard, "`guard`: there is no repository that could be written to");
        gate.problems.push(problem.hint("leave it out, or name the repository with `repo`"));
    }
    let sessions: Vec<&UnitId> = plan.units.iter().filter(|unit| unit.is_session()).map(|unit| &unit.id).collect();
    if !sessions.is_empty() {
        let message = format!("`guard` does not reach {}: the coordinator works on it itself", names(sessions));
        gate.warnings.push(Warning { place: plan.places.guard, message });
    }
}

fn undecided(repo: &RepoFacts) -> Problem {
    const SHOWN: usize = 10;
    let count = repo.dirty;
    let files = if count == 1 { "file" } else { "files" };
    let mut message = format!("{count} uncommitted {files}, and the plan does not say `dirty`:");
    let paths: Vec<String> = repo.dirty_first.iter().take(SHOWN).map(|path| shown(path, 200)).collect();
    for path in &paths {
        message.push_str("\n  ");
        message.push_str(path);
    }
    if count > paths.len() {
        message.push_str(&format!("\n  and {} more", count - paths.len()));
    }
    Problem::new(None, message).hint("say dirty = \"include\" (units see them) or dirty = \"ignore\" (they do not)")
}

fn check_executors(plan: &PlanFile, world: &GateWorld, gate: &mut Gate) {
    for name in executors_of(plan) {
        let named_by: Vec<&UnitPlan> = plan.units.iter().filter(|unit| unit.executors.contains(name)).collect();
        let place = named_by.first().and_then(|unit| unit.places.executor.or(unit.places.id));
        let Some(facts) = world.executors.get(name) else {
            gate.problems.push(unknown_executor(name, place, world));
            continue;
        };
        let Some(ExecutorProblem { message, hint }) = fault_of(facts) else { continue };
        let stuck = |unit: &&&UnitPlan| !unit.executors.iter().any(|name| works(name, world));
        let stuck: Vec<&UnitId> = named_by.iter().filter(stuck).map(|unit| &unit.id).collect();
        if stuck.is_empty() {
            let message = format!("executor {name}: {message}; its units go to the next one that they name");
            gate.warnings.push(Warning { place, message });
        } else {
            let message = format!("executor {name}: {message} (wanted by {})", names(stuck));
            gate.problems.push(Problem { hint, ..Problem::new(place, message) });
        }
    }
}

/// The executors that the plan names, in the order of their first mention.
/// The executors that the plan names, each once.
#[must_use]
pub fn executors_of(plan: &PlanFile) -> Vec<&ExecutorName> {
    let mut found: Vec<&ExecutorName> = Vec::new();
    for name in plan.units.iter().flat_map(|unit| &unit.executors) {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

fn unknown_executor(name: &ExecutorName, place: Option<Place>, world: &GateWorld) -> Problem {
    let known: Vec<&str> = world.executors.keys().map(ExecutorName::as_str).collect();
    let hint = match nearest(name.as_str(), &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are: {}", known.join(", ")),
    };
    Problem::new(place, format!("no executor is called {name}")).hint(hint)
}

fn works(name: &ExecutorName, world: &GateWorld) -> bool {
    world.executors.get(name).is_some_and(|facts| fault_of(facts).is_none())
}

fn fault_of(facts: &ExecutorFacts) -> Option<ExecutorProblem> {
    let logged_out = || ExecutorProblem {
        message: "nobody is logged in".to_owned(),
        hint: Some("log in with its own client, then check again".to_owned()),
    };
    facts.problem.clone().or_else(|| (facts.login == Login::LoggedOut).then(logged_out))
}

fn no_space(disk: &DiskFacts) -> Option<Problem> {
    let DiskFacts { path, free_bytes, needed_bytes } = disk;
    (free_bytes < needed_bytes).then(|| {
        let (free, needed) = (size(*free_bytes), size(*needed_bytes));
        let message = format!("cannot make workspaces in {}: {free} free, {needed} needed", shown(path, 200));
        Problem::new(None, message).hint("make room there, or set PRUN_HOME to a directory with more")
    })
}

fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = UNITS.iter().find(|(_, size)| bytes >= *size);
    unit.map_or(format!("{bytes} B"), |(unit, size)| {
        let tenths = bytes / (size / 10);
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    })
}

/// A model is one client's word; of another vendor's client it says nothing.
fn one_model_for_several(plan: &PlanFile) -> Option<Warning> {
    // Members stand beside each other.
    let is_mixed = |pair: &&[UnitPlan]| pair[0].panel == pair[1].panel && pair[0].executors != pair[1].executors;
    let mut units = plan.units.windows(2).filter(is_mixed).map(|pair| &pair[0]);
    let unit = units.find(|unit| unit.panel.is_some() && unit.model.is_some())?;
    let (panel, model) = (unit.panel.as_ref()?, unit.model.as_ref()?);
    let message = format!("every executor of the panel {panel} is told the model {}", shown(model, 40));
    Some(Warning { place: unit.places.executor, message })
}

/// Units of the command line stand in no plan that could be changed, and are left out.
fn unchecked(plan: &PlanFile) -> Option<Warning> {
    let bare = |unit: &&UnitPlan| {
        let is_checked = unit.verify.is_some() || plan.verify.is_some();
        unit.mode == Mode::Write && !is_checked && unit.places.id.is_some()
    };
    let bare: Vec<&UnitPlan> = plan.units.iter().filter(bare).collect();
    let verb = if bare.len() == 1 { "has" } else { "have" };
    bare.first().map(|first| Warning {
        place: first.places.id,
        message: format!(
            "{} {verb} no `verify`, and the plan has none either",
            names(bare.iter().map(|unit| &unit.id))
        ),
    })
}

/// Unit ids for a sentence: five of them, then a number.
pub(super) fn names<'a>(ids: impl IntoIterator<Item = &'a UnitId>) -> String {
    const NAMED: usize = 5;
    let ids: Vec<&str> = ids.into_iter().map(UnitId::as_str).collect();
    match ids.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!("{} and {more} more", ids[..NAMED].join(", ")),
        _ => ids.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Format, parse, render};

    const REPO: &str = "version = 1\nverify = \"true\"\n";

    fn plan(units: &str) -> PlanFile {
        parse(&format!("{REPO}{units}"), Format::Toml).unwrap_or_else(|p| panic!("{}", render(&p, "p")))
    }

    fn world() -> GateWorld {
        let facts = ExecutorFacts { slots: 6, login: Login::LoggedIn, ..ExecutorFacts::default() };
        let command = ExecutorFacts { slots: 2, ..ExecutorFacts::default() };
        let repo = RepoFacts { base: "4be1c02aa".to_owned(), ..RepoFacts::default() };
        let executors = [("codex", facts), ("command", command)];
        GateWorld {
            repo: Some(repo),
            executors: executors.map(|(name, facts)| (name.parse().unwrap(), facts)).into(),
            disk: None,
        }
    }

    fn told(plan: &PlanFile, world: &GateWorld) -> String {
        let gate = check(plan, world);
        let warnings = gate.warnings.iter().map(|warning| format!("warn {}\n", warning.message));
        render(&gate.problems, "p") + &warnings.collect::<String>()
    }

    const TWO: &str = "[[unit]]\nid = \"a\"\nprompt = \"x\"\n[[unit]]\nid = \"b\"\nprompt = \"x\"\n";

    #[test]
    fn a_plan_that_fits_the_world_passes_in_silence() {
        assert_eq!(check(&plan(TWO), &world()), Gate::default());
    }

    #[test]
    fn write_units_need_a_repository_and_read_units_do_not() {
        let bare = GateWorld { repo: None, ..world() };
        insta::assert_snapshot!(told(&plan(TWO), &bare), @r##"
    p:4:6: a, b change code, and there is no repository
    hint: start in one, name it with `repo`, or say mode = "read"
    "##);
        assert_eq!(told(&plan("[[unit]]\nid = \"a\"\nmode = \"read\"\nprompt = \"x\"\n"), &bare), "");
    }

    #[test]
    fn uncommitted_work_must_be_decided_on() {
        let mut world = world();
        let paths: Vec<String> = (0..12).map(|n| format!("src/{n}\u{1b}.rs")).collect();
        world.repo = Some(RepoFacts { dirty: 13, dirty_first: paths, ..RepoFacts::default() });
        insta::assert_snapshot!(told(&plan(TWO), &world), @r##"
    p: 13 uncommitted files, and the plan does not say `dirty`:
      src/0\u{1b}.rs
      src/1\u{1b}.rs
      src/2\u{1b}.rs
      src/3\u{1b}.rs
      src/4\u{1b}.rs
      src/5\u{1b}.rs
      src/6\u{1b}.rs
      src/7\u{1b}.rs
      src/8\u{1b}.rs
      src/9\u{1b}.rs
      and 3 more
    hint: say dirty = "include" (units see them) or dirty = "ignore" (they do not)
    "##);
        assert!(must_say_dirty(&plan(TWO), &world));
        let said = plan(&format!("dirty = \"ignore\"\n{TWO}"));
        assert_eq!(told(&said, &world), "");
    }

    #[test]
    fn executors_that_cannot_work_are_problems_only_without_a_fallback() {
        let units = "[[unit]]\nid = \"a\"\nexecutor = [\"codex\", \"command\"]\ncommand = \"x\"\nprompt = \"x\"\n\
                     [[unit]]\nid = \"b\"\nexecutor = \"codec\"\nprompt = \"x\"\n";
        let mut world = world();
        world.executors.get_mut(&"codex".parse().unwrap()).unwrap().login = Login::LoggedOut;
        insta::assert_snapshot!(told(&plan(units), &world), @r##"
    p:10:12: no executor is called codec
    hint: did you mean `codex`?
    warn executor codex: nobody is logged in; its units go to the next one that they name
    "##);
        let missing = ExecutorProblem { message: "no program `x`".into(), hint: Some("install it".into()) };
        world.executors.get_mut(&"command".parse().unwrap()).unwrap().problem = Some(missing);
        insta::assert_snapshot!(told(&plan(units), &world), @r##"
    p:5:12: executor codex: nobody is logged in (wanted by a)
    hint: log in with its own client, then check again
    p:5:12: executor command: no program `x` (wanted by a)
    hint: install it
    p:10:12: no executor is called codec
    hint: did you mean `codex`?
    "##);
    }

    #[test]
    fn no_jobs_and_no_space_are_problems() {
        let mut plan = plan(TWO);
        plan.jobs = Some(0);
        let disk = DiskFacts { path: "/home".to_owned(), free_bytes: 1 << 20, needed_bytes: (5 << 30) / 2 };
        insta::assert_snapshot!(told(&plan, &GateWorld { disk: Some(disk), ..world() }), @r##"
    p: cannot make workspaces in /home: 1.0 MiB free, 2.5 GiB needed
    hint: make room there, or set PRUN_HOME to a directory with more
    p: with 0 jobs no unit ever starts
    hint: leave it out for the sum of the executors' slots
    "##);
    }

    #[test]
    fn write_units_without_any_check_are_warned_about() {
        let mut plan = plan(&TWO.replace("id = \"a\"", "id = \"a\"\nverify = \"true\""));
        plan.verify = None;
        assert_eq!(told(&plan, &world()), "warn b has no `verify`, and the plan has none either\n");
    }

    #[test]
    fn many_names_end_in_a_number() {
        let ids: Vec<UnitId> = (0..7).map(|n| format!("u{n}").parse().unwrap()).collect();
        assert_eq!(names(&ids), "u0, u1, u2, u3, u4 and 2 more");
        assert_eq!(names(&ids[..5]), "u0, u1, u2, u3, u4");
    }
}
