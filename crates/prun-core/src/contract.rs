//! The return contract: reads the head of a worker's result and says what is missing in it, and
//! builds the FALLBACK text that stands in for a result that was never written.
//!
//! A result starts with `# <unit id> result`, then `Conclusion:`, `Files:`, `Open items:` and
//! `Verification:`, a blank line, and the body.

use crate::ids::UnitId;

/// The longest conclusion and open items that are kept, in characters.
const SHORT_FIELD: usize = 400;

/// The longest list of files that is kept, in characters.
const FILES_FIELD: usize = 2000;

/// Bytes of a tail that a FALLBACK result carries at most.
pub const SALVAGED_TAIL: u64 = 1024 * 1024;

/// What the title of a result that a dispatcher wrote in a worker's place carries.
const FALLBACK_MARK: &str = " result (FALLBACK";

const LABELS: [&str; 4] = ["Conclusion", "Files", "Open items", "Verification"];

/// What the head of a result says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedResult {
    /// Parts of the contract that are missing, by name; empty when it is met.
    pub gaps: Vec<String>,
    /// The first line carries the FALLBACK header: no worker wrote this.
    pub is_fallback: bool,
    /// The `Conclusion:` line, cut to 400 characters.
    pub conclusion: Option<String>,
    /// The `Files:` line, cut to 2000 characters.
    pub files: Option<String>,
    /// The `Open items:` line, cut to 400 characters.
    pub open_items: Option<String>,
    /// The `Verification:` line, cut to 400 characters.
    pub verification: Option<String>,
}

/// Reads the head of `unit`'s result. Bytes that are not UTF-8, a byte order mark, CRLF line ends, blank
/// lines and another order of the labelled lines, and values that go on in further lines are tolerated.
#[must_use]
pub fn parse(unit: &UnitId, result: &[u8]) -> ParsedResult {
    let text = String::from_utf8_lossy(result);
    let mut lines = lines(&text);
    let title = lines.next().unwrap_or("");
    let head = read_head(lines);
    let field = |label: &str, limit| {
        let found = head.fields.iter().find(|(name, _)| *name == label);
        found.map(|(_, value)| cut(value.trim(), limit)).filter(|value| !value.is_empty())
    };
    let mut parsed = ParsedResult {
        gaps: Vec::new(),
        is_fallback: is_fallback_title(title),
        conclusion: field("Conclusion", SHORT_FIELD),
        files: field("Files", FILES_FIELD),
        open_items: field("Open items", SHORT_FIELD),
        verification: field("Verification", SHORT_FIELD),
    };
    if title.trim() != format!("# {unit} result") {
        parsed.gaps.push("title".to_owned());
    }
    let missing = LABELS.iter().filter(|label| field(label, 1).is_none());
    parsed.gaps.extend(missing.map(|label| (*label).to_owned()));
    if head.runs_into_body {
        parsed.gaps.push("blank line".to_owned());
    }
    parsed
}

/// Whether the first line of a result says that a dispatcher wrote it in the worker's place. The word in
/// a body means nothing.
#[must_use]
pub fn is_fallback(result: &[u8]) -> bool {
    let first = result.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    is_fallback_title(String::from_utf8_lossy(first).trim_start_matches('\u{feff}'))
}

/// Whether there is nothing in it but white space.
#[must_use]
pub fn is_blank(result: &[u8]) -> bool {
    let text = result.strip_prefix("\u{feff}".as_bytes()).unwrap_or(result);
    text.iter().all(u8::is_ascii_whitespace)
}

/// Why a result had to be made up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FallbackWhy {
    /// The worker ended by itself.
    Missing,
    /// The dispatcher ended it, for this reason.
    Reaped(String),
    /// It was never started; the message says why.
    NotStarted(String),
}

/// The part of a tail that a FALLBACK result carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SalvagedTail<'a> {
    /// The last bytes of the tail, at most [`SALVAGED_TAIL`].
    pub bytes: &'a [u8],
    /// How many bytes before them are left out.
    pub left_out: u64,
    /// Where the whole tail stands.
    pub path: &'a str,
}

/// The text that stands in for a result that the worker did not write. It ends with a newline.
#[must_use]
pub fn fallback(unit: &UnitId, why: &FallbackWhy, tail: SalvagedTail<'_>) -> Vec<u8> {
    let conclusion = match why {
        FallbackWhy::Missing => "structured result missing; the worker ended without writing one".to_owned(),
        FallbackWhy::Reaped(reason) => {
            format!("worker was reaped by dispatch-task ({reason}) before it wrote a result")
        }
        FallbackWhy::NotStarted(message) => {
            format!("structured result missing; the worker could not be started: {}", message.replace('\n', " "))
        }
    };
    let mut text = format!(
        "# {unit} result (FALLBACK, worker wrote no result file)\n\
         Conclusion: INCOMPLETE; {conclusion}\n\
         Files: unknown\n\
         Open items: review the raw output below or re-dispatch this unit\n\
         Verification: none (salvaged by dispatch-task from the worker's output)\n\n"
    )
    .into_bytes();
    if tail.left_out > 0 {
        let pointer = format!("[{} bytes left out; the full tail is at {}]\n", tail.left_out, tail.path);
        text.extend_from_slice(pointer.as_bytes());
    }
    text.extend_from_slice(tail.bytes);
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text
}

struct Head<'a> {
    fields: Vec<(&'a str, String)>,
    runs_into_body: bool,
}

/// Reads labelled lines up to the body: the first line after a blank one that carries no label. Lines
/// without a label go on with the value before them; where no blank line ever ends the last value, they
/// were the body.
fn read_head<'a>(lines: impl Iterator<Item = &'a str>) -> Head<'a> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    let mut after_blank = true;
    let mut goes_on = false;
    for line in lines {
        if line.trim().is_empty() {
            after_blank = true;
            continue;
        }
        match labelled(line) {
            Some((label, _)) if fields.iter().any(|(name, _)| *name == label) => break,
            Some((label, value)) => {
                fields.push((label, value.trim().to_owned()));
                goes_on = false;
            }
            None if after_blank => break,
            None => {
                let Some((_, value)) = fields.last_mut() else { break };
                goes_on = !value.is_empty();
                value.push(' ');
                value.push_str(line.trim());
            }
        }
        after_blank = false;
    }
    Head { runs_into_body: fields.len() == LABELS.len() && goes_on && !after_blank, fields }
}

fn labelled(line: &str) -> Option<(&'static str, &str)> {
    LABELS.iter().find_map(|label| {
        let rest = line.trim_start().strip_prefix(label)?;
        rest.strip_prefix(':').map(|value| (*label, value))
    })
}

fn is_fallback_title(title: &str) -> bool {
    title.starts_with("# ") && title.contains(FALLBACK_MARK)
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.trim_start_matches('\u{feff}').trim_end().split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line))
}

fn cut(text: &str, limit: usize) -> String {
    text.chars().take(limit).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str =
        "# u-1 result\nConclusion: done\nFiles: a.rs\nOpen items: none\nVerification: cargo test\n\nbody\n";

    fn unit() -> UnitId {
        "u-1".parse().unwrap()
    }

    #[track_caller]
    fn check(text: &str, gaps: &[&str]) -> ParsedResult {
        let parsed = parse(&unit(), text.as_bytes());
        assert_eq!(parsed.gaps, gaps, "{text:?}");
        parsed
    }

    #[test]
    fn a_proper_result_has_no_gaps() {
        let parsed = check(GOOD, &[]);
        assert_eq!(parsed.conclusion.as_deref(), Some("done"));
        assert_eq!(parsed.files.as_deref(), Some("a.rs"));
        assert_eq!(parsed.open_items.as_deref(), Some("none"));
        check(&GOOD.replace('\n', "\r\n"), &[]);
        check(&format!("\u{feff}{GOOD}"), &[]);
        check(&GOOD.replace("# u-1 result\n", "# u-1 result\n\n"), &[]);
        check(GOOD.trim_end_matches("\n\nbody\n"), &[]);
    }

    #[test]
    fn each_missing_part_is_named() {
        check("", &["title", "Conclusion", "Files", "Open items", "Verification"]);
        check(&GOOD.replace("# u-1", "# u-2"), &["title"]);
        check(&GOOD.replace("Files: a.rs\n", ""), &["Files"]);
        check(&GOOD.replace("Files: a.rs", "Files:"), &["Files"]);
        check(&GOOD.replace("\n\nbody", "\nbody"), &["blank line"]);
        check("done\n\nbody", &["title", "Conclusion", "Files", "Open items", "Verification"]);
    }

    #[test]
    fn a_list_under_its_label_belongs_to_it() {
        let parsed = check(&GOOD.replace("Files: a.rs", "Files:\n- a.rs\n- b.rs"), &[]);
        assert_eq!(parsed.files.as_deref(), Some("- a.rs - b.rs"));
    }

    #[test]
    fn labels_in_the_body_do_not_count() {
        check(
            "# u-1 result\nConclusion: x\n\nbody\nFiles: a\nOpen items: b\nVerification: c\n",
            &["Files", "Open items", "Verification"],
        );
    }

    #[test]
    fn fallback_is_told_by_the_first_line_alone() {
        assert!(!is_fallback(format!("{GOOD}# u-1 result (FALLBACK, x)\n").as_bytes()));
        let tail = SalvagedTail { bytes: b"out", left_out: 0, path: "/t" };
        let text = fallback(&unit(), &FallbackWhy::Missing, tail);
        assert!(is_fallback(&text));
        let parsed = parse(&unit(), &text);
        assert!(parsed.is_fallback);
        assert_eq!(parsed.gaps, ["title"]);
        assert!(parsed.conclusion.unwrap().starts_with("INCOMPLETE; structured result missing"));
    }

    #[test]
    fn a_long_tail_is_pointed_at() {
        let tail = SalvagedTail { bytes: b"end\n", left_out: 7, path: "/t/tail" };
        let text = String::from_utf8(fallback(&unit(), &FallbackWhy::Reaped("idle-stall".into()), tail)).unwrap();
        assert_eq!(
            text,
            "# u-1 result (FALLBACK, worker wrote no result file)\n\
             Conclusion: INCOMPLETE; worker was reaped by dispatch-task (idle-stall) before it wrote a result\n\
             Files: unknown\nOpen items: review the raw output below or re-dispatch this unit\n\
             Verification: none (salvaged by dispatch-task from the worker's output)\n\n\
             [7 bytes left out; the full tail is at /t/tail]\nend\n"
        );
    }

    #[test]
    fn white_space_is_no_result() {
        assert!(is_blank(b"") && is_blank(b" \r\n\t") && is_blank("\u{feff}\n".as_bytes()));
        assert!(!is_blank(b"\n x"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let parsed = parse(&unit(), &bytes);
            prop_assert!(parsed.conclusion.is_none_or(|text| text.chars().count() <= SHORT_FIELD));
        }

        #[test]
        fn a_result_in_contract_form_has_no_gaps(
            values in proptest::collection::vec("[a-zA-Z0-9(][ -~]{0,30}", 4), body in "[ -~\n]{0,80}", crlf: bool,
        ) {
            let [conclusion, files, open, verification] = &values[..] else { unreachable!() };
            let text = format!(
                "# u-1 result\nConclusion: {conclusion}\nFiles: {files}\nOpen items: {open}\nVerification: {verification}\n\n{body}"
            );
            let text = if crlf { text.replace('\n', "\r\n") } else { text };
            let parsed = parse(&unit(), text.as_bytes());
            prop_assert_eq!(parsed.gaps, Vec::<String>::new());
            prop_assert_eq!(parsed.conclusion.as_deref(), Some(conclusion.trim()));
        }
    }
}
