//! What the user may type after a landing.

use std::fmt::Write as _;

use super::prepare::Landed;

/// The `git add` lines after a landing: files that are the units' alone, and apart from them files that also
/// hold work of the user's own. A line is left out where it would name nothing.
#[must_use]
pub fn add_lines(files: &[Landed]) -> (Option<String>, Option<String>) {
    let line = |yours: bool| {
        let mut line = "git add --".to_owned();
        let mut any = false;
        for file in files.iter().filter(|file| file.also_yours == yours) {
            any = true;
            // Writing to a string cannot fail.
            write!(line, " {}", quote(&file.path)).ok();
        }
        any.then_some(line)
    };
    (line(false), line(true))
}

/// Quotes a word for sh, where it needs quotes.
fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./+,=:@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
