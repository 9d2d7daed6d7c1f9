//! The processes that carry a test's mark in their environment.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// A process of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its command line.
    pub command: String,
}

impl Process {
    /// Ends it at once.
    pub fn end(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // It may be gone already.
            let _ = kill_process(pid, signal);
        }
    }

    /// Whether it lives. One that is dying has no environment any more, but may still hold its locks; so may the
    /// last threads of one whose first has ended.
    #[must_use]
    pub fn lives(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(')') else { return false };
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The state is field 3 of the manual page, the number of threads field 20.
        let is_dead = matches!(fields.first(), None | Some(&"Z" | &"X" | &"x"));
        !is_dead || fields.get(17).is_some_and(|threads| *threads != "1" && *threads != "0")
    }

    /// Whether this variable is set in its environment.
    #[must_use]
    pub fn has_variable(&self, name: &str) -> bool {
        let environment = std::fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        let start = [name.as_bytes(), b"="].concat();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(&start))
    }

    /// Whether its first argument is `verb`.
    #[must_use]
    pub fn does(&self, verb: &str) -> bool {
        self.command.split(' ').nth(1) == Some(verb)
    }
}

/// Those whose environment has `name=value`. One that is dead and was not waited for has no environment.
pub(super) fn marked(name: &str, value: &Path) -> Vec<Process> {
    let wanted = format!("{name}={}", value.display()).into_bytes();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_mark = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
    };
    let describe = |pid| Process { pid, command: command_line(pid) };
    pids.filter(has_mark).map(describe).collect()
}

fn command_line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned()
}
