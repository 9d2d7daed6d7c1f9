//! A scope of the user's systemd, delegated to one run: a place in the hierarchy where the memory controller works and
//! control groups may be made, which a plain session is not.
//!
//! Everything here may be missing, and nothing of it is waited for longer than [`BOUND`]: a run goes on where it is.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::poll;
use rustix::time::Timespec;

use super::cgroup::own_place;

/// The group in a scope that holds the supervisor and its dispatchers. The memory controller can be given only to
/// groups whose parent holds no process itself, so that these must not stand beside the attempts' own groups.
pub(super) const LEAF: &str = "prun-supervisor";

/// How long the user's systemd may take in all. It takes some milliseconds.
const BOUND: Duration = Duration::from_secs(2);

/// Between two looks at what is awaited.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Where systemd keeps, by name, the users whose manager outlives their sessions.
const LINGER: &str = "/var/lib/systemd/linger";

/// What is known of the user's systemd before it is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// The own group in the version 2 hierarchy.
    group: PathBuf,
    /// A manager of this user runs and can be spoken to.
    has_manager: bool,
    /// That manager goes on when the user logs out.
    lingers: bool,
}

/// Moves this process into a scope of its own, named after `run`, where the user's systemd gives one; the scope's
/// group. To be called before any thread is started, and before any child that should be in it.
pub fn enter_scope(run: &str) -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name);
    if !wants_scope(&look(&own_place()?, var)) {
        return None;
    }
    let pid = std::process::id();
    let name = format!("prun-{run}-{pid}.scope");
    let until = Instant::now() + BOUND;
    ask("busctl", &name, pid, until).ok().filter(|asked| *asked)?;
    let scope = entered(&name, until)?;
    // Without a leaf of our own the scope still holds the attempts' groups, if only without the controller.
    let _ = settle_in(&scope, pid);
    Some(scope)
}

/// Whether a scope would be of use, and do no harm: a manager that ends with the user's last session would take a
/// run with it that goes on now.
fn wants_scope(seen: &Seen) -> bool {
    let is_under = seen.group.components().any(|part| {
        let part = part.as_os_str().to_string_lossy();
        part.starts_with("user@") && part.ends_with(".service")
    });
    seen.has_manager && (is_under || seen.lingers)
}

fn look(group: &Path, var: impl Fn(&str) -> Option<OsString>) -> Seen {
    let runtime = var("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let has = |name: &str| runtime.as_ref().is_some_and(|dir| dir.join(name).symlink_metadata().is_ok());
    let user = var("USER").or_else(|| var("LOGNAME")).filter(|user| !user.is_empty());
    Seen {
        group: group.to_owned(),
        has_manager: has("systemd/private") && has("bus"),
        lingers: user.is_some_and(|user| Path::new(LINGER).join(user).symlink_metadata().is_ok()),
    }
}

/// Asks for the scope, by systemd's own tool; whether it was granted.
fn ask(tool: impl AsRef<OsStr>, name: &str, pid: u32, until: Instant) -> io::Result<bool> {
    let mut command = Command::new(tool);
    command.args(request(name, pid)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        pause();
    }
    end(&mut child);
    Ok(false)
}

/// The words after `busctl`.
fn request(name: &str, pid: u32) -> Vec<String> {
    let seconds = BOUND.as_secs().to_string();
    let pid = pid.to_string();
    let call = [
        "--user",
        "--quiet",
        &format!("--timeout={seconds}"),
        "call",
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
        name,
        "fail",
    ];
    let properties = [
        &["4"][..],
        &["Description", "s", "a run of prun"],
        &["Delegate", "b", "true"],
        &["CollectMode", "s", "inactive-or-failed"],
        &["PIDs", "au", "1", &pid],
        // No other units.
        &["0"],
    ];
    call.iter().chain(properties.into_iter().flatten()).map(|word| (*word).to_owned()).collect()
}

/// Waits until this process is in the scope; its group.
fn entered(name: &str, until: Instant) -> Option<PathBuf> {
    loop {
        let place = own_place()?;
        if place.file_name().is_some_and(|found| found == name) {
            return Some(place);
        }
        if Instant::now() >= until {
            return None;
        }
        pause();
    }
}

/// Goes into the leaf, and gives the memory controller to its neighbours.
fn settle_in(scope: &Path, pid: u32) -> io::Result<()> {
    let leaf = scope.join(LEAF);
    std::fs::create_dir(&leaf)?;
    std::fs::write(leaf.join("cgroup.procs"), pid.to_string())?;
    std::fs::write(scope.join("cgroup.subtree_control"), "+memory")
}

fn end(child: &mut Child) {
    // It may have ended this moment.
    let _ = child.kill();
    let _ = child.wait();
}

fn pause() {
    let _ = poll(&mut [], Some(&PAUSE));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(group: &str, has_manager: bool, lingers: bool) -> Seen {
        Seen { group: group.into(), has_manager, lingers }
    }

    #[test]
    fn a_scope_is_asked_for_only_where_it_lives_as_long_as_the_session_or_longer() {
        let session = "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope";
        let app = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/terminal.scope";
        assert!(wants_scope(&seen(app, true, false)), "the manager holds us already");
        assert!(wants_scope(&seen(session, true, true)));
        assert!(!wants_scope(&seen(session, true, false)), "a run would end when the user logs out");
        assert!(!wants_scope(&seen(app, false, true)), "nobody to ask");
        assert!(!wants_scope(&Seen::default()));
    }

    #[test]
    fn the_managers_sockets_tell_that_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let look = |runtime: Option<&Path>| {
            look(Path::new("/g"), |name| (name == "XDG_RUNTIME_DIR").then(|| runtime.map(OsString::from)).flatten())
        };
        assert!(!look(None).has_manager && !look(Some(dir.path())).has_manager);
        std::fs::create_dir(dir.path().join("systemd")).unwrap();
        for name in ["systemd/private", "bus"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(look(Some(dir.path())), seen("/g", true, false));
    }

    #[test]
    fn the_request_is_one_call_with_its_signature() {
        let words = request("prun-x-7.scope", 7);
        assert_eq!(
            words.join(" ").split_once("StartTransientUnit ").unwrap().1,
            "ssa(sv)a(sa(sv)) prun-x-7.scope fail 4 Description s a run of prun Delegate b true CollectMode s inactive-or-failed PIDs au 1 7 0"
        );
    }

    #[test]
    fn an_answer_is_waited_for_within_the_bound_alone() {
        let ask = |tool: &str| ask(tool, "prun-x.scope", 7, Instant::now() + Duration::from_millis(300));
        assert!(ask("/no/such/busctl").is_err());
        assert!(ask("true").unwrap() && !ask("false").unwrap());
        let dir = tempfile::tempdir().unwrap();
        let mute = dir.path().join("busctl");
        let script = format!("printf '#!/bin/sh\\nexec sleep 600\\n' >{0}; chmod +x {0}", mute.display());
        assert!(Command::new("/bin/sh").args(["-c", &script]).status().unwrap().success());
        let began = Instant::now();
        assert!(!ask(mute.to_str().unwrap()).unwrap());
        assert!(began.elapsed() >= Duration::from_millis(300));
        assert!(entered("prun-none.scope", Instant::now()).is_none());
    }
}
