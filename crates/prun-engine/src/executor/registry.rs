//! The executors there are: those that prun brings along, changed and added to by the user's own
//! `config.toml`. A repository never names a program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use prun_core::ids::ExecutorName;
use serde::Deserialize;
use toml::Spanned;

use super::stream::StreamKind;

const BUILTIN: &str = include_str!("builtin.toml");

/// Executors that a later version of prun will have; a plan that names one gets told so.
const NOT_YET: &[&str] = &["claude"];

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
    /// How many units it works on at the same time, at least 1.
    pub slots: u32,
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
    /// Any program that takes the prompt on stdin.
    Command,
    /// Nothing is started; the work is handed over.
    Session,
}

impl Executor {
    /// Whether its slots are only what `jobs` defaults to: it runs the unit's own command, under no account.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.kind == Kind::Command && self.program.is_none()
    }

    /// How its workers' stdout is understood.
    #[must_use]
    pub fn stream(&self) -> StreamKind {
        match self.kind {
            Kind::Codex => StreamKind::Codex,
            Kind::Command | Kind::Session => StreamKind::Plain,
        }
    }
}

/// All executors, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    executors: BTreeMap<ExecutorName, Executor>,
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
pub enum UnknownExecutor {
    /// A later version of prun will have it.
    #[error("the executor {0:?} is not yet supported")]
    NotYet(String),
    /// Nobody knows it.
    #[error("there is no executor {name:?}; there are {}", known.join(", "))]
    NoSuch {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
}

impl Registry {
    /// The executors that prun brings along, on a machine with that many CPUs.
    #[must_use]
    pub fn built_in(cpus: u32) -> Self {
        Self { executors: BTreeMap::new() }
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

    /// All executors in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Executor> {
        self.executors.values()
    }

    /// The executor of that name.
    ///
    /// # Errors
    /// There is none, or not yet.
    pub fn get(&self, name: &ExecutorName) -> Result<&Executor, UnknownExecutor> {
        self.executors.get(name).ok_or_else(|| {
            let name = name.to_string();
            if NOT_YET.contains(&name.as_str()) {
                return UnknownExecutor::NotYet(name);
            }
            UnknownExecutor::NoSuch { name, known: self.executors.keys().map(ToString::to_string).collect() }
        })
    }

    fn extended(mut self, text: &str, file: &Path, cpus: u32, source: Source) -> Result<Self, ConfigError> {
        let place = |problem: Problem| ConfigError::Content {
            file: file.to_owned(),
            line: text[..problem.at.start.min(text.len())].matches('\n').count() + 1,
            what: problem.what,
        };
        let config: Config = toml::from_str(text).map_err(|error| place(Problem::of_toml(&error)))?;
        for (name, table) in config.executor {
            let at = name.span();
            let name: ExecutorName =
                name.into_inner().parse().map_err(|error| place(Problem::new(at.clone(), format!("{error}"))))?;
            let old = self.executors.remove(&name);
            let executor = table.apply(name.clone(), old, cpus, source, &at).map_err(place)?;
            self.executors.insert(name, executor);
        }
        Ok(self)
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Builtin,
    User,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    executor: BTreeMap<Spanned<String>, Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kind: Option<Spanned<Kind>>,
    program: Option<Spanned<String>>,
    args: Option<Vec<String>>,
    slots: Option<Spanned<Slots>>,
    stagger: Option<Spanned<String>>,
    env: Option<BTreeMap<Spanned<String>, String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`slots` is a number from 1 or \"cpus\"")]
enum Slots {
    Number(u32),
    Word(String),
}

impl Table {
    fn apply(
        self,
        name: ExecutorName,
        old: Option<Executor>,
        cpus: u32,
        source: Source,
        at: &Range<usize>,
    ) -> Result<Executor, Problem> {
        let kind = self.kind(&name, old.as_ref(), source, at)?;
        let old = old.unwrap_or(Executor {
            name,
            kind,
            program: None,
            args: Vec::new(),
            slots: cpus.max(1),
            stagger_millis: 0,
            env: Vec::new(),
        });
        if kind == Kind::Session
            && let Some(program) = &self.program
        {
            return Err(Problem::new(program.span(), format!("the executor {} starts no program", old.name)));
        }
        Ok(Executor {
            program: self.program.map(|program| filled("program", program)).transpose()?.or(old.program),
            args: self.args.unwrap_or(old.args),
            slots: self.slots.map_or(Ok(old.slots), |slots| number(&slots, cpus))?,
            stagger_millis: self.stagger.map_or(Ok(old.stagger_millis), |stagger| millis(&stagger))?,
            env: self.env.map_or(Ok(old.env), variables)?,
            ..old
        })
    }

    fn kind(
        &self,
        name: &ExecutorName,
        old: Option<&Executor>,
        source: Source,
        at: &Range<usize>,
    ) -> Result<Kind, Problem> {
        match (old, &self.kind) {
            (None, _) if source == Source::User && NOT_YET.contains(&name.as_str()) => {
                Err(Problem::new(at.clone(), format!("the executor {name} is not yet supported")))
            }
            (Some(old), None) => Ok(old.kind),
            (Some(old), Some(kind)) if old.kind == *kind.get_ref() => Ok(old.kind),
            (Some(_), Some(kind)) => Err(Problem::new(kind.span(), format!("the kind of {name} cannot be changed"))),
            (None, Some(kind)) if source == Source::Builtin || *kind.get_ref() == Kind::Command => Ok(*kind.get_ref()),
            (None, Some(kind)) => {
                Err(Problem::new(kind.span(), format!("{name} is a new executor: its kind must be \"command\"")))
            }
            (None, None) => {
                Err(Problem::new(at.clone(), format!("{name} is a new executor: it needs kind = \"command\"")))
            }
        }
    }
}

fn filled(key: &str, value: Spanned<String>) -> Result<String, Problem> {
    let at = value.span();
    Some(value.into_inner())
        .filter(|value| !value.is_empty() && !value.contains('\0'))
        .ok_or_else(|| Problem::new(at, format!("`{key}` is empty or has a NUL character")))
}

fn number(slots: &Spanned<Slots>, cpus: u32) -> Result<u32, Problem> {
    match slots.get_ref() {
        Slots::Number(number) if *number > 0 => Ok(*number),
        Slots::Word(word) if word == "cpus" => Ok(cpus.max(1)),
        _ => Err(Problem::new(slots.span(), "`slots` is a number from 1 or \"cpus\"".to_owned())),
    }
}

fn millis(stagger: &Spanned<String>) -> Result<u64, Problem> {
    let text = stagger.get_ref();
    let duration: Option<SignedDuration> = text.parse().ok();
    duration.and_then(|duration| u64::try_from(duration.as_millis()).ok()).ok_or_else(|| {
        Problem::new(stagger.span(), format!("{text:?} is no duration; write it like \"500ms\" or \"2s\""))
    })
}

fn variables(table: BTreeMap<Spanned<String>, String>) -> Result<Vec<(String, String)>, Problem> {
    let checked = |(name, value): (Spanned<String>, String)| {
        let at = name.span();
        let name = name.into_inner();
        let shape = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.bytes().all(shape) {
            return Err(Problem::new(at, format!("{name:?} is no name of a variable")));
        }
        if ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD"].iter().any(|end| name.to_ascii_uppercase().ends_with(end)) {
            let what = format!("{name} looks like a secret; set it in your environment, workers inherit it");
            return Err(Problem::new(at, what));
        }
        if value.contains('\0') {
            return Err(Problem::new(at, format!("the value of {name} has a NUL character")));
        }
        Ok((name, value))
    };
    table.into_iter().map(checked).collect()
}

struct Problem {
    at: Range<usize>,
    what: String,
}

impl Problem {
    fn new(at: Range<usize>, what: String) -> Self {
        Self { at, what }
    }

    fn of_toml(error: &toml::de::Error) -> Self {
        Self::new(error.span().unwrap_or(0..0), error.message().replace('\n', "; "))
    }
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
                ("codex".into(), Kind::Codex, 6, 1000),
                ("command".into(), Kind::Command, 8, 0),
                ("session".into(), Kind::Session, 1000, 0)
            ]
        );
        assert_eq!(executor(&registry, "codex").program.as_deref(), Some("codex"));
        assert_eq!(registry.get(&"claude".parse().unwrap()), Err(UnknownExecutor::NotYet("claude".into())));
        let error = registry.get(&"cdx".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(error, "there is no executor \"cdx\"; there are codex, command, session");
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
            ("\n[executors.codex]\n", ":2: unknown field `executors`"),
            ("x = [\n", ":1: "),
            ("[executor.codex]\nslots = 0\n", ":2: `slots` is a number from 1 or \"cpus\""),
            ("[executor.codex]\nslots = -3\n", ":2: `slots` is a number"),
            ("[executor.codex]\nslots = \"many\"\n", ":2: `slots` is a number"),
            ("[executor.codex]\nargs=[]\nstagger = \"2\"\n", ":3: \"2\" is no duration"),
            ("[executor.codex]\nstagger = \"-2s\"\n", ":2: \"-2s\" is no duration"),
            ("[executor.codex]\nprogram = \"\"\n", ":2: `program` is empty"),
            ("[executor.codex]\nkind = \"command\"\n", ":2: the kind of codex cannot be changed"),
            ("[executor.new]\nprogram = \"x\"\n", ":1: new is a new executor: it needs kind = \"command\""),
            ("[executor.new]\nkind = \"codex\"\n", ":2: new is a new executor: its kind must be"),
            ("[executor.new]\nkind = \"docker\"\n", ":2: unknown variant `docker`"),
            ("[executor.claude]\nslots = 1\n", ":1: the executor claude is not yet supported"),
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
