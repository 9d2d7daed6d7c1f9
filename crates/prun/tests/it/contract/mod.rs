//! The contract of the old verbs, sentence by sentence, as data in `cases/*.toml`: against the binary,
//! against the scripts in `skills/prun/scripts`, and against any other implementation:
//! `PRUN_CONTRACT_TARGET=DIR cargo test -p prun-cli --test it contract::`, where DIR holds
//! `dispatch-task.sh` and its kin. Cases that are prun's own are left out there.

mod case;
mod pattern;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use self::case::{Case, Target, read_cases};

/// Cases of one file that run at the same time: most of them wait for a second or two to pass.
const AT_ONCE: usize = 12;

fn run_all(file: &str, text: &str, target: &Target) {
    assert!(target.is_there(), "the verbs to test are not there");
    let cases = read_cases(file, text, target);
    let next = AtomicUsize::new(0);
    let failures: Mutex<Vec<String>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = case.run(target) {
                        failures.lock().unwrap().push(format!("{}: {error}", case.name));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {} cases fail:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../skills/prun/scripts").canonicalize().unwrap()
}

macro_rules! contract {
    ($($module:ident $file:literal;)*) => {$(
        mod $module {
            use super::*;
            pub(super) const CASES: &str = include_str!(concat!("cases/", $file, ".toml"));

            #[test]
            fn holds_for_the_binary() {
                run_all($file, CASES, &Target::Binary);
            }

            #[test]
            fn holds_for_the_scripts() {
                run_all($file, CASES, &Target::Scripts(scripts()));
            }

            #[test]
            fn holds_for_the_named_target() {
                if let Some(dir) = std::env::var_os("PRUN_CONTRACT_TARGET") {
                    run_all($file, CASES, &Target::Other(dir.into()));
                }
            }
        }
    )*};
}

contract! {
    dispatch_task "dispatch-task";
    gather "gather";
    monitor "monitor";
    report_state "report-state";
    reap_orphans "reap-orphans";
}

#[test]
fn no_two_cases_of_a_verb_have_one_name() {
    for text in [dispatch_task::CASES, gather::CASES, monitor::CASES, report_state::CASES, reap_orphans::CASES] {
        let cases = read_cases("", text, &Target::Binary);
        let mut names = std::collections::HashSet::new();
        for Case { name, .. } in &cases {
            assert!(names.insert(name), "{name}");
        }
    }
}

#[test]
fn a_script_finds_the_binary_or_says_how_to_help_it() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("gather.sh");
    std::fs::copy(scripts().join("gather.sh"), &script).unwrap();
    let run = |shell: &str, vars: &[(&str, &str)]| {
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", shell]).current_dir(dir.path()).env_remove("PRUN_BIN").env("PATH", "/usr/bin:/bin");
        let output = command.envs(vars.iter().copied()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run("sh gather.sh", &[]);
    assert!(code == Some(127) && said.contains("gather: cannot find prun") && said.contains("PRUN_BIN"), "{said}");
    let (code, said) = run("./gather.sh x", &[("PRUN_BIN", "/no/such/prun")]);
    assert!(code == Some(127) && said.contains("PRUN_BIN names no program: /no/such/prun"), "{said}");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_prun"), dir.path().join("prun")).unwrap();
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    let (_, beside) = run("sh gather.sh", &[]);
    for (shell, vars) in [("cd / && \"$OLDPWD/gather.sh\"", &[][..]), ("./gather.sh", &[("PATH", path.as_str())])] {
        let (code, said) = run(shell, vars);
        assert_eq!((code, said.as_str()), (Some(2), beside.as_str()));
    }
    assert!(beside.contains("usage: prun gather"), "{beside}");
}

#[test]
fn the_five_scripts_are_one() {
    let texts: Vec<String> = ["dispatch-task", "gather", "monitor", "report-state", "reap-orphans"]
        .map(|verb| std::fs::read_to_string(scripts().join(format!("{verb}.sh"))).unwrap())
        .into();
    assert!(texts.iter().all(|text| *text == texts[0]));
}
