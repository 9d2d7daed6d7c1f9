//! Codex: its program, its command line, what is known of its versions.
//!
//! The flags were tried with codex-cli 0.171.0.

pub(super) mod beats;
pub(super) mod events;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::launch::{LAST_MESSAGE, LaunchRequest};
use super::registry::Executor;
use super::version::Version;

/// The newest version that prun was tried with.
pub const TRIED: Version = Version(0, 171);

/// The log that tells of each event of the model's stream, and nothing else.
pub(super) const LOG: (&str, &str) = ("RUST_LOG", "off,codex_otel.log_only=info");

/// The program that is looked for: `$CODEX_BIN`, else the executor's own.
pub(super) fn program(executor: &Executor, var: impl Fn(&str) -> Option<OsString>) -> String {
    let named = var("CODEX_BIN").and_then(|name| name.into_string().ok()).filter(|name| !name.is_empty());
    named.or_else(|| executor.program.clone()).unwrap_or_else(|| "codex".to_owned())
}

/// The native program behind npm's Node wrapper, else `found` itself.
///
/// Under Node before 22.15 the wrapper stays as the parent, and a kill of it leaves Codex running.
#[must_use]
pub fn native_binary(found: &Path) -> PathBuf {
    behind_wrapper(found).unwrap_or_else(|| found.to_owned())
}

fn behind_wrapper(found: &Path) -> Option<PathBuf> {
    let wrapper = std::fs::canonicalize(found).ok()?;
    let package = wrapper.parent()?.parent()?;
    if !wrapper.ends_with("codex/bin/codex.js") {
        return None;
    }
    let (name, target) = platform()?;
    // npm and pnpm put the platform's package beside the wrapper's or into it; old ones had it inside.
    let packages = [package.with_file_name(name), package.join("node_modules/@openai").join(name), package.to_owned()];
    packages.iter().map(|dir| dir.join("vendor").join(target).join("bin/codex")).find(|native| native.is_file())
}

fn platform() -> Option<(&'static str, &'static str)> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Some(("codex-linux-x64", "x86_64-unknown-linux-musl")),
        ("linux", "aarch64") => Some(("codex-linux-arm64", "aarch64-unknown-linux-musl")),
        ("macos", "x86_64") => Some(("codex-darwin-x64", "x86_64-apple-darwin")),
        ("macos", "aarch64") => Some(("codex-darwin-arm64", "aarch64-apple-darwin")),
        _ => None,
    }
}

/// The `RUST_LOG` of a worker's tools: what they would have without prun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToolsLog {
    /// None.
    Unset,
    /// The user's.
    As(String),
}

/// The command line of one attempt. The prompt comes on stdin.
///
/// `tools_log`: the `RUST_LOG` that the worker's tools are to have, where Codex itself gets [`LOG`].
pub(super) fn argv(
    program: &Path,
    executor: &Executor,
    request: &LaunchRequest<'_>,
    tools_log: Option<&ToolsLog>,
) -> Vec<String> {
    let mut argv = vec![program.to_string_lossy().into_owned()];
    let mut add = |args: &[&str]| argv.extend(args.iter().map(|arg| (*arg).to_owned()));
    // Full access: in Codex's own sandbox `.git` is read-only and the network is off. The clone is
    // what isolates.
    add(&["exec"]);
    if !request.plain {
        add(&["--json"]);
    }
    add(&["--sandbox", "danger-full-access", "--skip-git-repo-check"]);
    // The user's own MCP servers and hooks stay out; the login stays.
    add(&["--ignore-user-config", "-c", "analytics.enabled=false", "--color", "never"]);
    // Else each start asks a server for plugins, and a network that is down is waited for without end.
    // A version without such a feature warns of a setting, but refuses to start for `--disable`.
    add(&["-c", "features.plugins=false", "-c", "features.unbounded_connection_retries=false"]);
    match tools_log {
        None => {}
        Some(ToolsLog::Unset) => add(&["-c", "shell_environment_policy.exclude=[\"RUST_LOG\"]"]),
        Some(ToolsLog::As(value)) => add(&["-c", &format!("shell_environment_policy.set.RUST_LOG={value:?}")]),
    }
    if let Some(effort) = request.effort {
        add(&["-c", &format!("model_reasoning_effort={effort:?}")]);
    }
    if let Some(model) = request.model {
        add(&[&format!("--model={model}")]);
    }
    add(&["-o", LAST_MESSAGE]);
    argv.extend(executor.args.iter().cloned());
    // Options of `exec` are not taken after `resume`.
    if let Some(thread) = request.resume {
        argv.extend(["resume".to_owned(), thread.to_owned()]);
    }
    argv.push("-".to_owned());
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_native_program_is_found_behind_the_wrapper() {
        let Some((name, target)) = platform() else { return };
        let binary = format!("vendor/{target}/bin/codex");
        for layout in
            [format!("@openai/{name}/{binary}"), format!("@openai/codex/node_modules/@openai/{name}/{binary}")]
        {
            let dir = tempfile::tempdir().unwrap();
            let root = std::fs::canonicalize(dir.path()).unwrap();
            for file in ["@openai/codex/bin/codex.js", &layout] {
                std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
                std::fs::write(root.join(file), "").unwrap();
            }
            std::fs::create_dir(root.join(".bin")).unwrap();
            let link = root.join(".bin/codex");
            std::os::unix::fs::symlink("../@openai/codex/bin/codex.js", &link).unwrap();
            assert_eq!(native_binary(&link), root.join(&layout));
            std::fs::remove_file(root.join(&layout)).unwrap();
            assert_eq!(native_binary(&link), link);
        }
        assert_eq!(native_binary(Path::new("/bin/sh")), Path::new("/bin/sh"));
    }
}
