//! Output with names in brackets for what differs from one time to the next.

use std::path::Path;

use regex::Regex;

/// What is replaced, in this order.
const PATTERNS: &[(&str, &str)] = &[
    (r"(?-u:\b)[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}(?-u:\b)", "[date]"),
    (r"(?-u:\b)[0-9]{2}:[0-9]{2}:[0-9]{2}(?-u:\b)", "[time]"),
    (r" process [0-9]+", " process [pid]"),
    (r"(?-u:\b)after [0-9]+ ms", "after [n] ms"),
    // In a table it is set to the right, after as many blanks as are needed.
    (r" {2,}[0-9]+(ms|s|m)(?-u:\b)", "  [span]"),
    (r"(?-u:\b)[0-9]+(ms|s|m)(?-u:\b)", "[span]"),
    (r"(?-u:\b)next [0-9]+", "next [n]"),
    (r"--since [0-9]+", "--since [seq]"),
    (r"(?-u:\b)git [0-9]+\.[0-9]+ ·", "git [version] ·"),
    (r"(?-u:\b)disk +[0-9.]+ [kMG]?B(?-u:\b)", "disk [n]"),
    (r"(?-u:\b)[0-9]+ MB are free", "[n] MB are free"),
    (r"(?-u:\b)[0-9.]+ [KMG]iB free", "[n] free"),
];

/// Normal text; `runs` are the ids of runs in the order in which they got their numbers.
pub(super) fn normal(text: &str, root: &Path, runs: &[String]) -> String {
    let mut text = text.to_owned();
    for (at, run) in runs.iter().enumerate() {
        let number = if at == 0 { String::new() } else { (at + 1).to_string() };
        text = text.replace(run, &format!("[run-id{number}]"));
        let Some((_, short)) = run.rsplit_once('-') else { continue };
        let word = Regex::new(&format!(r"(?-u:\b){short}(?-u:\b)")).expect("letters and digits");
        text = word.replace_all(&text, format!("[run{number}]")).into_owned();
    }
    for place in ["home", "repo", "user"] {
        text = text.replace(&*root.join(place).to_string_lossy(), &format!("[{place}]"));
    }
    text = text.replace(&*root.to_string_lossy(), "[tmp]");
    for (pattern, name) in PATTERNS {
        text = Regex::new(pattern).expect("they compile").replace_all(&text, *name).into_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_one_time_to_the_next_has_a_name() {
        let runs = ["261130-155200-k3f9".to_owned(), "261130-155201-0abc".to_owned()];
        let text = "k3f9 1/1 done · 12s · next 14\na  ok      51ms  x\n15:02:01 supervisor is process 77, k3f9x\n\
                    /t/home/runs/261130-155201-0abc prun undo 0abc 2026-11-30 15:04 after 3 ms";
        let expected = "[run] 1/1 done · [span] · next [n]\na  ok  [span]  x\n[time] supervisor is process [pid], k3f9x\n\
                        [home]/runs/[run-id2] prun undo [run2] [date] after [n] ms";
        assert_eq!(normal(text, Path::new("/t"), &runs), expected);
    }
}
