//! `config.toml` read: what each key of an executor means, and who may say it.

use std::collections::BTreeMap;
use std::ops::Range;

use jiff::SignedDuration;
use prun_core::ids::ExecutorName;
use prun_core::plan::ResultFrom;
use serde::Deserialize;
use toml::Spanned;

use super::{Executor, Kind};
use crate::executor::errors::pattern;
use crate::executor::stream::StreamKind;
use crate::executor::version::Version;
use crate::hooks::Wishes;
use crate::spec::ErrorRule;

/// Whose configuration it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Builtin,
    User,
    Repository,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) executors: Option<Spanned<Vec<String>>>,
    /// What the user wants done beside every run.
    pub(super) run: Option<Spanned<Wishes>>,
    #[serde(default)]
    pub(super) executor: BTreeMap<Spanned<String>, Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    kind: Option<Spanned<Kind>>,
    program: Option<Spanned<String>>,
    args: Option<Spanned<Vec<String>>>,
    model_args: Option<Spanned<Vec<String>>>,
    effort_args: Option<Spanned<Vec<String>>>,
    resume_args: Option<Spanned<Vec<String>>>,
    stream: Option<Spanned<StreamKind>>,
    result: Option<Spanned<ResultFrom>>,
    errors: Option<Spanned<Vec<ErrorRule>>>,
    tried: Option<Spanned<String>>,
    first_output: Option<Spanned<String>>,
    linger: Option<Spanned<String>>,
    slots: Option<Spanned<Slots>>,
    account: Option<Spanned<String>>,
    stagger: Option<Spanned<String>>,
    env: Option<BTreeMap<Spanned<String>, String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`slots` is a number from 1 or \"cpus\"")]
enum Slots {
    Number(u32),
    Word(String),
}

/// What a repository may say: how much of it runs at once, and how long it is waited for.
const OF_REPOSITORIES: [&str; 4] = ["slots", "stagger", "first_output", "linger"];

/// What makes sense for commands alone.
const OF_COMMANDS: [&str; 7] = ["model_args", "effort_args", "resume_args", "stream", "result", "errors", "tried"];

impl Table {
    /// Each key that is written, with its place.
    fn keys(&self) -> Vec<(Range<usize>, &'static str)> {
        fn at<T>(value: Option<&Spanned<T>>) -> Option<Range<usize>> {
            value.map(Spanned::span)
        }
        // A new key does not compile before it stands here; then a repository may not say it.
        let Self {
            kind,
            program,
            args,
            model_args,
            effort_args,
            resume_args,
            stream,
            result,
            errors,
            tried,
            first_output,
            linger,
            slots,
            account,
            stagger,
            env,
        } = self;
        let places = [
            (at(kind.as_ref()), "kind"),
            (at(program.as_ref()), "program"),
            (at(args.as_ref()), "args"),
            (at(model_args.as_ref()), "model_args"),
            (at(effort_args.as_ref()), "effort_args"),
            (at(resume_args.as_ref()), "resume_args"),
            (at(stream.as_ref()), "stream"),
            (at(result.as_ref()), "result"),
            (at(errors.as_ref()), "errors"),
            (at(tried.as_ref()), "tried"),
            (at(first_output.as_ref()), "first_output"),
            (at(linger.as_ref()), "linger"),
            (at(slots.as_ref()), "slots"),
            (at(account.as_ref()), "account"),
            (at(stagger.as_ref()), "stagger"),
            (env.as_ref().and_then(|env| env.keys().next()).map(Spanned::span), "env"),
        ];
        places.into_iter().filter_map(|(at, key)| Some((at?, key))).collect()
    }

    pub(super) fn apply(
        self,
        name: ExecutorName,
        old: Option<Executor>,
        cpus: u32,
        source: Source,
        at: &Range<usize>,
    ) -> Result<Executor, Problem> {
        if source == Source::Repository {
            return self.tune(old.ok_or_else(|| unknown(&name, at))?, cpus);
        }
        let kind = self.kind(&name, old.as_ref(), source, at)?;
        let old = old.unwrap_or_else(|| blank(name, kind, cpus));
        self.check_kind(&old)?;
        let stream = self.stream(&old)?;
        Ok(Executor {
            program: self.program.map(|program| filled("program", program)).transpose()?.or(old.program),
            args: self.args.map_or(old.args, Spanned::into_inner),
            model_args: self.model_args.map_or(Ok(old.model_args), |args| template(args, "{model}"))?,
            effort_args: self.effort_args.map_or(Ok(old.effort_args), |args| template(args, "{effort}"))?,
            resume_args: self.resume_args.map_or(Ok(old.resume_args), |args| template(args, "{session}"))?,
            stream,
            errors: self.errors.map_or(Ok(old.errors), rules)?,
            tried: self.tried.and_then(|tried| Version::parse(tried.get_ref())).or(old.tried),
            first_output_millis: self.first_output.map(|time| millis(&time)).transpose()?.or(old.first_output_millis),
            linger_millis: self.linger.map(|time| millis(&time)).transpose()?.or(old.linger_millis),
            slots: self.slots.map_or(Ok(old.slots), |slots| number(&slots, cpus))?,
            account: self.account.map_or(Ok(old.account), account)?,
            stagger_millis: self.stagger.map_or(Ok(old.stagger_millis), |stagger| millis(&stagger))?,
            env: self.env.map_or(Ok(old.env), variables)?,
            ..old
        })
    }

    /// What a repository may say: nothing that would run what it brings along, and no more than the user allows.
    fn tune(self, old: Executor, cpus: u32) -> Result<Executor, Problem> {
        if let Some((at, key)) = self.keys().into_iter().find(|(_, key)| !OF_REPOSITORIES.contains(key)) {
            let what = format!("a repository may not say `{key}`: only slots, stagger, first_output and linger");
            return Err(Problem::new(at, what));
        }
        let slots = self.slots.map(|slots| number(&slots, cpus)).transpose()?;
        let stagger = self.stagger.map(|time| millis(&time)).transpose()?;
        Ok(Executor {
            slots: slots.map_or(old.slots, |slots| slots.min(old.slots)),
            stagger_millis: stagger.map_or(old.stagger_millis, |stagger| stagger.max(old.stagger_millis)),
            first_output_millis: self.first_output.map(|time| millis(&time)).transpose()?.or(old.first_output_millis),
            linger_millis: self.linger.map(|time| millis(&time)).transpose()?.or(old.linger_millis),
            ..old
        })
    }

    /// Keys that make sense for commands alone.
    fn check_kind(&self, executor: &Executor) -> Result<(), Problem> {
        let name = &executor.name;
        if executor.kind == Kind::Session
            && let Some(program) = &self.program
        {
            return Err(Problem::new(program.span(), format!("the executor {name} starts no program")));
        }
        match self.keys().into_iter().find(|(_, key)| OF_COMMANDS.contains(key)) {
            Some((at, key)) if executor.kind != Kind::Command => {
                Err(Problem::new(at, format!("`{key}` is for commands; prun knows {name} itself")))
            }
            _ => Ok(()),
        }
    }

    fn stream(&self, old: &Executor) -> Result<StreamKind, Problem> {
        let stream = self.stream.as_ref().map_or(old.stream, |stream| *stream.get_ref());
        match self.result.as_ref().map(|result| (*result.get_ref(), result.span())) {
            None | Some((ResultFrom::File, _)) => Ok(stream),
            Some((ResultFrom::Stdout, _)) if !stream.has_final_event() => Ok(StreamKind::Text),
            Some((ResultFrom::Stdout, at)) => {
                Err(Problem::new(at, "its `stream` of events tells the result; `result` is for plain text".to_owned()))
            }
        }
    }

    fn kind(
        &self,
        name: &ExecutorName,
        old: Option<&Executor>,
        source: Source,
        at: &Range<usize>,
    ) -> Result<Kind, Problem> {
        match (old, &self.kind) {
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

/// A new executor, before its own keys.
fn blank(name: ExecutorName, kind: Kind, cpus: u32) -> Executor {
    let stream = match kind {
        Kind::Codex => StreamKind::Codex,
        Kind::Claude => StreamKind::Claude,
        Kind::Command | Kind::Session => StreamKind::Plain,
    };
    Executor {
        account: name.to_string(),
        name,
        kind,
        program: None,
        args: Vec::new(),
        model_args: Vec::new(),
        effort_args: Vec::new(),
        resume_args: Vec::new(),
        stream,
        errors: Vec::new(),
        tried: None,
        first_output_millis: None,
        linger_millis: None,
        slots: cpus.max(1),
        stagger_millis: 0,
        env: Vec::new(),
    }
}

fn unknown(name: &ExecutorName, at: &Range<usize>) -> Problem {
    Problem::new(at.clone(), format!("there is no executor {name}; a repository adds none"))
}

/// Arguments of which one has the mark for a value.
fn template(args: Spanned<Vec<String>>, mark: &str) -> Result<Vec<String>, Problem> {
    let at = args.span();
    let args = args.into_inner();
    if args.is_empty() || args.iter().any(|arg| arg.contains(mark)) {
        return Ok(args);
    }
    Err(Problem::new(at, format!("none of these arguments has {mark} in it")))
}

/// Rules whose patterns are regular expressions.
fn rules(rules: Spanned<Vec<ErrorRule>>) -> Result<Vec<ErrorRule>, Problem> {
    let at = rules.span();
    let rules = rules.into_inner();
    for rule in &rules {
        if let Err(error) = pattern(&rule.pattern) {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            return Err(Problem::new(at, format!("{:?} is no regular expression: {why}", rule.pattern)));
        }
    }
    Ok(rules)
}

fn filled(key: &str, value: Spanned<String>) -> Result<String, Problem> {
    let at = value.span();
    Some(value.into_inner())
        .filter(|value| !value.is_empty() && !value.contains('\0'))
        .ok_or_else(|| Problem::new(at, format!("`{key}` is empty or has a NUL character")))
}

/// It becomes the name of a file.
fn account(name: Spanned<String>) -> Result<String, Problem> {
    let at = name.span();
    let what = format!("`account` is a name like that of an executor, not {:?}", name.get_ref());
    let parsed: Result<ExecutorName, _> = name.into_inner().parse();
    parsed.map(|name| name.to_string()).map_err(|_| Problem::new(at, what))
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

pub(super) struct Problem {
    pub(super) at: Range<usize>,
    pub(super) what: String,
}

impl Problem {
    pub(super) fn new(at: Range<usize>, what: String) -> Self {
        Self { at, what }
    }

    pub(super) fn of_toml(error: &toml::de::Error) -> Self {
        Self::new(error.span().unwrap_or(0..0), error.message().replace('\n', "; "))
    }
}
