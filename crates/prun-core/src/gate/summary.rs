//! What `prun check` says of a plan that passes.

use crate::event::{Guard, Mode};
use crate::gate::check::executors_of;
use crate::gate::world::{ExecutorFacts, GateWorld, Login};
use crate::ids::ExecutorName;
use crate::plan::model::SESSION_EXECUTOR;
use crate::plan::problem::shown;
use crate::plan::{Dirty, PlanFile};

/// One line: how many units, from what base, on which executors.
///
/// `ok 20 units (18 write, 1 read, 1 session) · base 4be1c02 + 3 uncommitted files · codex 6 slots, logged in`
#[must_use]
pub fn summary(plan: &PlanFile, world: &GateWorld) -> String {
    let parts = [Some(units(plan)), Some(base(plan, world)), executors(plan, world)];
    format!("ok {}", parts.into_iter().flatten().collect::<Vec<_>>().join(" · "))
}

/// A line for each executor of the plan, with version and login: `codex 0.171.0 · 6 slots · logged in`.
#[must_use]
pub fn executor_lines(plan: &PlanFile, world: &GateWorld) -> Vec<String> {
    used(plan, world).into_iter().map(|(name, facts)| executor_line(name, facts)).collect()
}

/// What keeps workers from writing to the repository, in a line; `None` without one.
#[must_use]
pub fn guard_line(plan: &PlanFile, world: &GateWorld) -> Option<&'static str> {
    world.repo.as_ref()?;
    Some(match plan.guard {
        Some(Guard::Mount) => "guard mount: the repository is read-only to workers",
        None => "guard off: what a worker writes to the repository by its path is detected, not prevented",
    })
}

fn executor_line(name: &ExecutorName, facts: &ExecutorFacts) -> String {
    let version = facts.version.as_ref().map(|version| format!(" {}", shown(version, 40))).unwrap_or_default();
    let mut line = format!("{name}{version} · {}", counted(u64::from(facts.slots), "slot"));
    if let Some(login) = login(facts.login) {
        line.push_str(" · ");
        line.push_str(login);
    }
    line
}

fn units(plan: &PlanFile) -> String {
    let count =
        |wanted: fn(bool, Mode) -> bool| plan.units.iter().filter(|unit| wanted(unit.is_session(), unit.mode)).count();
    let kinds = [
        (count(|session, mode| !session && mode == Mode::Write), "write"),
        (count(|session, mode| !session && mode == Mode::Read), "read"),
        (count(|session, _| session), "session"),
    ];
    let kinds: Vec<String> = kinds.iter().filter(|(n, _)| *n > 0).map(|(n, kind)| format!("{n} {kind}")).collect();
    format!("{} ({})", counted(plan.units.len() as u64, "unit"), kinds.join(", "))
}

fn base(plan: &PlanFile, world: &GateWorld) -> String {
    let Some(repo) = &world.repo else { return "no repository".to_owned() };
    let short: String = repo.base.chars().take(7).collect();
    let uncommitted = counted(repo.dirty as u64, "uncommitted file");
    match (repo.dirty, plan.dirty) {
        (0, _) => format!("base {short}"),
        (_, Some(Dirty::Include)) => format!("base {short} + {uncommitted}"),
        (_, Some(Dirty::Ignore) | None) => format!("base {short} without {uncommitted}"),
    }
}

/// `codex 6 slots, claude 4, both logged in`.
fn executors(plan: &PlanFile, world: &GateWorld) -> Option<String> {
    let used = used(plan, world);
    let slots = used.iter().enumerate().map(|(at, (name, facts))| match at {
        0 => format!("{name} {}", counted(u64::from(facts.slots), "slot")),
        _ => format!("{name} {}", facts.slots),
    });
    let parts: Vec<String> = slots.chain(logins(&used)).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn logins(used: &[(&ExecutorName, &ExecutorFacts)]) -> Vec<String> {
    let accounts: Vec<_> = used.iter().filter_map(|(name, facts)| Some((name, login(facts.login)?))).collect();
    let same = |wanted: &str| accounts.iter().all(|(_, login)| *login == wanted);
    match accounts.as_slice() {
        [] => Vec::new(),
        [(_, login)] if used.len() == 1 => vec![(*login).to_owned()],
        [_, _] if same("logged in") => vec!["both logged in".to_owned()],
        [_, _, _, ..] if same("logged in") => vec!["all logged in".to_owned()],
        several => several.iter().map(|(name, login)| format!("{name} {login}")).collect(),
    }
}

fn login(login: Login) -> Option<&'static str> {
    match login {
        Login::NotNeeded => None,
        Login::LoggedIn => Some("logged in"),
        Login::LoggedOut => Some("logged out"),
        Login::Unknown => Some("login unknown"),
    }
}

/// The known executors of the plan; a session has neither slots nor a client.
fn used<'a>(plan: &'a PlanFile, world: &'a GateWorld) -> Vec<(&'a ExecutorName, &'a ExecutorFacts)> {
    let workers = executors_of(plan).into_iter().filter(|name| name.as_str() != SESSION_EXECUTOR);
    workers.filter_map(|name| world.executors.get(name).map(|facts| (name, facts))).collect()
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::world::RepoFacts;
    use crate::plan::{Format, parse};

    fn world() -> GateWorld {
        let facts = |slots, login, version: Option<&str>| ExecutorFacts {
            slots,
            login,
            version: version.map(str::to_owned),
            ..ExecutorFacts::default()
        };
        let executors = [
            ("codex", facts(6, Login::LoggedIn, Some("0.171.0"))),
            ("pi", facts(4, Login::LoggedIn, None)),
            ("command", facts(1, Login::NotNeeded, None)),
            ("session", facts(0, Login::NotNeeded, None)),
        ];
        GateWorld {
            repo: Some(RepoFacts { base: "4be1c02ffff".to_owned(), dirty: 3, ..RepoFacts::default() }),
            executors: executors.map(|(name, facts)| (name.parse().unwrap(), facts)).into(),
            disk: None,
        }
    }

    fn plan(units: &[&str]) -> PlanFile {
        let units =
            units.iter().enumerate().map(|(at, keys)| format!("[[unit]]\nid=\"u{at}\"\nprompt=\"x\"\n{keys}\n"));
        parse(&format!("version = 1\ndirty = \"include\"\n{}", units.collect::<String>()), Format::Toml).unwrap()
    }

    #[test]
    fn the_summary_counts_units_and_names_base_and_executors() {
        let full = plan(&["executor = [\"codex\", \"pi\"]", "mode = \"read\"", "executor = \"session\""]);
        assert_eq!(
            summary(&full, &world()),
            "ok 3 units (1 write, 1 read, 1 session) · base 4be1c02 + 3 uncommitted files · codex 6 slots, pi 4, both logged in"
        );
        let one = plan(&["command = \"x\"\nmode = \"read\""]);
        let no_repo = GateWorld { repo: None, ..world() };
        assert_eq!(summary(&one, &no_repo), "ok 1 unit (1 read) · no repository · command 1 slot");
        let mixed = PlanFile { dirty: Some(Dirty::Ignore), ..plan(&["executor = \"codex\"", "command = \"x\""]) };
        assert_eq!(
            summary(&mixed, &world()),
            "ok 2 units (2 write) · base 4be1c02 without 3 uncommitted files · codex 6 slots, command 1, codex logged in"
        );
    }

    #[test]
    fn each_executor_has_a_line_with_its_version() {
        let lines = executor_lines(&plan(&["executor = [\"codex\", \"pi\"]", "executor = \"session\""]), &world());
        assert_eq!(lines, ["codex 0.171.0 · 6 slots · logged in", "pi · 4 slots · logged in"]);
    }
}
