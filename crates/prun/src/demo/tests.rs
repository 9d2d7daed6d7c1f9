//! The demo with real git and a real shell.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use prun_core::contract;
use prun_core::plan::{CommandLine, Format, PlanFile, parse};
use prun_engine::git::Git;
use tempfile::TempDir;

use super::{Demo, DemoError, DemoExecutor, escaped, write};

const MODULES: [&str; 5] = ["lines", "words", "longest", "top", "wrap"];

fn demo(executor: DemoExecutor) -> (TempDir, Demo, PlanFile) {
    let dir = tempfile::tempdir().unwrap();
    let demo = write(&dir.path().join("a \"demo\""), executor).unwrap();
    let plan = parse(&std::fs::read_to_string(&demo.plan).unwrap(), Format::Toml).unwrap();
    (dir, demo, plan)
}

fn run_tests(repo: &Path, modules: &[&str]) -> Output {
    Command::new(repo.join("run-tests")).args(modules).env_clear().env("PATH", "/usr/bin:/bin").output().unwrap()
}

fn clone(demo: &Demo, to: &Path) -> PathBuf {
    Git::from_env().command(["clone", "-q"]).arg(&demo.repo).arg(to).run().unwrap();
    to.to_owned()
}

/// Runs the unit's command in `workspace` as prun would; what it writes as its result.
fn work(plan: &PlanFile, unit: &str, attempt: u32, workspace: &Path) -> String {
    let found = plan.units.iter().find(|known| known.id.as_str() == unit).unwrap();
    let Some(CommandLine::Argv(argv)) = &found.command else { panic!("{unit} has no command") };
    let result = workspace.with_extension("result");
    let output = Command::new(&argv[0])
        .args(&argv[1..])
        .current_dir(workspace)
        .env_clear()
        .envs([("PATH", "/usr/bin:/bin"), ("DEMO_PAUSE", "0"), ("PRUN_UNIT", unit)])
        .env("PRUN_ATTEMPT", attempt.to_string())
        .env("PRUN_RESULT", &result)
        .output()
        .unwrap();
    assert!(output.status.success(), "{unit}: {output:?}");
    assert!(output.stdout.iter().filter(|byte| **byte == b'\n').count() >= 3, "{unit} shows what it does");
    let result = std::fs::read_to_string(result).unwrap();
    assert_eq!(contract::parse(&found.id, result.as_bytes()).gaps, [""; 0], "{result}");
    result
}

#[test]
fn every_module_fails_its_tests_at_first() {
    let (_dir, demo, _) = demo(DemoExecutor::Scripts);
    for module in MODULES {
        assert!(!run_tests(&demo.repo, &[module]).status.success(), "{module}");
    }
    assert!(!run_tests(&demo.repo, &[]).status.success());
    let status = Git::from_env().command(["status", "--porcelain", "--ignored"]).dir(&demo.repo).run().unwrap();
    assert_eq!(status.text(), "");
    let author = Git::from_env().command(["log", "--format=%an"]).dir(&demo.repo).run().unwrap();
    assert_eq!(author.text(), "prun demo");
}

#[test]
fn each_worker_repairs_its_module_and_changes_no_other_file() {
    let (dir, demo, plan) = demo(DemoExecutor::Scripts);
    let combined = clone(&demo, &dir.path().join("combined"));
    for module in MODULES {
        let workspace = clone(&demo, &dir.path().join(module));
        work(&plan, module, 2, &workspace);
        let tests = run_tests(&workspace, &[module]);
        assert!(tests.status.success(), "{}", String::from_utf8_lossy(&tests.stdout));
        let file = format!("lib/{module}.sh");
        let status = Git::from_env().command(["status", "--porcelain"]).dir(&workspace).run().unwrap();
        assert_eq!(status.text(), format!(" M {file}"));
        assert!(!run_tests(&workspace, &[]).status.success(), "{module} alone is not enough");
        std::fs::copy(workspace.join(&file), combined.join(&file)).unwrap();
    }
    let tests = run_tests(&combined, &[]);
    assert!(tests.status.success(), "{}", String::from_utf8_lossy(&tests.stdout));
}

#[test]
fn the_first_attempt_at_top_claims_success_and_fails_its_check() {
    let (dir, demo, plan) = demo(DemoExecutor::Scripts);
    let workspace = clone(&demo, &dir.path().join("top"));
    let result = work(&plan, "top", 1, &workspace);
    assert!(result.contains("Files: lib/top.sh\n"), "{result}");
    assert!(!run_tests(&workspace, &["top"]).status.success());
}

#[test]
fn the_reader_lists_callers_and_what_is_left_to_do() {
    let (dir, demo, plan) = demo(DemoExecutor::Scripts);
    let scratch = dir.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let repo = clone(&demo, &scratch.join("repo"));
    let result = work(&plan, "review", 1, &scratch);
    assert!(result.contains("\n- wrap: textstat tests/wrap.sh"), "{result}");
    assert!(result.contains("Open items: 2 TODOs\n") && result.contains("\nlib/top.sh:3:"), "{result}");
    let status = Git::from_env().command(["status", "--porcelain"]).dir(&repo).run().unwrap();
    assert_eq!(status.text(), "");
}

#[test]
fn codex_gets_the_same_units_and_prompts() {
    let (_, scripts, by_scripts) = demo(DemoExecutor::Scripts);
    let (_, codex, by_codex) = demo(DemoExecutor::Codex);
    assert_eq!(by_codex.units.len(), 6);
    for (codex, script) in by_codex.units.iter().zip(&by_scripts.units) {
        assert_eq!((&codex.id, &codex.prompt, &codex.verify), (&script.id, &script.prompt, &script.verify));
        assert_eq!((codex.executors[0].as_str(), script.executors[0].as_str()), ("codex", "command"));
        assert!(codex.command.is_none() && script.command.is_some());
    }
    assert_ne!(scripts.repo, codex.repo);
}

#[test]
fn a_directory_that_holds_something_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("mine"), "").unwrap();
    let error = write(dir.path(), DemoExecutor::Scripts).unwrap_err();
    assert!(matches!(&error, DemoError::NotEmpty(_)), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn any_path_can_stand_in_the_plan() {
    assert_eq!(escaped("/a \"b\"\\\t\u{7f}é"), "/a \\\"b\\\"\\\\\\u0009\\u007fé");
}
