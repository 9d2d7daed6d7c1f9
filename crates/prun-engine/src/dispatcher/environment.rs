//! The worker's environment, as a pure function of the dispatcher's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use prun_core::ids::RunId;
use sha2::{Digest, Sha256};

use crate::contain::TOKEN_VARIABLE;
use crate::depth::{DEFAULT_LIMIT, DEPTH_VARIABLE, Depth, LIMIT_VARIABLE};
use crate::spec::AttemptSpec;

/// Where git would look instead of in the working directory: what `git rev-parse --local-env-vars`
/// lists and what it leaves out. Everything that starts with `GIT_CONFIG` goes too.
const GIT_LOCATION: &[&str] = &[
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INDEX_VERSION",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_TEMPLATE_DIR",
    "GIT_WORK_TREE",
];

/// What tells an agent that it runs inside another agent's session.
const AGENT_SESSION: &[&str] = &[
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
    "CODEX_CI",
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "CODEX_THREAD_ID",
];

/// The first port that units share out among themselves, how many ranges there are, and how wide each is.
const PORTS: (u16, u16, u16) = (20_000, 1_200, 10);

/// What of the worker's environment only the dispatcher knows.
pub(super) struct Places<'a> {
    /// Git of a worker in a scratch directory does not look for a repository in or above this directory.
    pub(super) ceiling: &'a Path,
    /// The nonce that marks the worker and what it starts.
    pub(super) token: Option<&'a str>,
}

/// Builds the worker's environment from the dispatcher's own.
pub(super) fn worker_env(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    spec: &AttemptSpec,
    places: &Places<'_>,
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = Vec::new();
    let mut depth = Depth { level: 0, limit: DEFAULT_LIMIT };
    for (name, value) in inherited {
        let number = || value.to_str().and_then(|text| text.parse().ok());
        if name == DEPTH_VARIABLE {
            depth.level = number().unwrap_or(0);
        } else if name == LIMIT_VARIABLE {
            depth.limit = number().unwrap_or(DEFAULT_LIMIT);
        }
        if !is_stripped(&name) {
            env.push((name, value));
        }
    }
    let mut set = |name: &str, value: &OsStr| {
        env.retain(|(known, _)| known != name);
        env.push((name.into(), value.to_owned()));
    };
    set("GIT_CEILING_DIRECTORIES", places.ceiling.as_os_str());
    let clients = spec.worker.iter().flat_map(|worker| &worker.env);
    for (name, value) in clients.chain(&spec.env) {
        set(name, value.as_ref());
    }
    if let Some(run) = &spec.run {
        set("PRUN_RUN", run.as_str().as_ref());
    }
    set("PRUN_UNIT", spec.unit.as_str().as_ref());
    set("PRUN_ATTEMPT", spec.attempt.to_string().as_ref());
    set("PRUN_RESULT", spec.result_file.as_os_str());
    let depth = depth.of_worker(spec.depth);
    set(DEPTH_VARIABLE, depth.level.to_string().as_ref());
    set(LIMIT_VARIABLE, depth.limit.to_string().as_ref());
    set("PRUN_PORT_BASE", port_base(spec).to_string().as_ref());
    env.retain(|(name, _)| name != TOKEN_VARIABLE);
    env.extend(places.token.map(|token| (TOKEN_VARIABLE.into(), token.into())));
    env
}

/// The first of ten ports that a unit may use; the same in every attempt, and another one for each unit of a run.
fn port_base(spec: &AttemptSpec) -> u16 {
    let (first, ranges, width) = PORTS;
    let alone = if spec.run.is_none() { spec.unit.as_str() } else { "" };
    let hash = Sha256::digest(format!("{}/{alone}", spec.run.as_ref().map_or("", RunId::as_str)).as_bytes());
    let begin = u32::from(u16::from_be_bytes([hash[0], hash[1]]));
    let range = begin.wrapping_add(spec.place) % u32::from(ranges);
    first + u16::try_from(range).unwrap_or(0) * width
}

fn is_stripped(name: &OsStr) -> bool {
    let listed = |names: &[&str]| names.iter().any(|listed| name == *listed);
    name == "PRUN_RUN" || listed(GIT_LOCATION) || listed(AGENT_SESSION) || name.as_bytes().starts_with(b"GIT_CONFIG")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn spec() -> AttemptSpec {
        crate::dispatcher::task::tests::spec(&[])
    }

    fn env(inherited: &[(&str, &str)], spec: &AttemptSpec) -> HashMap<String, String> {
        let inherited = inherited.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let places = Places { ceiling: Path::new("/sd"), token: Some("t0") };
        let env = worker_env(inherited, spec, &places);
        let count = env.len();
        let env: HashMap<String, String> =
            env.into_iter().map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap())).collect();
        assert_eq!(env.len(), count, "a variable is set once");
        env
    }

    #[test]
    fn gits_location_and_agent_sessions_are_not_handed_down() {
        let env = env(
            &[
                ("GIT_DIR", "/r/.git"),
                ("GIT_CONFIG_COUNT", "1"),
                ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
                ("GIT_CEILING_DIRECTORIES", "/elsewhere"),
                ("GIT_AUTHOR_NAME", "me"),
                ("CLAUDECODE", "1"),
                ("CODEX_SANDBOX", "seatbelt"),
                ("CODEX_HOME", "/h"),
                ("PRUN_RUN", "outer"),
                ("PATH", "/bin"),
            ],
            &spec(),
        );
        for gone in ["GIT_DIR", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "CLAUDECODE", "CODEX_SANDBOX", "PRUN_RUN"] {
            assert!(!env.contains_key(gone), "{gone}");
        }
        assert_eq!((env["CODEX_HOME"].as_str(), env["PATH"].as_str()), ("/h", "/bin"));
        assert_eq!((env["GIT_AUTHOR_NAME"].as_str(), env["GIT_CEILING_DIRECTORIES"].as_str()), ("me", "/sd"));
    }

    #[test]
    fn a_worker_knows_its_unit_and_its_depth() {
        let mut spec = spec();
        spec.env = vec![("EXTRA".to_owned(), "x".to_owned()), ("PRUN_TOKEN".to_owned(), "forged".to_owned())];
        let env = env(&[(DEPTH_VARIABLE, "1"), ("PRUN_TOKEN", "outer")], &spec);
        assert_eq!((env["PRUN_UNIT"].as_str(), env["PRUN_ATTEMPT"].as_str()), ("u1", "1"));
        assert_eq!((env["PRUN_DEPTH"].as_str(), env["PRUN_TOKEN"].as_str()), ("2", "t0"));
        assert_eq!((env["PRUN_RESULT"].as_str(), env["EXTRA"].as_str()), ("/here/out.md", "x"));
        let port: u16 = env["PRUN_PORT_BASE"].parse().unwrap();
        assert!((20_000..32_000).contains(&port) && port.is_multiple_of(10), "{port}");
    }

    #[test]
    fn no_two_units_of_a_run_share_a_port() {
        let mut spec = spec();
        spec.run = Some("261130-155200-k3f9".parse().unwrap());
        let ports: std::collections::BTreeSet<u16> =
            (0..1200).map(|place| port_base(&AttemptSpec { place, ..spec.clone() })).collect();
        assert_eq!(ports.len(), 1200);
        spec.place = 7;
        let before = port_base(&spec);
        spec.attempt = prun_core::ids::Attempt(2);
        assert_eq!(port_base(&spec), before);
    }
}
