//! Lines of output against what is expected of them.

/// Matches a line against a pattern. `*` is any text, `{hex8}` and `{hex16}` are that many hex digits,
/// `{number}` is one or more decimal digits; everything else is itself.
pub(super) fn matches(pattern: &str, line: &str) -> bool {
    let digits = |line: &str, count: usize| {
        let hex = line.bytes().take(count).filter(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count();
        hex == count
    };
    if let Some(rest) = pattern.strip_prefix('*') {
        return line.char_indices().map(|(at, _)| at).chain([line.len()]).any(|at| matches(rest, &line[at..]));
    }
    if let Some(rest) = pattern.strip_prefix("{hex8}") {
        return digits(line, 8) && matches(rest, &line[8..]);
    }
    if let Some(rest) = pattern.strip_prefix("{hex16}") {
        return digits(line, 16) && matches(rest, &line[16..]);
    }
    if let Some(rest) = pattern.strip_prefix("{number}") {
        let end = line.bytes().take_while(u8::is_ascii_digit).count();
        return end > 0 && matches(rest, &line[end..]);
    }
    match (pattern.chars().next(), line.chars().next()) {
        (None, None) => true,
        (Some(one), Some(other)) if one == other => matches(&pattern[one.len_utf8()..], &line[other.len_utf8()..]),
        _ => false,
    }
}

/// Matches lines; a pattern `...` stands for any number of them.
pub(super) fn lines_match(patterns: &[String], lines: &[&str]) -> bool {
    match (patterns.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((dots, rest)), _) if dots == "..." => (0..=lines.len()).any(|skip| lines_match(rest, &lines[skip..])),
        (Some((pattern, patterns)), Some((line, lines))) => matches(pattern, line) && lines_match(patterns, lines),
        _ => false,
    }
}

#[test]
fn patterns_match_whole_lines() {
    assert!(matches("STATE-DIR *-u1-{number}-{hex16}", "STATE-DIR /t/prun-task-u1-77-0123456789abcdef"));
    assert!(!matches("a{number}b", "ab") && !matches("{hex8}", "0123456g") && !matches("a", "ab"));
    let patterns = |text: &[&str]| text.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(lines_match(&patterns(&["a", "...", "z"]), &["a", "b", "c", "z"]));
    assert!(lines_match(&patterns(&["..."]), &[]));
    assert!(!lines_match(&patterns(&["a", "...", "z"]), &["a", "b"]));
}
