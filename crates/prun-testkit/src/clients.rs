//! The real agent clients that tests drive, and the environment in which they reach nothing but a
//! [`Server`] on loopback.
//!
//! `scripts/install-test-clients` puts Codex and Claude Code into `target/test-clients`, at the versions of
//! `crates/prun-testkit/clients/package-lock.json`; `scripts/install-test-clients more` also the clients of the long
//! form, at those of `clients/more`.

use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use crate::fake_model::Server;

/// An agent client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// `@openai/codex`.
    Codex,
    /// `@anthropic-ai/claude-code`.
    Claude,
    /// `@google/gemini-cli`; only in the long form of the tests, as all that follow.
    Gemini,
    /// `opencode-ai`.
    Opencode,
    /// `@qwen-code/qwen-code`.
    Qwen,
}

impl Client {
    /// Its name, which is that of its program and of prun's executor.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Claude => "claude",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Qwen => "qwen",
        }
    }

    /// The program as npm installs it; `None` where it is not installed.
    ///
    /// # Panics
    /// Codex or Claude Code is not installed and `PRUN_TEST_REQUIRE_ALL=1` forbids to skip tests.
    #[must_use]
    pub fn installed(self) -> Option<PathBuf> {
        let is_of_short_form = matches!(self, Self::Codex | Self::Claude);
        let place = if is_of_short_form { "test-clients" } else { "test-clients/more" };
        let program = target_dir().join(place).join("node_modules/.bin").join(self.name());
        if program.exists() {
            return Some(program);
        }
        let required = std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_some_and(|value| value == "1");
        let missing = program.display();
        assert!(!(required && is_of_short_form), "{missing} is missing: run scripts/install-test-clients");
        None
    }

    /// The whole environment of a client in `home` that knows nobody but `server`.
    #[must_use]
    pub fn env(self, home: &Path, server: &Server) -> Vec<(String, String)> {
        let own = match self {
            Self::Codex => return codex_env(home),
            Self::Claude => vec![("ANTHROPIC_API_KEY", "test-key".into()), ("ANTHROPIC_BASE_URL", server.origin())],
            Self::Gemini => vec![("GEMINI_API_KEY", "test-key".into()), ("GOOGLE_GEMINI_BASE_URL", server.origin())],
            Self::Opencode => {
                let options = json!({"baseURL": server.base_url(), "apiKey": "test-key"});
                let models = json!({"fake-model": {"name": "fake"}});
                let provider = json!({"npm": "@ai-sdk/openai-compatible", "options": options, "models": models});
                let config = json!({"provider": {"fake": provider}, "autoupdate": false, "share": "disabled"});
                vec![("OPENCODE_CONFIG_CONTENT", config.to_string()), ("OPENCODE_DISABLE_MODELS_FETCH", "1".into())]
            }
            Self::Qwen => vec![("OPENAI_API_KEY", "test-key".into()), ("OPENAI_BASE_URL", server.base_url())],
        };
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        client_env(home).into_iter().chain(own).collect()
    }

    /// A configuration of prun in which its executor is `program`, talking to `server`.
    #[must_use]
    pub fn config(self, program: &Path, server: &Server) -> String {
        match self {
            Self::Codex => codex_config(program, server),
            Self::Qwen => {
                let args = r#"["--yolo", "-o", "stream-json", "--auth-type", "openai"]"#;
                format!("[executor.qwen]\nprogram = {program:?}\nstagger = \"0s\"\nargs = {args}\n")
            }
            _ => format!("[executor.{}]\nprogram = {program:?}\nstagger = \"0s\"\n", self.name()),
        }
    }

    /// The model to ask it for; `None` for its default.
    #[must_use]
    pub fn model(self) -> Option<&'static str> {
        match self {
            Self::Codex | Self::Claude => None,
            Self::Gemini => Some("gemini-2.5-pro"),
            Self::Opencode => Some("fake/fake-model"),
            Self::Qwen => Some("fake-model"),
        }
    }
}

/// The Codex client; see [`Client::installed`].
#[must_use]
pub fn codex() -> Option<PathBuf> {
    Client::Codex.installed()
}

/// The command line of the MCP Inspector, a program for node; `None` where it is not installed.
///
/// # Panics
/// It is not installed and `PRUN_TEST_REQUIRE_ALL=1` forbids to skip tests.
#[must_use]
pub fn inspector() -> Option<PathBuf> {
    node_modules().map(|modules| modules.join("@modelcontextprotocol/inspector-cli/build/index.js"))
}

/// Where node finds what tests use beside the clients: the MCP Inspector, a validator of JSON Schema (`ajv`), a
/// tokenizer (`js-tiktoken`). `None` where they are not installed.
///
/// # Panics
/// They are not installed and `PRUN_TEST_REQUIRE_ALL=1` forbids to skip tests.
#[must_use]
pub fn node_modules() -> Option<PathBuf> {
    let modules = target_dir().join("test-clients/node_modules");
    if modules.join("js-tiktoken").exists() {
        return Some(modules);
    }
    let required = std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!required, "{} lacks js-tiktoken: run scripts/install-test-clients", modules.display());
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
    // gemini asks for the kind of its account, which no variable tells.
    std::fs::create_dir(home.path().join(".gemini")).expect("create gemini's directory");
    let settings = json!({"security": {"auth": {"selectedType": "gemini-api-key"}}});
    std::fs::write(home.path().join(".gemini/settings.json"), settings.to_string()).expect("write gemini's settings");
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
        ("PRUN_PRESSURE", "off".into()),
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
