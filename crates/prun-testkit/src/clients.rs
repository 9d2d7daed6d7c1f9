//! The real agent clients that tests drive, and the environment in which they reach nothing but a
//! [`Server`] on loopback.
//!
//! `scripts/install-test-clients` puts Codex and Claude Code into `target/test-clients`, at the versions of
//! `crates/prun-testkit/clients/package-lock.json`.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::fake_model::Server;

/// The Codex client as npm installs it (its Node wrapper); `None` where it is not installed.
///
/// # Panics
/// It is not installed and `PRUN_TEST_REQUIRE_ALL=1` forbids to skip tests.
#[must_use]
pub fn codex() -> Option<PathBuf> {
    client("codex")
}

/// Claude Code as npm installs it; `None` where it is not installed.
///
/// # Panics
/// As [`codex`].
#[must_use]
pub fn claude() -> Option<PathBuf> {
    client("claude")
}

fn client(name: &str) -> Option<PathBuf> {
    let client = target_dir().join("test-clients/node_modules/.bin").join(name);
    if client.exists() {
        return Some(client);
    }
    let required = std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!required, "{} is missing: run scripts/install-test-clients", client.display());
    None
}

/// An empty home directory for a client, removed on drop.
///
/// It is in cargo's target directory because Codex refuses to install its helpers under the
/// temporary directory.
///
/// # Panics
/// The directory cannot be made.
#[must_use]
pub fn client_home() -> TempDir {
    let parent = target_dir().join("test-homes");
    std::fs::create_dir_all(&parent).expect("create the directory of test homes");
    let home = TempDir::new_in(parent).expect("create a test home");
    // Codex fails at once where the directory that CODEX_HOME names is missing.
    std::fs::create_dir(home.path().join(".codex")).expect("create CODEX_HOME");
    home
}

/// The whole environment of a Codex that knows nobody but the scripted server. The server's address
/// goes with [`codex_args`]: Codex takes it from no variable.
#[must_use]
pub fn codex_env(home: &Path) -> Vec<(String, String)> {
    let mut env = client_env(home);
    env.push(("CODEX_HOME".into(), text(&home.join(".codex"))));
    env.push(("CODEX_API_KEY".into(), "test-key".into()));
    env
}

/// The whole environment of a Claude Code that knows nobody but `server`.
#[must_use]
pub fn claude_env(home: &Path, server: &Server) -> Vec<(String, String)> {
    let mut env = client_env(home);
    env.push(("ANTHROPIC_API_KEY".into(), "test-key".into()));
    env.push(("ANTHROPIC_BASE_URL".into(), server.origin()));
    env
}

/// An environment with a home and without an account, in which only loopback is reached.
#[must_use]
pub fn client_env(home: &Path) -> Vec<(String, String)> {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
    // Reset times are printed in local time; the client and the test must mean the same one.
    let zone = std::env::var("TZ").ok().map(|zone| ("TZ", zone));
    [
        ("PATH", path),
        ("HOME", text(home)),
        ("LANG", "C.UTF-8".into()),
        ("TERM", "dumb".into()),
        // Whatever else asks for the network is refused at once.
        ("HTTPS_PROXY", "http://127.0.0.1:9".into()),
        ("NO_PROXY", "127.0.0.1".into()),
    ]
    .into_iter()
    .chain(zone)
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn text(path: &Path) -> String {
    path.to_str().expect("a test home has a UTF-8 path").to_owned()
}

/// Arguments that make Codex use `server`.
#[must_use]
pub fn codex_args(server: &Server) -> Vec<String> {
    vec!["-c".into(), format!("openai_base_url=\"{}\"", server.base_url())]
}

/// A configuration of prun whose executor `codex` is `program`, talking to `server`.
#[must_use]
pub fn codex_config(program: &Path, server: &Server) -> String {
    let args = serde_json::to_string(&codex_args(server)).expect("strings are plain data");
    format!("[executor.codex]\nprogram = {program:?}\nargs = {args}\nstagger = \"0s\"\n")
}

fn target_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    std::fs::canonicalize(root.join(target))
        .unwrap_or_else(|_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"))
}
