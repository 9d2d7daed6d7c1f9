//! Rules of the house that no compiler knows: layers, the pages that name files, sizes, and what must not be written down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use prun_engine::git::Git;

/// What `prun-core` may depend on: nothing that touches the world.
const CORE_DEPENDENCIES: &[&str] =
    &["ignore", "jiff", "jsonc-parser", "schemars", "serde", "serde_json", "strsim", "thiserror", "toml"];

/// What `prun-core` must not say.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::env",
    "std::process",
    "std::net",
    "std::thread",
    "std::io",
    "SystemTime",
    "Instant",
    "::now(",
    "env!(",
];

/// Who may start programs, and why.
const STARTERS: &[(&str, &str)] = &[
    ("crates/prun-engine/src/git.rs", "git"),
    ("crates/prun-engine/src/executor/preflight.rs", "asks a client for its version"),
    ("crates/prun-engine/src/dispatcher/spawn.rs", "workers and their checks"),
    ("crates/prun-engine/src/contain/scope.rs", "asks the user's systemd"),
    ("crates/prun-engine/src/driver/effects.rs", "dispatchers"),
    ("crates/prun-engine/src/integrate/stage.rs", "the check of a combination, and the user's own commands"),
    ("crates/prun-engine/src/hooks.rs", "what keeps the machine awake"),
    ("crates/prun-engine/src/workspace/guard.rs", "tries whether a guard can be had"),
    ("crates/prun/src/supervisor.rs", "supervisors"),
    ("crates/prun/src/registration.rs", "an agent client's own `mcp add`"),
    ("crates/prun/src/commands/demo.rs", "the demo repository's own tests"),
];

/// Who may write to stdout or stderr, and why.
const PRINTERS: &[(&str, &str)] = &[
    ("crates/prun/src/ui.rs", "everything that people and scripts read"),
    ("crates/prun/src/mcp/stdio.rs", "takes the streams of the protocol away from everybody else"),
    ("crates/prun/src/commands/dispatch_task.rs", "the contract's own words, before anything is set up"),
    (
        "crates/prun/src/commands/old_verb.rs",
        "the lines of the contract's other verbs, as bytes and flushed one by one",
    ),
    ("crates/prun-engine/src/dispatcher/attempt.rs", "the contract's STATE-DIR line and the last lines of a worker"),
    ("crates/prun-engine/src/hooks.rs", "a failed wish, into the supervisor's log"),
    ("crates/prun-engine/src/dispatcher/mod.rs", "a dispatcher's own words, into its log"),
    ("crates/prun/src/cli.rs", "asks clap where a usage error goes"),
];

/// Files that are longer than they should be, and why they stay in one piece.
const LONG_FILES: &[(&str, &str)] = &[];

/// The most lines of a file, its tests not counted.
const MOST_LINES: usize = 500;

#[test]
fn crates_depend_in_one_direction() {
    let own = |name: &str| -> BTreeSet<String> {
        dependencies(name, "dependencies").into_iter().filter(|name| name.starts_with("prun")).collect()
    };
    let core = dependencies("prun-core", "dependencies");
    let allowed: BTreeSet<String> = CORE_DEPENDENCIES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(core.difference(&allowed).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(own("prun-engine"), BTreeSet::from(["prun-core".to_owned()]));
    assert_eq!(own("prun"), BTreeSet::from(["prun-core".to_owned(), "prun-engine".to_owned()]));
    assert_eq!(own("prun-testkit"), BTreeSet::new());
    for name in ["prun-core", "prun-engine"] {
        let asynchronous = dependencies(name, "dependencies").into_iter().any(|name| name.starts_with("tokio"));
        assert!(!asynchronous, "{name} is synchronous");
    }
    let other = product().into_iter().filter(|(file, _)| !file.starts_with("crates/prun/src/mcp/"));
    let found = places(other, |line| ["tokio::", "rmcp::", "async ", ".await"].iter().any(|word| line.contains(word)));
    assert_eq!(found, [""; 0], "only the protocol's server has a runtime");
}

#[test]
fn the_core_touches_nothing() {
    let core = product().into_iter().filter(|(file, _)| file.starts_with("crates/prun-core/"));
    let found = places(core, |line| IMPURE.iter().any(|word| line.contains(word)));
    assert_eq!(found, [""; 0]);
}

#[test]
fn programs_are_started_in_known_places_and_git_in_one() {
    check_only("Command::new(", STARTERS);
    let other = product().into_iter().filter(|(file, _)| file != "crates/prun-engine/src/git.rs");
    let found = places(other, |line| {
        [r#"Command::new("git"#, r#"PathBuf::from("git")"#, r#"OsString::from("git")"#]
            .iter()
            .any(|start| line.contains(start))
    });
    assert_eq!(found, [""; 0]);
}

#[test]
fn only_the_ledger_knows_its_database() {
    let other = product().into_iter().filter(|(file, _)| !file.starts_with("crates/prun-engine/src/ledger/"));
    assert_eq!(places(other, |line| line.contains("rusqlite")), [""; 0]);
    assert!(!dependencies("prun", "dependencies").contains("rusqlite"));
}

#[test]
fn printing_has_its_place() {
    for printing in ["stdout()", "stderr()", "print!(", "println!("] {
        check_only(printing, PRINTERS);
    }
}

#[test]
fn no_file_grows_beyond_what_one_reads_at_once() {
    let mut long: BTreeMap<String, usize> = product().into_iter().map(|(file, lines)| (file, lines.len())).collect();
    long.retain(|_, lines| *lines > MOST_LINES);
    for (file, why) in LONG_FILES {
        assert!(long.remove(*file).is_some(), "{file} is short enough now; no exception is needed ({why})");
    }
    assert!(long.is_empty(), "more than {MOST_LINES} lines: {long:?}");
}

#[test]
fn the_map_names_every_module_and_nothing_that_is_gone() {
    let map = code_map();
    for (dir, names) in &map {
        let gone: Vec<&String> = names.iter().filter(|name| !root().join(dir).join(name).exists()).collect();
        assert!(gone.is_empty(), "ARCHITECTURE.md names files that are not in {dir}: {gone:?}");
    }
    for (dir, top) in [("prun-core/src", "lib.rs"), ("prun-engine/src", "lib.rs"), ("prun/src", "main.rs")] {
        let dir = format!("crates/{dir}");
        let missing: Vec<String> =
            modules(&format!("{dir}/{top}")).into_iter().filter(|module| !names_module(&map[&dir], module)).collect();
        assert!(missing.is_empty(), "the part {dir} of ARCHITECTURE.md does not name {missing:?}");
    }
}

#[test]
fn files_in_backticks_in_the_architecture_exist() {
    let text = read("ARCHITECTURE.md");
    let words = text.split('`').skip(1).step_by(2);
    let files = words.filter(|word| word.ends_with(".rs") || word.ends_with('/') && !word.contains(' '));
    let known: Vec<String> = tracked();
    for file in files {
        let inner = format!("/{file}");
        assert!(known.iter().any(|path| path.starts_with(file) || format!("/{path}").contains(&inner)), "{file}");
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    for page in tracked().into_iter().filter(|file| file.ends_with(".md") && !file.contains("/src/")) {
        let dir = root().join(&page);
        let dir = dir.parent().unwrap();
        for link in links(&read(&page)).into_iter().filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = link.split('#').next().unwrap();
            assert!(dir.join(file).exists(), "{page} links to {link}");
        }
    }
}

#[test]
fn every_integration_test_is_compiled() {
    let declared = modules("crates/prun/tests/it/main.rs");
    let files = tracked().into_iter().filter_map(|file| {
        let name = file.strip_prefix("crates/prun/tests/it/")?.strip_suffix(".rs")?.to_owned();
        (name != "main" && !name.contains('/')).then_some(name)
    });
    let forgotten: Vec<String> = files.filter(|name| !declared.contains(name)).collect();
    assert_eq!(forgotten, [""; 0]);
}

#[test]
fn nothing_names_one_machine_or_one_registry() {
    // In two parts each, so that this file is clean as well.
    let needles = [
        ["/wo", "rk/wt"],
        ["/wo", "rk/main"],
        ["/wo", "rk/shared"],
        ["/ro", "ot/"],
        ["registry.np", "mjs"],
        ["static.crates", ".io"],
        ["index.crates", ".io"],
        ["py", "pi.org"],
        ["proxy.go", "lang"],
    ]
    .map(|parts| parts.concat());
    for file in tracked() {
        let Ok(text) = std::fs::read_to_string(root().join(&file)) else { continue };
        let found: Vec<&String> = needles.iter().filter(|needle| text.contains(needle.as_str())).collect();
        assert!(found.is_empty(), "{file} names {found:?}");
    }
}

/// Only `allowed` files say `what`.
fn check_only(what: &str, allowed: &[(&str, &str)]) {
    let other = product().into_iter().filter(|(file, _)| !allowed.iter().any(|(name, _)| name == file));
    assert_eq!(places(other, |line| line.contains(what)), [""; 0], "{what} has its place in {allowed:?}");
}

/// `file:line: text` of each line that is found.
fn places(files: impl IntoIterator<Item = (String, Vec<String>)>, found: impl Fn(&str) -> bool) -> Vec<String> {
    let in_file = |(file, lines): (String, Vec<String>)| {
        let hits = lines.iter().enumerate().filter(|(_, line)| found(line));
        hits.map(|(at, line)| format!("{file}:{}: {}", at + 1, line.trim())).collect::<Vec<_>>()
    };
    files.into_iter().flat_map(in_file).collect()
}

/// The lines of what users get: no testkit, no tests, nothing after a file's `#[cfg(test)]`, no comments.
fn product() -> Vec<(String, Vec<String>)> {
    let crates = ["crates/prun-core/src/", "crates/prun-engine/src/", "crates/prun/src/"];
    let is_test = |file: &str| {
        file.contains("/tests/")
            || file.contains("/simulation/")
            || ["tests.rs", "testing.rs"].iter().any(|end| file.ends_with(end))
    };
    let files = tracked()
        .into_iter()
        .filter(|file| file.ends_with(".rs") && crates.iter().any(|start| file.starts_with(start)) && !is_test(file));
    files.map(|file| (file.clone(), without_tests(&read(&file)))).collect()
}

fn without_tests(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].ends_with('{');
    let end = lines.windows(2).position(is_tests).unwrap_or(lines.len());
    let code = |line: &&str| if line.trim_start().starts_with("//") { String::new() } else { (*line).to_owned() };
    lines[..end].iter().map(code).collect()
}

/// The names that the code map lists under each directory that is a heading of it.
fn code_map() -> BTreeMap<String, Vec<String>> {
    let mut map: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut dir = None;
    for line in read("ARCHITECTURE.md").lines() {
        if line.starts_with('#') {
            dir = line.strip_prefix("### `").map(|heading| heading.trim_end_matches('`').to_owned());
        } else if let Some(dir) = &dir
            && let Some((names, _)) = line.strip_prefix("- ").and_then(|entry| entry.split_once(':'))
        {
            let names = names.split('`').skip(1).step_by(2).map(|name| name.trim_end_matches('/').to_owned());
            map.entry(dir.clone()).or_default().extend(names);
        }
    }
    map
}

/// What a program at a place of the kernel's choice costs each dispatcher stands in `build.rs`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn the_program_is_linked_at_a_fixed_address() {
    // `e_type` at 16, of which 2 stands for such a program (`elf.h`).
    let program = std::fs::read(env!("CARGO_BIN_EXE_prun")).unwrap();
    assert_eq!(u16::from_ne_bytes([program[16], program[17]]), 2);
}

/// C31: a signal at the death of a parent comes at the death of its *thread*, and a pool's threads come and go.
#[test]
fn no_process_hangs_on_the_life_of_a_thread() {
    // In two parts, so that this file does not hold them.
    let words =
        [("PR_SET_PDEATH", "SIG"), ("set_parent_process_death", "_signal")].map(|(one, two)| format!("{one}{two}"));
    for file in tracked().iter().filter(|file| file.ends_with(".rs")) {
        let text = read(file);
        assert!(!words.iter().any(|word| text.contains(word)), "{file}");
    }
}

fn names_module(names: &[String], module: &str) -> bool {
    names.iter().any(|name| name.strip_suffix(".rs").unwrap_or(name) == module)
}

/// The modules that a file declares.
fn modules(file: &str) -> Vec<String> {
    let text = read(file);
    let declared = text.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")).unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    declared.map(str::to_owned).collect()
}

/// The names in one table of a crate's manifest.
fn dependencies(name: &str, table: &str) -> BTreeSet<String> {
    let manifest = read(&format!("crates/{name}/Cargo.toml"));
    let lines = manifest.lines().skip_while(|line| *line != format!("[{table}]")).skip(1);
    let entries = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    entries
        .filter_map(|line| line.split(['.', '=', ' ']).next())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The targets of a page's links.
fn links(page: &str) -> Vec<String> {
    page.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

/// Every file that git tracks, from the top.
fn tracked() -> Vec<String> {
    let listed = Git::from_env().command(["ls-files", "-z"]).dir(root()).run().unwrap();
    let files = listed.fields().map(|file| String::from_utf8_lossy(file).into_owned());
    // A file that is being removed is listed until that is committed.
    files.filter(|file| root().join(file).exists()).collect()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("cannot read {file}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
