//! The sandbox that prun was called in, as far as one can be told from inside: agents often run their shell
//! commands in one that ends every process at the end of the call, or that has no network.
//!
//! [`look`] sees, the rest judges values.

use std::path::Path;

use crate::process;

/// The number that the kernel gives the machine's own space of process numbers (`PROC_PID_INIT_INO`).
const MACHINE_PID_SPACE: &str = "pid:[4026531836]";

/// The variable by which the user says that there is no such sandbox, whatever it looks like: `ignore`.
pub const SANDBOX_VARIABLE: &str = "PRUN_SANDBOX";

/// Codex sets it for the commands that it runs without a network.
const CODEX_WITHOUT_NETWORK: &str = "CODEX_SANDBOX_NETWORK_DISABLED";

/// Variables that name a proxy: some sandboxes have a network through nothing else.
const PROXIES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// Interfaces that the kernel puts into every new network space by itself.
const IDLE_INTERFACES: [&str; 12] =
    ["lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0", "teql0", "ifb0"];

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxFacts {
    /// Process 1 of a process-number space that is not the machine's own.
    pub init: Option<Init>,
    /// `/proc` shows another process-number space than ours.
    pub is_foreign_proc: bool,
    /// The network interfaces there are, up or down.
    pub interfaces: Vec<String>,
    /// A proxy is named.
    pub has_proxy: bool,
    /// The caller says that the network is off.
    pub is_network_off: bool,
}

/// Process 1 of a process-number space: with it, every process of that space ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// The name of its program.
    pub name: String,
    /// Its arguments, the program's own first.
    pub args: Vec<String>,
    /// We descend from it, or are it.
    pub is_above_us: bool,
}

impl SandboxFacts {
    /// Why a run that is left to itself would not live on after the caller has ended.
    #[must_use]
    pub fn ends_with_the_call(&self) -> Option<String> {
        if self.is_foreign_proc {
            return Some("/proc is that of another process space, so no process can be told apart here".to_owned());
        }
        let init = self.init.as_ref().filter(|init| init.is_above_us)?;
        let what = match init.name.as_str() {
            "bwrap" => "bubblewrap",
            "codex-linux-sandbox" | "codex-linux-san" => "Codex's sandbox",
            "firejail" => "firejail",
            "prun" => "a process space in which prun itself is the first process",
            name if is_one_command(name, &init.args) => "a process space of one shell command",
            _ => return None,
        };
        Some(format!("this is {what}: all its processes end with this call"))
    }

    /// Why no worker can reach its model.
    #[must_use]
    pub fn lacks_network(&self) -> Option<String> {
        if self.is_network_off {
            return Some(format!("the caller's sandbox has no network ({CODEX_WITHOUT_NETWORK} is set)"));
        }
        // A machine that is only offline still has its interfaces.
        let is_idle = self.interfaces.iter().all(|name| IDLE_INTERFACES.contains(&name.as_str()));
        (!self.interfaces.is_empty() && is_idle && !self.has_proxy)
            .then(|| "the caller's sandbox has no network (no interface but the loopback)".to_owned())
    }
}

/// Whether a process is a shell that runs one command line and then ends.
fn is_one_command(name: &str, args: &[String]) -> bool {
    let is_shell = ["sh", "bash", "dash", "zsh", "ash", "ksh", "busybox"].contains(&name);
    let is_flag = |arg: &&String| arg.starts_with('-') && !arg.starts_with("--");
    is_shell && args.iter().skip(1).take(3).filter(is_flag).any(|arg| arg.contains('c'))
}

/// Sees where we are.
#[must_use]
pub fn look(var: impl Fn(&str) -> Option<std::ffi::OsString>) -> SandboxFacts {
    let is_set = |name: &&str| var(name).is_some_and(|value| !value.is_empty());
    if var(SANDBOX_VARIABLE).is_some_and(|value| value == "ignore") {
        return SandboxFacts::default();
    }
    let text = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    SandboxFacts {
        init: init(),
        is_foreign_proc: std::fs::read_link("/proc/self")
            .is_ok_and(|own| own != Path::new(&std::process::id().to_string())),
        interfaces: interfaces(&text),
        has_proxy: PROXIES.iter().any(is_set),
        is_network_off: is_set(&CODEX_WITHOUT_NETWORK),
    }
}

fn init() -> Option<Init> {
    let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
    if space.as_os_str() == MACHINE_PID_SPACE {
        return None;
    }
    let name = std::fs::read_to_string("/proc/1/comm").ok()?.trim_end().to_owned();
    let args = std::fs::read("/proc/1/cmdline").unwrap_or_default();
    let args = args.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
    let above = std::iter::successors(Some(std::process::id()), |pid| process::stat(*pid).map(|stat| stat.parent));
    // A process that somebody brought in from outside has the parent 0.
    let is_above_us = above.take_while(|pid| *pid != 0).any(|pid| pid == 1);
    Some(Init { name, args, is_above_us })
}

/// The names in the text of `/proc/net/dev`: two lines of headings, then `name: counters`.
fn interfaces(text: &str) -> Vec<String> {
    text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(name: &str, args: &[&str], is_above_us: bool) -> SandboxFacts {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let init = Init { name: name.to_owned(), args, is_above_us };
        SandboxFacts { init: Some(init), ..SandboxFacts::default() }
    }

    #[test]
    fn a_space_that_ends_with_its_command_is_told_from_a_container_that_stays() {
        for (facts, word) in [
            (inside("bwrap", &["bwrap", "--unshare-pid"], true), Some("bubblewrap")),
            (inside("codex-linux-san", &["codex-linux-sandbox"], true), Some("Codex")),
            (inside("sh", &["sh", "-c", "prun run -d"], true), Some("one shell command")),
            (inside("bash", &["bash", "-lc", "prun run -d"], true), Some("one shell command")),
            (inside("prun", &["prun", "run", "-d"], true), Some("prun itself")),
            // Containers: a shell that somebody types into, an init, a process that was brought in.
            (inside("bash", &["-bash"], true), None),
            (inside("bash", &["bash", "--rcfile", "x"], true), None),
            (inside("systemd", &["/sbin/init"], true), None),
            (inside("sh", &["sh", "-c", "sleep infinity"], false), None),
            (SandboxFacts::default(), None),
            (SandboxFacts { is_foreign_proc: true, ..SandboxFacts::default() }, Some("/proc")),
        ] {
            let said = facts.ends_with_the_call();
            assert_eq!(said.is_some(), word.is_some(), "{facts:?}: {said:?}");
            assert!(said.is_none_or(|said| said.contains(word.unwrap())), "{facts:?}");
        }
    }

    #[test]
    fn a_machine_that_is_only_offline_has_its_interfaces() {
        let with = |interfaces: &[&str], has_proxy, is_network_off| {
            let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
            SandboxFacts { interfaces, has_proxy, is_network_off, ..SandboxFacts::default() }.lacks_network().is_some()
        };
        assert!(with(&["lo"], false, false));
        assert!(with(&["lo", "tunl0", "sit0"], false, false));
        assert!(with(&["lo", "eth0"], false, true));
        assert!(!with(&["lo"], true, false), "a proxy may lead out");
        assert!(!with(&["lo", "wlan0"], false, false));
        assert!(!with(&[], false, false), "nothing could be told");
    }

    #[test]
    fn interfaces_are_read_from_the_kernels_table() {
        let text = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3\n  eth0:55 6 7\n";
        assert_eq!(interfaces(text), ["lo", "eth0"]);
    }

    #[test]
    fn the_user_has_the_last_word() {
        let ignore = |name: &str| (name == SANDBOX_VARIABLE).then(|| "ignore".into());
        assert_eq!(look(ignore), SandboxFacts::default());
        assert!(look(|name| (name == CODEX_WITHOUT_NETWORK).then(|| "1".into())).lacks_network().is_some());
    }
}
