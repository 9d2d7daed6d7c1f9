//! The agents that units go to: are they there, known, and logged in?

use prun_core::finding::Finding;

use crate::executor::preflight::{Login, Preflight};
use crate::executor::{Executor, Kind};

/// What a client was found to be, one finding each. Of clients that prun merely knows how to read, only those that
/// are installed are worth a word.
#[must_use]
pub fn executors<'a>(found: impl IntoIterator<Item = (&'a Executor, Preflight)>) -> Vec<Finding> {
    found.into_iter().filter_map(|(executor, found)| finding(executor, found)).collect()
}

fn finding(executor: &Executor, found: Preflight) -> Option<Finding> {
    let name = executor.name.as_str();
    let problem = match found.program {
        Ok(None) => return None,
        Ok(Some(program)) => Ok(program),
        Err(_) if executor.tried.is_some() => return None,
        Err(problem) => Err(problem),
    };
    let program = match problem {
        Ok(program) => program,
        Err(problem) => {
            let hint = match executor.kind {
                Kind::Codex => "npm install -g @openai/codex, or name its program in prun's config.toml",
                Kind::Claude => "npm install -g @anthropic-ai/claude-code, or name its program in prun's config.toml",
                Kind::Command | Kind::Session => "install it, or name its program in prun's config.toml",
            };
            return Some(Finding::warning(name, format!("{problem}; no unit can go to it"), hint));
        }
    };
    let what = match &found.version {
        Some(version) => format!("{version} at {}", program.display()),
        None => program.display().to_string(),
    };
    Some(match (found.login, found.notes.into_iter().next()) {
        (Login::NotLoggedIn { hint }, _) => Finding::warning(name, format!("{what}: nobody is logged in"), hint),
        (_, Some(note)) => Finding::warning(name, note, "try one unit first; a newer prun may know it"),
        (Login::LoggedIn, None) => Finding::ok(name, format!("{what}, logged in, {} slots", executor.slots)),
        (Login::Unknown, None) => Finding::ok(name, format!("{what}, {} slots", executor.slots)),
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::executor::Registry;
    use crate::executor::program::ProgramProblem;

    fn preflight(version: &str, login: Login, notes: &[&str]) -> Preflight {
        Preflight {
            program: Ok(Some("/bin/client".into())),
            version: Some(version.to_owned()),
            login,
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        }
    }

    fn told(name: &str, found: Preflight) -> String {
        let registry = Registry::built_in(2);
        let executor = registry.get(&name.parse().unwrap()).unwrap();
        let found = executors([(executor, found)]);
        found
            .iter()
            .map(|it| format!("{:?} {} | {}", it.level, it.message, it.hint.as_deref().unwrap_or("-")))
            .collect()
    }

    #[test]
    fn each_client_is_told_with_the_next_step() {
        let missing = || Preflight {
            program: Err(ProgramProblem::NotInPath { program: "x".into(), path: OsString::from("/bin") }),
            version: None,
            login: Login::Unknown,
            notes: Vec::new(),
        };
        let out = Login::NotLoggedIn { hint: "run `codex login`".into() };
        assert_eq!(
            told("codex", preflight("1.2", Login::LoggedIn, &[])),
            "Ok 1.2 at /bin/client, logged in, 6 slots | -"
        );
        assert_eq!(
            told("codex", preflight("1.2", out, &[])),
            "Warning 1.2 at /bin/client: nobody is logged in | run `codex login`"
        );
        assert!(told("claude", missing()).ends_with(
            "no unit can go to it | npm install -g @anthropic-ai/claude-code, or name its program in prun's config.toml"
        ));
        assert!(
            told("codex", preflight("9.0", Login::LoggedIn, &["codex 9.0 is newer"]))
                .starts_with("Warning codex 9.0 is newer |")
        );
        assert_eq!(told("gemini", missing()), "");
        assert_eq!(told("session", Preflight { program: Ok(None), ..missing() }), "");
    }
}
