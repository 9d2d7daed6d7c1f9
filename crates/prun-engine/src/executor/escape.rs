//! Text of a worker's, made safe to show: on a terminal, in a log, in one line.

/// `text` as one line without anything that acts on a terminal or hides what is there: control
/// characters (ESC among them), line and paragraph separators, characters that turn the direction of
/// the text or cannot be seen. They are shown as escapes, `\n`, `\t`, `\e` or `\u{202e}`.
///
/// A backslash stays as it is: the line is for eyes, not for reading back.
#[must_use]
pub fn escape_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '\u{1b}' => line.push_str("\\e"),
            c if acts_or_hides(c) => line.extend(c.escape_unicode()),
            c => line.push(c),
        }
    }
    line
}

/// Bytes of a worker's, line by line [escaped](escape_line), for a terminal. Line ends stay.
#[must_use]
pub fn escape_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String = text.lines().map(|line| escape_line(line) + "\n").collect();
    if !text.ends_with('\n') {
        shown.pop();
    }
    shown
}

/// The first line of `text` that is not blank, escaped, and cut to `limit` characters with a `…` as
/// the last one.
#[must_use]
pub fn first_line(text: &str, limit: usize) -> String {
    cut(text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or(""), limit)
}

/// `text` escaped as one line and cut to `limit` characters with a `…` as the last one.
#[must_use]
pub fn cut(text: &str, limit: usize) -> String {
    // Escapes make the text longer only, so the rest of a huge text need not be looked at.
    let end = text.char_indices().nth(limit + 1).map_or(text.len(), |(at, _)| at);
    let line = escape_line(&text[..end]);
    if line.chars().nth(limit).is_none() {
        return line;
    }
    line.chars().take(limit.saturating_sub(1)).chain(['…']).collect()
}

fn acts_or_hides(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Directional marks, embeddings, overrides and isolates (Unicode, UAX 9).
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line and paragraph separators, byte order mark, interlinear annotation, tag characters.
            | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_on_a_terminal_gets_through() {
        for (text, line) in [
            ("plain ä 漢 👩‍🔬 \\", "plain ä 漢 👩‍🔬 \\"),
            ("\u{1b}[2J\u{1b}]0;owned\u{7}", "\\e[2J\\e]0;owned\\u{7}"),
            ("a\r\nb\tc\0", "a\\r\\nb\\tc\\u{0}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("user\u{202e}gpj.exe\u{2066}", "user\\u{202e}gpj.exe\\u{2066}"),
            ("a\u{2028}b\u{e0041}", "a\\u{2028}b\\u{e0041}"),
        ] {
            assert_eq!(escape_line(text), line);
        }
    }

    #[test]
    fn a_long_line_is_cut_with_an_ellipsis() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(cut("abcde\u{1b}", 6), "abcde…");
        assert_eq!(first_line("\n  \n  hello \nworld", 20), "hello");
        assert_eq!(first_line("", 5), "");
    }
}
