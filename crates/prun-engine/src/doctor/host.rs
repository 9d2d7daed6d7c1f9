//! The machine's own findings, from plain values: what holds for every run, whatever its executors.

use prun_core::finding::Finding;

use crate::workspace::MIN_FREE;

/// Free bytes below which a run of a few large clones may fill the disk.
const LOW_DISK: u64 = 5 << 30;

/// inotify instances that have to be left: one for a supervisor, one for a `gather` or `monitor`, and some for
/// what the workers start.
const INOTIFY_SPARE: u64 = 8;

/// What was seen of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// Git's path and version, or what is wrong with it.
    pub git: Result<String, String>,
    /// The home of prun.
    pub home: String,
    /// Why runs cannot be kept there.
    pub home_error: Option<String>,
    /// Bytes that are free there.
    pub free_bytes: Option<u64>,
    /// What happens at the end of a login.
    pub login: LoginFacts,
    /// The machine's own batteries.
    pub batteries: Vec<Battery>,
    /// Whether a control group can be made for each worker.
    pub group: GroupFacts,
    /// inotify instances: how many this user may have, and how many are in use as far as can be seen.
    pub inotify: Option<(u64, u64)>,
}

/// What happens to processes at the end of a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginFacts {
    /// The texts of `logind.conf` and its drop-ins, in the order in which they count.
    pub configs: Vec<String>,
    /// This process belongs to a login session.
    pub in_session: bool,
    /// The user's services outlive the logins (`loginctl enable-linger`).
    pub lingers: bool,
    /// The user's name.
    pub user: String,
}

/// One battery that drives the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Battery {
    /// It is being emptied.
    pub is_discharging: bool,
    /// What is left, in percent.
    pub percent: Option<u8>,
}

/// Where a worker's control group would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GroupFacts {
    /// There is no control group hierarchy of version 2.
    #[default]
    None,
    /// None can be made in this one.
    Closed {
        /// The group.
        place: String,
    },
    /// They can be made in this one.
    Open {
        /// Memory is counted there, so that peaks and kills for memory are told.
        counts_memory: bool,
    },
}

/// Judges all of it.
#[must_use]
pub fn host(facts: &HostFacts) -> Vec<Finding> {
    let checks = [git, home, disk, login, battery, group, inotify];
    checks.iter().filter_map(|check| check(facts)).collect()
}

fn git(facts: &HostFacts) -> Option<Finding> {
    Some(match &facts.git {
        Ok(version) => Finding::ok("git", version),
        Err(error) => Finding::problem("git", error, "install git 2.38 or newer, or name one by PRUN_GIT"),
    })
}

fn home(facts: &HostFacts) -> Option<Finding> {
    Some(match &facts.home_error {
        None => Finding::ok("home", format!("runs are kept in {}", facts.home)),
        Some(error) => Finding::problem("home", error, "set PRUN_HOME to a directory of your own on a local disk"),
    })
}

fn disk(facts: &HostFacts) -> Option<Finding> {
    let free = facts.free_bytes?;
    let text = format!("{:.1} GB are free at {}", free as f64 / 1e9, facts.home);
    let hint = "`prun clean` shows what old runs take and may give back";
    Some(match free {
        LOW_DISK.. => Finding::ok("disk", text),
        MIN_FREE.. => Finding::warning("disk", text, hint),
        _ => Finding::problem("disk", text, hint),
    })
}

fn login(facts: &HostFacts) -> Option<Finding> {
    let login = &facts.login;
    let kills = login.configs.iter().fold(None, |before, text| kills_user_processes(text).or(before)) == Some(true)
        && login.user != "root";
    if !kills {
        return Some(Finding::ok("logout", "a run outlives the end of this login"));
    }
    if !login.in_session {
        return Some(Finding::ok("logout", "KillUserProcesses is on; this is no login session, so a run outlives it"));
    }
    let scope = "start it outside of the login: systemd-run --user --scope prun run -d";
    if login.lingers {
        let message = "KillUserProcesses is on: a run that is started from this login ends with it";
        return Some(Finding::warning("logout", message, scope));
    }
    let message = "KillUserProcesses is on and you do not linger: a run ends with your last login";
    Some(Finding::warning("logout", message, format!("loginctl enable-linger, then {scope}")))
}

/// What one configuration says of `KillUserProcesses`; the last line counts.
fn kills_user_processes(text: &str) -> Option<bool> {
    let set = |line: &str| line.trim().strip_prefix("KillUserProcesses")?.trim().strip_prefix('=').map(str::to_owned);
    let last = text.lines().rev().find_map(set)?.trim().to_ascii_lowercase();
    Some(["yes", "true", "on", "1"].contains(&last.as_str()))
}

fn battery(facts: &HostFacts) -> Option<Finding> {
    let battery = facts.batteries.iter().find(|battery| battery.is_discharging);
    let Some(battery) = battery else {
        return Some(Finding::ok("power", "the machine does not run from a battery"));
    };
    let left = battery.percent.map(|percent| format!(", {percent} % are left")).unwrap_or_default();
    let hint = "plug it in; `prun run --keep-awake` keeps the machine from going to sleep while a run lasts";
    Some(Finding::warning("power", format!("the machine runs from its battery{left}"), hint))
}

fn group(facts: &HostFacts) -> Option<Finding> {
    let hint = "a scope of your own has it: systemd-run --user --scope -p Delegate=yes prun run -d";
    Some(match &facts.group {
        GroupFacts::Open { counts_memory: true } => {
            Finding::ok("control-groups", "each worker gets a control group of its own, its memory counted")
        }
        GroupFacts::Open { counts_memory: false } => {
            Finding::ok("control-groups", "each worker gets a control group of its own; memory is not counted there")
        }
        GroupFacts::Closed { place } => {
            let message = format!("no control group can be made in {place}: workers are ended by subreaper and token");
            Finding::warning("control-groups", message, hint)
        }
        GroupFacts::None => Finding::warning(
            "control-groups",
            "there are no control groups of version 2: workers are ended by subreaper and token",
            "nothing has to be done; the page on containment tells what that means",
        ),
    })
}

fn inotify(facts: &HostFacts) -> Option<Finding> {
    let (allowed, used) = facts.inotify?;
    let text = format!("{used} of {allowed} inotify instances are in use");
    Some(if used.saturating_add(INOTIFY_SPARE) <= allowed {
        Finding::ok("inotify", text)
    } else {
        let hint = "prun looks every 2 s instead where it gets none; raise fs.inotify.max_user_instances";
        Finding::warning("inotify", text, hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use prun_core::finding::Level;

    fn fine() -> HostFacts {
        HostFacts {
            git: Ok("git 2.47".into()),
            home: "/h".into(),
            home_error: None,
            free_bytes: Some(80_000_000_000),
            login: LoginFacts { user: "u".into(), ..LoginFacts::default() },
            batteries: Vec::new(),
            group: GroupFacts::Open { counts_memory: true },
            inotify: Some((128, 3)),
        }
    }

    type Spoil = fn(&mut HostFacts);

    fn not_ok(spoil: Spoil) -> Vec<(String, Level)> {
        let mut facts = fine();
        spoil(&mut facts);
        let bad = host(&facts).into_iter().filter(|found| found.level != Level::Ok);
        bad.map(|found| (found.check, found.level)).collect()
    }

    #[test]
    fn a_machine_without_faults_has_seven_good_findings() {
        assert_eq!(not_ok(|_| {}), []);
        assert_eq!(host(&fine()).len(), 7);
    }

    #[test]
    fn each_fault_is_told_by_its_own_check_with_a_next_step() {
        let cases: &[(Spoil, &str, Level)] = &[
            (|f| f.git = Err("git 2.30 is too old".into()), "git", Level::Problem),
            (|f| f.home_error = Some("it is on NFS".into()), "home", Level::Problem),
            (|f| f.free_bytes = Some(1 << 30), "disk", Level::Warning),
            (|f| f.free_bytes = Some(1 << 20), "disk", Level::Problem),
            (|f| f.batteries = vec![Battery { is_discharging: true, percent: Some(41) }], "power", Level::Warning),
            (|f| f.group = GroupFacts::None, "control-groups", Level::Warning),
            (|f| f.group = GroupFacts::Closed { place: "/g".into() }, "control-groups", Level::Warning),
            (|f| f.inotify = Some((128, 125)), "inotify", Level::Warning),
            (
                |f| {
                    f.login.configs = vec!["[Login]\nKillUserProcesses=yes\n".into()];
                    f.login.in_session = true;
                },
                "logout",
                Level::Warning,
            ),
        ];
        for (spoil, check, level) in cases {
            assert_eq!(not_ok(*spoil), [((*check).to_owned(), *level)]);
            let mut facts = fine();
            spoil(&mut facts);
            assert!(host(&facts).iter().all(|found| found.level == Level::Ok || found.hint.is_some()), "{check}");
        }
    }

    #[test]
    fn a_full_battery_or_one_that_is_charged_is_no_fault() {
        let charging = Battery { is_discharging: false, percent: Some(9) };
        assert!(host(&HostFacts { batteries: vec![charging], ..fine() }).iter().all(|found| found.level == Level::Ok));
    }

    #[test]
    fn the_last_configuration_that_says_something_counts() {
        let with = |configs: &[&str], in_session, user: &str| {
            let configs = configs.iter().map(|text| (*text).to_owned()).collect();
            let login = LoginFacts { configs, in_session, lingers: false, user: user.to_owned() };
            login_level(&HostFacts { login, ..fine() })
        };
        let (yes, no, silent) = ("KillUserProcesses = yes", "KillUserProcesses=no", "#KillUserProcesses=yes\n");
        assert_eq!(with(&[yes], true, "u"), Level::Warning);
        assert_eq!(with(&[yes, silent], true, "u"), Level::Warning);
        assert_eq!(with(&[yes, no], true, "u"), Level::Ok);
        assert_eq!(with(&[silent], true, "u"), Level::Ok);
        assert_eq!(with(&[yes], false, "u"), Level::Ok, "not in a login session");
        assert_eq!(with(&[yes], true, "root"), Level::Ok, "logind leaves root's alone");
    }

    fn login_level(facts: &HostFacts) -> Level {
        login(facts).unwrap().level
    }
}
