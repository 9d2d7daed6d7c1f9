//! The files of the skill.

/// A file of the skill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BundledFile {
    /// Relative to the skill's directory.
    pub(crate) path: &'static str,
    /// What it holds.
    pub(crate) text: &'static str,
    /// Whether it is a program.
    pub(crate) is_program: bool,
}

macro_rules! bundle {
    ($($path:literal),* $(,)?) => {
        &[$(BundledFile {
            path: $path,
            text: include_str!(concat!("../../../../skills/prun/", $path)),
            is_program: is_program($path),
        }),*]
    };
}

const fn is_program(path: &str) -> bool {
    let bytes = path.as_bytes();
    bytes.len() > 3
        && bytes[bytes.len() - 3] == b'.'
        && bytes[bytes.len() - 2] == b's'
        && bytes[bytes.len() - 1] == b'h'
}

/// All of them.
pub(crate) const BUNDLE: &[BundledFile] = bundle![
    "SKILL.md",
    "agents/openai.yaml",
    "references/monitor.md",
    "references/panels.md",
    "references/plan.md",
    "references/reconcile.md",
    "references/session.md",
    "references/shell.md",
    "references/web.md",
    "scripts/dispatch-task.sh",
    "scripts/gather.sh",
    "scripts/monitor.sh",
    "scripts/reap-orphans.sh",
    "scripts/report-state.sh",
];

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn files(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() { files(&entry.path(), found) } else { found.push(entry.path()) }
        }
    }

    #[test]
    fn every_file_of_the_skill_is_carried() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../skills/prun");
        let mut found = Vec::new();
        files(&dir, &mut found);
        let mut names: Vec<String> =
            found.iter().map(|file| file.strip_prefix(&dir).unwrap().to_str().unwrap().to_owned()).collect();
        names.sort();
        let carried: Vec<&str> = BUNDLE.iter().map(|file| file.path).collect();
        assert_eq!(names, carried);
    }

    /// What a client reads in every session is the head; what it reads when it uses the skill is the page.
    #[test]
    fn the_skill_is_short_and_its_references_are_there() {
        let page = BUNDLE[0].text;
        let head = page.split("---").nth(1).unwrap();
        assert!(head.contains("\nname: prun\n") && head.len() < 700, "{} bytes", head.len());
        assert!(page.len() < 5_000, "{} bytes", page.len());
        for file in BUNDLE.iter().filter(|file| file.path.starts_with("references/")) {
            assert!(page.contains(&format!("({})", file.path)), "SKILL.md does not lead to {}", file.path);
        }
    }
}
