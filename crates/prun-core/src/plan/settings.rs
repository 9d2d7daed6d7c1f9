//! What both `[defaults]` and a unit may say, and how the two become one.

use std::collections::BTreeMap;

use crate::budget::Budget;
use crate::event::Mode;
use crate::ids::ExecutorName;
use crate::plan::fields::{Fields, Given, Item, Site};
use crate::plan::model::{COMMAND_EXECUTOR, CommandLine, DEFAULT_EXECUTOR, Env, MAX_RETRIES, ResultFrom};
use crate::plan::problem::{Place, Problem, quoted};
use crate::plan::tree::{Entry, Node, Value};
use crate::plan::{budget, duration};

/// The keys that `[defaults]` and a unit share.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) mode: Given<Mode>,
    pub(super) executors: Given<Vec<ExecutorName>>,
    pub(super) command: Given<CommandLine>,
    pub(super) result: Given<ResultFrom>,
    pub(super) verify: Given<CommandLine>,
    pub(super) effort: Given<String>,
    pub(super) model: Given<String>,
    pub(super) env: Given<Env>,
    pub(super) retries: Given<u32>,
    pub(super) timeout: Given<Limit>,
    pub(super) idle_timeout: Given<Limit>,
    pub(super) first_output_timeout: Given<Limit>,
    pub(super) checkout: Given<bool>,
    pub(super) priority: Given<i32>,
    pub(super) budget: Given<Budget>,
}

/// Milliseconds, or `None` for `"off"`.
pub(super) type Limit = Option<u64>;

/// What `priority` may be.
const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;

/// Takes the shared keys of a table.
pub(super) fn read(fields: &mut Fields, problems: &mut Vec<Problem>) -> Settings {
    Settings {
        mode: fields.read("mode", problems, |item| item.word(&[("write", Mode::Write), ("read", Mode::Read)])),
        executors: fields.read("executor", problems, executors),
        command: fields.read("command", problems, command_line),
        result: fields
            .read("result", problems, |item| item.word(&[("file", ResultFrom::File), ("stdout", ResultFrom::Stdout)])),
        verify: fields.read("verify", problems, command_line),
        effort: fields.read("effort", problems, client_word),
        model: fields.read("model", problems, client_word),
        env: fields.read("env", problems, env),
        retries: fields.read("retries", problems, |item| item.integer(&(0..=MAX_RETRIES))),
        timeout: fields.read("timeout", problems, limit),
        idle_timeout: fields.read("idle_timeout", problems, limit),
        first_output_timeout: fields.read("first_output_timeout", problems, limit),
        checkout: fields.read("checkout", problems, |item| item.boolean()),
        budget: fields.read("budget", problems, budget::budget),
        priority: fields.read("priority", problems, |item| item.integer(&PRIORITIES)),
    }
}

/// Which executors a unit has, from the closest statement: its own `executor` or `command`, then the defaults'.
pub(super) fn executors_of(own: &Settings, defaults: &Settings) -> (Vec<ExecutorName>, Option<Place>) {
    for settings in [own, defaults] {
        if let Given::Value(names, place) = &settings.executors {
            return (names.clone(), Some(*place));
        }
        if !settings.executors.is_missing() {
            break;
        }
        if !settings.command.is_missing() {
            return (vec![name(COMMAND_EXECUTOR)], settings.command.place());
        }
    }
    (vec![name(DEFAULT_EXECUTOR)], None)
}

/// The unit's command, and what does not fit between `executor` and `command`.
pub(super) fn command_of(
    own: &Settings,
    defaults: &Settings,
    executors: &[ExecutorName],
    place: Option<Place>,
) -> Result<Option<CommandLine>, Problem> {
    let wanted = executors.iter().any(|executor| executor.as_str() == COMMAND_EXECUTOR);
    match (wanted, &own.command, &defaults.command) {
        (false, Given::Value(_, at), _) => {
            Err(Problem::new(*at, format!("`command` is given, but the executor is {}", list(executors)))
                .hint("leave `executor` out, or say executor = \"command\""))
        }
        (false, ..) | (true, Given::Bad, _) | (true, Given::Missing, Given::Bad) => Ok(None),
        (true, Given::Value(command, _), _) | (true, Given::Missing, Given::Value(command, _)) => {
            Ok(Some(command.clone()))
        }
        (true, Given::Missing, Given::Missing) => Err(Problem::new(place, "the executor `command` needs a `command`")
            .hint("for example: command = [\"python3\", \"fix.py\"]")),
    }
}

/// Where the result of the unit's command comes from, and what does not fit between `result` and `executor`.
pub(super) fn result_of(
    own: &Settings,
    defaults: &Settings,
    command: Option<&CommandLine>,
) -> Result<ResultFrom, Problem> {
    match (&own.result, command) {
        (Given::Value(_, at), None) => Err(Problem::new(*at, "`result` is for a unit with a `command` of its own")
            .hint("other executors have theirs in the configuration")),
        _ => Ok(closest(&own.result, &defaults.result).filter(|_| command.is_some()).unwrap_or_default()),
    }
}

/// The unit's variables over the defaults'.
pub(super) fn env_of(own: &Settings, defaults: &Settings) -> Env {
    let mut all = BTreeMap::new();
    for settings in [defaults, own] {
        if let Given::Value(env, _) = &settings.env {
            all.extend(env.0.clone());
        }
    }
    Env(all)
}

/// The value of the closest statement.
pub(super) fn closest<T: Clone>(own: &Given<T>, defaults: &Given<T>) -> Option<T> {
    match (own, defaults) {
        (Given::Value(value, _), _) | (Given::Missing, Given::Value(value, _)) => Some(value.clone()),
        _ => None,
    }
}

/// The longest argument or variable that Linux hands to a program, in bytes (`MAX_ARG_STRLEN` without its NUL).
const MAX_ARGUMENT: usize = 131_071;

fn argument(text: String) -> Result<String, &'static str> {
    if text.contains('\0') {
        Err("holds a NUL character")
    } else if text.len() > MAX_ARGUMENT {
        Err("is over 128 KiB, more than a program can be given in one piece")
    } else {
        Ok(text)
    }
}

/// Text for `sh -c`, or a program with its arguments.
pub(super) fn command_line(item: Item<'_>) -> Result<CommandLine, Problem> {
    match item.value {
        Value::String(_) => item.checked(argument).map(CommandLine::Shell),
        Value::Array(nodes) => argv(item.site, nodes).map(CommandLine::Argv),
        _ => Err(item.wants("a string (for sh -c) or an array (program and arguments)")),
    }
}

/// Arguments may be empty and may repeat, so they are not a list of names.
fn argv(site: Site, nodes: Vec<Node>) -> Result<Vec<String>, Problem> {
    let mut argv = Vec::new();
    for node in nodes {
        let site = Site { place: node.place, ..site };
        match node.value {
            Value::String(text) => argv.push(argument(text).map_err(|fault| site.problem(fault))?),
            other => return Err(site.problem(&format!("wants strings alone, not {}", other.kind()))),
        }
    }
    match argv.first() {
        Some(program) if !program.trim().is_empty() => Ok(argv),
        _ => Err(site.problem("names no program")),
    }
}

/// A name, or several in order.
pub(super) fn executors(item: Item<'_>) -> Result<Vec<ExecutorName>, Problem> {
    let site = item.site;
    let names = match item.value {
        Value::String(_) => vec![item.checked(|name| usable(&name).map(|()| name))?],
        Value::Array(_) => {
            let before = item.more.len();
            let more = &mut *item.more;
            let names = Item { site, value: item.value, more }.texts(usable)?;
            if names.is_empty() && more.len() == before {
                return Err(site.problem("names no executor").hint("leave it out for the default"));
            }
            names
        }
        _ => return Err(item.wants("a name or an array of names")),
    };
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

fn usable(executor: &str) -> Result<(), String> {
    executor.parse::<ExecutorName>().map(drop).map_err(|error| format!("names no executor: {error}"))
}

/// A word that is handed to a client as an argument: an effort, a model.
fn client_word(item: Item<'_>) -> Result<String, Problem> {
    item.checked(|word| {
        match word.chars().all(|c| c.is_ascii_graphic()) && !word.starts_with('-') && word.len() <= 128 {
            true => Ok(word),
            false => Err("is one word of at most 128 ASCII characters without a leading dash"),
        }
    })
}

fn env(item: Item<'_>) -> Result<Env, Problem> {
    let Value::Table(entries) = item.value else { return Err(item.wants("a table of strings")) };
    let mut env = BTreeMap::new();
    for entry in entries {
        match variable(entry) {
            Ok((name, value)) => drop(env.insert(name, value)),
            Err(problem) => item.more.push(problem),
        }
    }
    Ok(Env(env))
}

fn variable(entry: Entry) -> Result<(String, String), Problem> {
    let name = entry.key;
    let letters = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let shape = name.bytes().enumerate().all(|(at, byte)| letters(byte) || (at > 0 && byte.is_ascii_digit()));
    if !shape || name.is_empty() {
        return Err(Problem::new(entry.place, format!("`env`: {} is no name of a variable", quoted(&name)))
            .hint("letters, digits and _, no digit first"));
    }
    if name.starts_with("PRUN_") || name.starts_with("GIT_") {
        return Err(Problem::new(entry.place, format!("`env`: {} is prun's to set", quoted(&name)))
            .hint("PRUN_* tell a worker where it is, GIT_* would lead it out of its clone"));
    }
    let problem = |fault: &str| Problem::new(entry.node.place, format!("`env`: {} {fault}", quoted(&name)));
    let value = match entry.node.value {
        Value::String(value) => value,
        other => {
            let fault = format!("wants a string, not {}", other.kind());
            return Err(problem(&fault).hint("put the value in quotes"));
        }
    };
    // The limit is on NAME=VALUE.
    argument(format!("{name}={value}")).map_err(problem)?;
    Ok((name, value))
}

/// A duration that cannot be `off`.
pub(super) fn span(item: Item<'_>) -> Result<u64, Problem> {
    item.checked(|text| duration::parse(&text).map_err(|error| format!("is {}: {error}", quoted(&text))))
}

fn limit(item: Item<'_>) -> Result<Limit, Problem> {
    const HINT: &str = "for example \"90s\", \"45m\", \"1h30m\", or \"off\"";
    if let Value::Integer(number) = item.value {
        return Err(item.site.problem("is a number without a unit").hint(format!("\"{number}s\" or \"{number}m\"?")));
    }
    let read = |text: String| match text.as_str() {
        "off" => Ok(None),
        _ => duration::parse(&text).map(Some).map_err(|error| format!("is {}: {error}", quoted(&text))),
    };
    item.checked(read).map_err(|problem| problem.hint(HINT))
}

fn list(executors: &[ExecutorName]) -> String {
    executors.iter().map(|executor| quoted(executor.as_str())).collect::<Vec<_>>().join(", ")
}

fn name(executor: &str) -> ExecutorName {
    executor.parse().expect("the names of built-in executors are valid")
}
