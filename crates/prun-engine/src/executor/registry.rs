//! The executors there are: those that prun brings along, changed and added to by the user's own
//! `config.toml` and tuned by the repository's `.prun/config.toml`, which never names a program.

mod config;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use prun_core::ids::ExecutorName;
use serde::Deserialize;
use toml::Spanned;

use self::config::{Config, Problem, Source};
use super::stream::StreamKind;
use super::version::Version;
use crate::files::read_regular;
use crate::hooks::Wishes;
use crate::spec::ErrorRule;

const BUILTIN: &str = include_str!("builtin.toml");

/// Where a repository's configuration stands in it.
pub const REPOSITORY_FILE: &str = ".prun/config.toml";

/// No configuration is larger.
const CONFIG_LIMIT: u64 = 1 << 20;

/// Something that takes units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executor {
    /// Its name in plans.
    pub name: ExecutorName,
    /// How its workers are started and their output is read.
    pub kind: Kind,
    /// The program, looked up in `PATH` where it has no slash. `None` where the unit names it, or
    /// nothing is started.
    pub program: Option<String>,
    /// Further arguments, before those that belong to one unit.
    pub args: Vec<String>,
    /// Of a command: arguments for the unit's model, with `{model}`; none where it takes no model.
    pub model_args: Vec<String>,
    /// The same for the effort, with `{effort}`.
    pub effort_args: Vec<String>,
    /// The same for a session that goes on, with `{session}`.
    pub resume_args: Vec<String>,
    /// How its workers' stdout is understood.
    pub stream: StreamKind,
    /// Of a command: what its output means where it fails.
    pub errors: Vec<ErrorRule>,
    /// Of a command: the version that prun was tried with. Only such a program is asked for its version.
    pub tried: Option<Version>,
    /// Milliseconds that a worker may take until its first output, and live on after its last word, where the
    /// unit says nothing of it.
    pub first_output_millis: Option<u64>,
    /// See there.
    pub linger_millis: Option<u64>,
    /// How many units it works on at the same time, at least 1. Where it has an account: in all runs of the user
    /// together.
    pub slots: u32,
    /// The account that its workers use; executors of one account share its slots.
    pub account: String,
    /// Milliseconds between two starts, to be spread by jitter.
    pub stagger_millis: u64,
    /// Variables that its workers get beside the inherited environment. No secrets: they are written
    /// into the run's directory.
    pub env: Vec<(String, String)>,
}

/// How an executor's workers are started and their output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `codex exec`.
    Codex,
    /// `claude -p`.
    Claude,
    /// Any program.
    Command,
    /// Nothing is started; the work is handed over.
    Session,
}

impl Executor {
    /// Whether its slots count over all runs of the user: it has a program of its own.
    #[must_use]
    pub fn shares_slots(&self) -> bool {
        self.kind != Kind::Session && !self.is_unbounded()
    }

    /// Whether its slots are only what `jobs` defaults to: it runs the unit's own command, under no account.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.kind == Kind::Command && self.program.is_none()
    }

    /// Whether its workers can go on in a session of an earlier one.
    #[must_use]
    pub fn resumes(&self) -> bool {
        matches!(self.kind, Kind::Codex | Kind::Claude) || !self.resume_args.is_empty()
    }

    /// Whether it has an account, as agents have.
    #[must_use]
    pub fn has_account(&self) -> bool {
        match self.kind {
            Kind::Codex | Kind::Claude => true,
            Kind::Command => self.stream.has_final_event(),
            Kind::Session => false,
        }
    }
}

/// All executors, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    executors: BTreeMap<ExecutorName, Executor>,
    order: Option<Vec<ExecutorName>>,
    wishes: Wishes,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{}:{line}: {what}", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

/// A name that no executor has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no executor {name:?}; there are {}", known.join(", "))]
pub struct UnknownExecutor {
    /// The name.
    pub name: String,
    /// The names there are.
    pub known: Vec<String>,
}

impl Registry {
    /// The executors that prun brings along, on a machine with that many CPUs.
    #[must_use]
    pub fn built_in(cpus: u32) -> Self {
        Self { executors: BTreeMap::new(), order: None, wishes: Wishes::default() }
            .extended(BUILTIN, Path::new("builtin.toml"), cpus, Source::Builtin)
            .expect("the built-in registry is tested")
    }

    /// This registry as a user's configuration `text` changes it. `file` is for messages only.
    ///
    /// # Errors
    /// The text is no TOML, has unknown keys, or values that cannot be used.
    pub fn with_config(self, text: &str, file: &Path, cpus: u32) -> Result<Self, ConfigError> {
        self.extended(text, file, cpus, Source::User)
    }

    /// The built-in executors and the user's configuration, if there is one.
    ///
    /// # Errors
    /// `PRUN_CONFIG` names a file that is not there, or the configuration cannot be read or used.
    pub fn load(var: impl Fn(&str) -> Option<OsString>, cpus: u32) -> Result<Self, ConfigError> {
        let registry = Self::built_in(cpus);
        let Some(file) = config_file(&var) else { return Ok(registry) };
        match std::fs::read_to_string(&file) {
            Ok(text) => registry.with_config(&text, &file, cpus),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && var("PRUN_CONFIG").is_none() => Ok(registry),
            Err(source) => Err(ConfigError::Read { file, source }),
        }
    }

    /// This registry as a repository's `text` tunes it: fewer units at once, longer pauses, other limits. It names
    /// no program, no argument and no variable, for whoever clones it would run them.
    ///
    /// # Errors
    /// As [`Self::with_config`]; also where it says more than it may.
    pub fn with_repository(self, text: &str, file: &Path, cpus: u32) -> Result<Self, ConfigError> {
        self.extended(text, file, cpus, Source::Repository)
    }

    /// This registry as the repository at `top` tunes it, if it does.
    ///
    /// # Errors
    /// Its `.prun/config.toml` cannot be read or says what it may not.
    pub fn in_repository(self, top: &Path, cpus: u32) -> Result<Self, ConfigError> {
        let file = top.join(REPOSITORY_FILE);
        match read_regular(&file, CONFIG_LIMIT).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other)) {
            Ok(text) => self.with_repository(&text, &file, cpus),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(self),
            Err(source) => Err(ConfigError::Read { file, source }),
        }
    }

    /// The executors of a unit whose plan names none, where the user or the repository says so.
    #[must_use]
    pub fn order(&self) -> Option<&[ExecutorName]> {
        self.order.as_deref()
    }

    /// What the user's configuration wants done beside every run.
    #[must_use]
    pub fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    /// All executors in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Executor> {
        self.executors.values()
    }

    /// The executor of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn get(&self, name: &ExecutorName) -> Result<&Executor, UnknownExecutor> {
        self.executors.get(name).ok_or_else(|| UnknownExecutor {
            name: name.to_string(),
            known: self.executors.keys().map(ToString::to_string).collect(),
        })
    }

    fn extended(mut self, text: &str, file: &Path, cpus: u32, source: Source) -> Result<Self, ConfigError> {
        let place = |problem: Problem| ConfigError::Content {
            file: file.to_owned(),
            line: text[..problem.at.start.min(text.len())].matches('\n').count() + 1,
            what: problem.what,
        };
        let config: Config = toml::from_str(text).map_err(|error| place(Problem::of_toml(&error)))?;
        if let Some(wishes) = config.run {
            if source == Source::Repository {
                let what = "only your own configuration says what is run beside a run".to_owned();
                return Err(place(Problem::new(wishes.span(), what)));
            }
            self.wishes = wishes.into_inner().or(self.wishes);
        }
        for (name, table) in config.executor {
            let at = name.span();
            let name: ExecutorName =
                name.into_inner().parse().map_err(|error| place(Problem::new(at.clone(), format!("{error}"))))?;
            let old = self.executors.remove(&name);
            let executor = table.apply(name.clone(), old, cpus, source, &at).map_err(place)?;
            self.executors.insert(name, executor);
        }
        if let Some(names) = config.executors {
            let order = self.known(names).map_err(place)?;
            // The user's own word goes before the repository's.
            self.order = self.order.filter(|_| source == Source::Repository).or(Some(order));
        }
        Ok(self)
    }

    fn known(&self, names: Spanned<Vec<String>>) -> Result<Vec<ExecutorName>, Problem> {
        let at = names.span();
        let known = |name: String| {
            let name: ExecutorName = name.parse().map_err(|error| Problem::new(at.clone(), format!("{error}")))?;
            self.get(&name).map(|_| name).map_err(|error| Problem::new(at.clone(), error.to_string()))
        };
        let names = names.into_inner().into_iter().map(known).collect::<Result<Vec<_>, _>>()?;
        if names.is_empty() { Err(Problem::new(at, "`executors` names none".to_owned())) } else { Ok(names) }
    }
}

/// The user's configuration file: `$PRUN_CONFIG`, else `$XDG_CONFIG_HOME/prun/config.toml`, else
/// `$HOME/.config/prun/config.toml`; relative values of the last two are ignored, as the XDG rules say.
#[must_use]
pub fn config_file(var: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let absolute = |name: &str| set(name).filter(|path| path.is_absolute());
    set("PRUN_CONFIG")
        .or_else(|| absolute("XDG_CONFIG_HOME").map(|dir| dir.join("prun/config.toml")))
        .or_else(|| absolute("HOME").map(|home| home.join(".config/prun/config.toml")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Registry, String> {
        Registry::built_in(8).with_config(text, Path::new("/c/config.toml"), 8).map_err(|error| error.to_string())
    }

    fn executor(registry: &Registry, name: &str) -> Executor {
        registry.get(&name.parse().unwrap()).unwrap().clone()
    }

    #[test]
    fn the_built_in_executors_are_there() {
        let registry = Registry::built_in(8);
        let row =
            |executor: &Executor| (executor.name.to_string(), executor.kind, executor.slots, executor.stagger_millis);
        assert_eq!(
            registry.iter().map(row).collect::<Vec<_>>(),
            [
                ("claude".into(), Kind::Claude, 4, 1000),
                ("codex".into(), Kind::Codex, 6, 1000),
                ("command".into(), Kind::Command, 8, 0),
                ("gemini".into(), Kind::Command, 2, 2000),
                ("opencode".into(), Kind::Command, 2, 2000),
                ("qwen".into(), Kind::Command, 2, 2000),
                ("session".into(), Kind::Session, 1000, 0)
            ]
        );
        assert_eq!(executor(&registry, "codex").program.as_deref(), Some("codex"));
        assert_eq!(
            (executor(&registry, "qwen").stream, executor(&registry, "qwen").tried),
            (StreamKind::Claude, Some(Version(0, 24)))
        );
        let error = registry.get(&"cdx".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no executor \"cdx\"; there are claude, codex, command, gemini, opencode, qwen, session"
        );
    }

    #[test]
    fn a_user_changes_an_executor_and_adds_one() {
        let registry = read(
            "[executor.codex]\nslots = 2\nstagger = \"1.5s\"\nargs = [\"-c\", \"a=1\"]\nenv = { RUST_LOG = \"off\" }\n\
             [executor.aider]\nkind = \"command\"\nprogram = \"/opt/aider\"\nslots = \"cpus\"\n",
        )
        .unwrap();
        let codex = executor(&registry, "codex");
        assert_eq!((codex.slots, codex.stagger_millis, codex.program.as_deref()), (2, 1500, Some("codex")));
        assert_eq!((codex.args, codex.env), (vec!["-c".into(), "a=1".into()], vec![("RUST_LOG".into(), "off".into())]));
        let aider = executor(&registry, "aider");
        assert_eq!((aider.kind, aider.slots, aider.program.as_deref()), (Kind::Command, 8, Some("/opt/aider")));
        assert_eq!(read(""), Ok(Registry::built_in(8)));
    }

    #[test]
    fn a_wrong_configuration_is_refused_with_its_line() {
        for (text, error) in [
            ("[executor.codex]\n\nslot = 2\n", ":3: unknown field `slot`"),
            ("\n[executor_.codex]\n", ":2: unknown field `executor_`"),
            ("\n[executors.codex]\n", ":2: "),
            ("x = [\n", ":1: "),
            ("[executor.codex]\nslots = 0\n", ":2: `slots` is a number from 1 or \"cpus\""),
            ("[executor.codex]\nslots = -3\n", ":2: `slots` is a number"),
            ("[executor.codex]\nslots = \"many\"\n", ":2: `slots` is a number"),
            ("[executor.codex]\nargs=[]\nstagger = \"2\"\n", ":3: \"2\" is no duration"),
            ("[executor.codex]\naccount = \"../x\"\n", ":2: `account` is a name like that of an executor"),
            ("[executor.codex]\nstagger = \"-2s\"\n", ":2: \"-2s\" is no duration"),
            ("[executor.codex]\nprogram = \"\"\n", ":2: `program` is empty"),
            ("[executor.codex]\nkind = \"command\"\n", ":2: the kind of codex cannot be changed"),
            ("[executor.new]\nprogram = \"x\"\n", ":1: new is a new executor: it needs kind = \"command\""),
            ("[executor.new]\nkind = \"codex\"\n", ":2: new is a new executor: its kind must be"),
            ("[executor.new]\nkind = \"docker\"\n", ":2: unknown variant `docker`"),
            ("[executor.codex]\nstream = \"claude\"\n", ":2: `stream` is for commands; prun knows codex itself"),
            ("[executor.x]\nkind = \"command\"\nstream = \"morse\"\n", ":3: unknown variant `morse`"),
            ("[executor.x]\nkind = \"command\"\nmodel_args = [\"-m\"]\n", ":3: none of these arguments has {model}"),
            ("[executor.gemini]\nresult = \"stdout\"\n", ":2: its `stream` of events tells the result"),
            (
                "[executor.x]\nkind = \"command\"\nerrors = [{ class = \"auth\", pattern = \"(\" }]\n",
                ":3: \"(\" is no regular expression: unclosed group",
            ),
            (
                "[executor.x]\nkind = \"command\"\nerrors = [{ class = \"bad\", pattern = \"x\" }]\n",
                ":3: unknown variant `bad`",
            ),
            ("[executor.session]\nprogram = \"x\"\n", ":2: the executor session starts no program"),
            ("[executor.Big]\nkind = \"command\"\n", ":1: \"Big\" is no executor name"),
            ("[executor.codex.env]\n\"A=B\" = \"x\"\n", ":2: \"A=B\" is no name of a variable"),
            ("[executor.codex.env]\nX = \"1\"\nCODEX_API_KEY = \"x\"\n", ":3: CODEX_API_KEY looks like a secret"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.starts_with(&format!("/c/config.toml{error}")), "{text:?}: {said}");
            assert!(!said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn a_command_says_how_it_is_used() {
        let registry = read(
            "[executor.x]\nkind = \"command\"\nprogram = \"x\"\nargs = [\"--ask\", \"{prompt}\"]\nresult = \"stdout\"\n\
             model_args = [\"-m{model}\"]\nfirst_output = \"5s\"\nlinger = \"1s\"\n\
             errors = [{ class = \"usage-limit\", pattern = \"(?i)quota\" }]\n",
        )
        .unwrap();
        let x = executor(&registry, "x");
        assert_eq!((x.stream, x.first_output_millis, x.linger_millis), (StreamKind::Text, Some(5000), Some(1000)));
        assert_eq!((x.errors[0].pattern.as_str(), x.resumes(), x.has_account()), ("(?i)quota", false, false));
        assert!(executor(&registry, "opencode").resumes() && executor(&registry, "gemini").has_account());
    }

    #[test]
    fn a_repository_tunes_and_names_no_program() {
        let tune = |text: &str| {
            let file = Path::new("/r/.prun/config.toml");
            Registry::built_in(8).with_repository(text, file, 8).map_err(|error| error.to_string())
        };
        let tuned = tune("[executor.codex]\nslots = 2\nstagger = \"5s\"\nfirst_output = \"9m\"\n").unwrap();
        let codex = executor(&tuned, "codex");
        assert_eq!((codex.slots, codex.stagger_millis, codex.first_output_millis), (2, 5000, Some(540_000)));
        let tuned = tune("[executor.codex]\nslots = 600\nstagger = \"0s\"\n").unwrap();
        assert_eq!((executor(&tuned, "codex").slots, executor(&tuned, "codex").stagger_millis), (6, 1000));
        for (text, error) in [
            ("[executor.codex]\nprogram = \"./evil\"\n", ":2: a repository may not say `program`"),
            ("[run]\non_done = \"./evil\"\n", ":1: only your own configuration says what is run beside a run"),
            ("[executor.codex]\nargs = [\"-c\", \"x\"]\n", ":2: a repository may not say `args`"),
            ("[executor.codex]\nslots = 1\nenv = { PATH = \"/r\" }\n", ":3: a repository may not say `env`"),
            ("[executor.evil]\nkind = \"command\"\n", ":1: there is no executor evil; a repository adds none"),
        ] {
            let said = tune(text).unwrap_err();
            assert!(said.starts_with(&format!("/r/.prun/config.toml{error}")), "{said}");
        }
    }

    #[test]
    fn the_user_chooses_before_the_repository() {
        let names = |registry: &Registry| {
            registry.order().map(|order| order.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let repository =
            |registry: Registry| registry.with_repository("executors = [\"claude\", \"codex\"]\n", Path::new("r"), 8);
        assert_eq!(names(&Registry::built_in(8)), None);
        assert_eq!(names(&repository(Registry::built_in(8)).unwrap()), Some(vec!["claude".into(), "codex".into()]));
        let user = read("executors = [\"qwen\"]\n").unwrap();
        assert_eq!(names(&repository(user).unwrap()), Some(vec!["qwen".into()]));
        assert!(read("executors = [\"cdx\"]\n").unwrap_err().contains("there is no executor \"cdx\""));
        assert!(read("executors = []\n").unwrap_err().contains("names none"));
    }

    #[test]
    fn a_repositorys_configuration_is_read_where_there_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let tuned = || Registry::built_in(8).in_repository(dir.path(), 8);
        assert_eq!(tuned().unwrap(), Registry::built_in(8));
        std::fs::create_dir(dir.path().join(".prun")).unwrap();
        std::fs::write(dir.path().join(REPOSITORY_FILE), "[executor.codex]\nslots = 1\n").unwrap();
        assert_eq!(executor(&tuned().unwrap(), "codex").slots, 1);
        std::fs::write(dir.path().join(REPOSITORY_FILE), b"\xff").unwrap();
        assert!(matches!(tuned(), Err(ConfigError::Read { .. })));
    }

    #[test]
    fn the_configuration_is_where_the_environment_says() {
        let file = |vars: &[(&str, &str)]| {
            config_file(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        let all = [("PRUN_CONFIG", "c.toml"), ("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(file(&all), Some("c.toml".into()));
        assert_eq!(file(&all[1..]), Some("/x/prun/config.toml".into()));
        assert_eq!(file(&all[2..]), Some("/h/.config/prun/config.toml".into()));
        assert_eq!(file(&[("XDG_CONFIG_HOME", "rel")]), None);
    }

    #[test]
    fn a_configuration_that_was_named_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let load = |name: &'static str| {
            Registry::load(|asked| (asked == name).then(|| dir.path().join("none.toml").into_os_string()), 2)
        };
        assert!(load("PRUN_CONFIG").unwrap_err().to_string().contains("none.toml"));
        assert_eq!(load("XDG_CONFIG_HOME").unwrap(), Registry::built_in(2));
    }
}
