//! The keys of one table: each is taken once by the reader that knows it, what is left over is unknown.

use std::ops::RangeInclusive;

use crate::plan::problem::{Place, Problem, quoted};
use crate::plan::tree::{Entry, Value};

/// Keys that other tools have for an order of tasks.
const DEPENDENCIES: [&str; 6] = ["needs", "depends_on", "depends-on", "dependsOn", "requires", "after"];

/// The most elements of a list such as `owns`.
const MAX_LIST: usize = 1_000;

/// A table whose keys are being read.
#[derive(Debug)]
pub(super) struct Fields {
    entries: Vec<Entry>,
    asked: Vec<&'static str>,
}

impl Fields {
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        Self { entries, asked: Vec::new() }
    }

    /// Adds an entry as if it stood there.
    pub(super) fn put(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// The entry of a key that a plan may have.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Entry> {
        self.asked.push(key);
        self.take_stray(key)
    }

    /// The entry's value, read by `read`, and its place. Problems are noted.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        problems: &mut Vec<Problem>,
        read: impl FnOnce(Item<'_>) -> Result<T, Problem>,
    ) -> Given<T> {
        let Some(entry) = self.take(key) else { return Given::Missing };
        let place = entry.node.place;
        let site = Site { name: key, place };
        match read(Item { site, value: entry.node.value, more: &mut *problems }) {
            Ok(value) => Given::Value(value, place),
            Err(problem) => {
                problems.push(problem);
                Given::Bad
            }
        }
    }

    /// The entry of a key that belongs elsewhere.
    pub(super) fn take_stray(&mut self, key: &str) -> Option<Entry> {
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.swap_remove(at))
    }

    /// Notes every key that nobody took.
    pub(super) fn finish(&self, problems: &mut Vec<Problem>) {
        problems.extend(self.entries.iter().map(|entry| unknown(entry, &self.asked)));
    }

    /// The keys that were asked for: all that the table may have.
    #[cfg(test)]
    pub(super) fn asked(&self) -> &[&'static str] {
        &self.asked
    }
}

/// What became of a key.
#[derive(Debug)]
pub(super) enum Given<T> {
    /// It is not there.
    Missing,
    /// It is there, and a problem was noted.
    Bad,
    /// Its value and where that stands.
    Value(T, Place),
}

impl<T> Given<T> {
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }

    pub(super) fn place(&self) -> Option<Place> {
        match self {
            Self::Value(_, place) => Some(*place),
            Self::Missing | Self::Bad => None,
        }
    }

    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Value(value, _) => Some(value),
            Self::Missing | Self::Bad => None,
        }
    }
}

/// Where a value stands and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) name: &'static str,
    pub(super) place: Place,
}

impl Site {
    /// A problem at this value: `NAME MESSAGE`.
    pub(super) fn problem(self, message: &str) -> Problem {
        Problem::new(self.place, format!("`{}` {message}", self.name))
    }
}

/// A value that is being read.
pub(super) struct Item<'a> {
    pub(super) site: Site,
    pub(super) value: Value,
    /// Where problems of single elements go.
    pub(super) more: &'a mut Vec<Problem>,
}

impl Item<'_> {
    pub(super) fn wants(&self, what: &str) -> Problem {
        self.site.problem(&format!("wants {what}, not {}", self.value.kind()))
    }

    /// A string, whatever is in it.
    pub(super) fn string(self) -> Result<String, Problem> {
        match self.value {
            Value::String(text) => Ok(text),
            _ => Err(self.wants("a string")),
        }
    }

    /// A text that passes `check`, which says what is wrong as the end of a sentence.
    pub(super) fn checked<T, E: ToString>(self, check: impl FnOnce(String) -> Result<T, E>) -> Result<T, Problem> {
        let site = self.site;
        check(text(self)?).map_err(|fault| site.problem(&fault.to_string()))
    }

    /// An integer within bounds.
    pub(super) fn integer<T>(self, bounds: &RangeInclusive<T>) -> Result<T, Problem>
    where
        T: TryFrom<i64> + PartialOrd + std::fmt::Display,
    {
        let Value::Integer(number) = self.value else { return Err(self.wants("an integer")) };
        T::try_from(number)
            .ok()
            .filter(|number| bounds.contains(number))
            .ok_or_else(|| self.site.problem(&format!("is {} to {}, not {number}", bounds.start(), bounds.end())))
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self) -> Result<bool, Problem> {
        match self.value {
            Value::Boolean(boolean) => Ok(boolean),
            _ => Err(self.wants("true or false")),
        }
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(self, words: &[(&str, T)]) -> Result<T, Problem> {
        let list = words.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
        let Value::String(text) = &self.value else { return Err(self.wants(&list)) };
        let found = words.iter().find(|(word, _)| word == text);
        found.map(|(_, value)| *value).ok_or_else(|| self.site.problem(&format!("is {list}, not {}", quoted(text))))
    }

    /// An array of different texts that pass `check`, which says what is wrong as the end of a sentence. Each bad
    /// element is noted by itself.
    pub(super) fn texts(self, check: impl Fn(&str) -> Result<(), String>) -> Result<Vec<String>, Problem> {
        let Value::Array(nodes) = self.value else { return Err(self.wants("an array of strings")) };
        if nodes.len() > MAX_LIST {
            return Err(self.site.problem(&format!("has {} elements; at most {MAX_LIST} are allowed", nodes.len())));
        }
        let mut texts: Vec<String> = Vec::new();
        for node in nodes {
            let site = Site { place: node.place, ..self.site };
            let item = Item { site, value: node.value, more: &mut *self.more };
            let different = |text: &str| match texts.iter().any(|other| other == text) {
                true => Err(format!("has {} twice", quoted(text))),
                false => Ok(()),
            };
            match item.checked(|text| check(&text).and_then(|()| different(&text)).map(|()| text)) {
                Ok(text) => texts.push(text),
                Err(problem) => self.more.push(problem),
            }
        }
        Ok(texts)
    }
}

/// A string with something in it, without NUL: what every key but a prompt wants.
pub(super) fn text(item: Item<'_>) -> Result<String, Problem> {
    let site = item.site;
    let text = item.string()?;
    if text.trim().is_empty() {
        Err(site.problem("is empty"))
    } else if text.contains('\0') {
        Err(site.problem("holds a NUL character"))
    } else {
        Ok(text)
    }
}

/// A table's entries.
pub(super) fn table(item: Item<'_>) -> Result<Vec<Entry>, Problem> {
    match item.value {
        Value::Table(entries) => Ok(entries),
        _ => Err(item.wants("a table")),
    }
}

fn unknown(entry: &Entry, known: &[&'static str]) -> Problem {
    let key = entry.key.as_str();
    let name = quoted(key);
    if DEPENDENCIES.contains(&key) {
        return Problem::new(entry.place, format!("{name}: units are independent; use a second run"))
            .hint("put what must come later into a plan of its own, and run it when this one is integrated");
    }
    let problem = Problem::new(entry.place, format!("unknown key {name}"));
    match nearest(key, known) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem,
    }
}

/// The known word that was probably meant.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // Long keys would cost time and resemble nothing.
    let short = word.len() <= 64;
    let distance = |known: &&'a str| (strsim::damerau_levenshtein(&word.replace('-', "_"), known), *known);
    let (distance, near) = known.iter().filter(|_| short).map(distance).min()?;
    (distance <= near.len().div_ceil(3)).then_some(near)
}
