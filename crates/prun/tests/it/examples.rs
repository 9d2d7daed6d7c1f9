//! The example plans: they are read, and their workers do what they say.

use std::path::Path;
use std::process::Command;

use prun_core::contract;
use prun_core::event::Mode;
use prun_core::plan::{Format, PlanFile, UnitPlan, parse};
use prun_engine::git::Git;

#[test]
fn every_example_is_a_plan_whose_workers_answer_by_the_contract() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let file = entry.unwrap().path();
        let plan = parse(&std::fs::read_to_string(&file).unwrap(), Format::Toml)
            .unwrap_or_else(|problems| panic!("{}: {problems:?}", file.display()));
        for unit in &plan.units {
            work(&plan, unit);
        }
        seen += 1;
    }
    assert_eq!(seen, 2);
}

/// Runs the unit's command as prun would, in a repository with one file.
fn work(plan: &PlanFile, unit: &UnitPlan) {
    let dir = tempfile::tempdir().unwrap();
    let (scratch, result) = (dir.path().join("scratch"), dir.path().join("result.md"));
    let checkout = scratch.join("repo");
    std::fs::create_dir_all(&checkout).unwrap();
    std::fs::write(checkout.join("a file"), "TODO: more\n").unwrap();
    for args in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "One file"]] {
        Git::from_env().command(args).dir(&checkout).run().unwrap();
    }
    let workspace = if unit.mode == Mode::Write { &checkout } else { &scratch };
    for command in [&unit.command, &unit.verify] {
        let Some(argv) = command.as_ref().map(prun_core::plan::CommandLine::argv) else { continue };
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).current_dir(workspace).env("PRUN_RESULT", &result).env("HOME", dir.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{} of {:?}: {output:?}", unit.id, plan.title);
    }
    let text = std::fs::read_to_string(&result).unwrap();
    assert_eq!(contract::parse(&unit.id, text.as_bytes()).gaps, [""; 0], "{text}");
    for deliverable in &unit.deliverables {
        assert!(workspace.join(deliverable).exists(), "{deliverable}");
    }
    let status = Git::from_env().command(["status", "--porcelain", "-uall"]).dir(&checkout).run().unwrap().text();
    let changed: Vec<&str> = status.lines().map(|line| &line[3..]).collect();
    assert_eq!(changed, unit.owns, "{}", unit.id);
}
