//! Looks at the machine; what cannot be told is left out and never guessed.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::host::{Battery, GroupFacts, HostFacts, LoginFacts};
use crate::contain;
use crate::git::Git;
use crate::home::Home;
use crate::workspace::{HomeError, check_home, disk_free};

/// Where logind is configured; drop-ins beside them stand in `logind.conf.d`. The later one counts more.
const LOGIND: [&str; 4] = ["/usr/lib/systemd", "/usr/local/lib/systemd", "/run/systemd", "/etc/systemd"];

/// Sees all that [`super::host`] judges.
#[must_use]
pub fn look(git: &Git, home: &Home) -> HostFacts {
    let version = git.version().map(|(major, minor)| format!("git {major}.{minor}")).map_err(|error| error.to_string());
    // A full disk has its own finding.
    let home_error = check_home(home).err().filter(|error| !matches!(error, HomeError::Full { .. }));
    HostFacts {
        git: version,
        home: home.root().display().to_string(),
        home_error: home_error.map(|error| error.to_string()),
        free_bytes: disk_free(home.root()).ok(),
        login: login(),
        batteries: batteries(Path::new("/sys/class/power_supply")),
        group: group(),
        inotify: inotify(),
    }
}

fn login() -> LoginFacts {
    let mut configs: Vec<String> = LOGIND.iter().filter_map(|dir| text(&format!("{dir}/logind.conf"))).collect();
    let mut drop_ins: Vec<PathBuf> = LOGIND.iter().flat_map(|dir| files(format!("{dir}/logind.conf.d"))).collect();
    drop_ins.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    configs.extend(drop_ins.iter().filter_map(|path| std::fs::read_to_string(path).ok()));
    let uid = rustix::process::getuid().as_raw();
    let user = user_name(&text("/etc/passwd").unwrap_or_default(), uid).unwrap_or_default();
    let lingers = !user.is_empty() && Path::new("/var/lib/systemd/linger").join(&user).exists();
    let in_session = text("/proc/self/cgroup").is_some_and(|groups| groups.contains("/session-"));
    LoginFacts { configs, in_session, lingers, user }
}

fn user_name(passwd: &str, uid: u32) -> Option<String> {
    let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|fields| fields.get(2).is_some_and(|found| found.parse() == Ok(uid))).map(|fields| fields[0].to_owned())
}

/// Batteries of mice and headsets are not the machine's own.
fn batteries(dir: &Path) -> Vec<Battery> {
    let found = files(dir).into_iter().filter_map(|supply| {
        let value = |name: &str| std::fs::read_to_string(supply.join(name)).ok().map(|text| text.trim().to_owned());
        let is_own = value("type").as_deref() == Some("Battery") && value("scope").as_deref() != Some("Device");
        is_own.then(|| Battery {
            is_discharging: value("status").as_deref() == Some("Discharging"),
            percent: value("capacity").and_then(|text| text.parse().ok()),
        })
    });
    found.collect()
}

fn group() -> GroupFacts {
    let Some(place) = contain::own_place() else { return GroupFacts::None };
    if access(&place, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return GroupFacts::Closed { place: place.display().to_string() };
    }
    let delegated = std::fs::read_to_string(place.join("cgroup.subtree_control")).unwrap_or_default();
    GroupFacts::Open { counts_memory: delegated.split_ascii_whitespace().any(|word| word == "memory") }
}

/// The instances in use are counted among the processes that this user may look into: all of its own.
fn inotify() -> Option<(u64, u64)> {
    let allowed = text("/proc/sys/fs/inotify/max_user_instances")?.trim().parse().ok()?;
    let own = rustix::process::getuid().as_raw();
    let is_own = |dir: &PathBuf| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(dir).is_ok_and(|meta| meta.uid() == own)
    };
    let processes = files("/proc").into_iter().filter(|dir| {
        dir.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let instances = |dir: PathBuf| {
        let links = files(dir.join("fd")).into_iter().filter_map(|fd| std::fs::read_link(fd).ok());
        links.filter(|link| link.as_os_str().as_encoded_bytes() == b"anon_inode:inotify").count() as u64
    };
    Some((allowed, processes.filter(is_own).map(instances).sum()))
}

fn text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn files(dir: impl AsRef<Path>) -> Vec<PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_batteries_of_the_machine_itself_count() {
        let dir = tempfile::tempdir().unwrap();
        let supply = |name: &str, entries: &[(&str, &str)]| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            for (entry, value) in entries {
                std::fs::write(dir.path().join(name).join(entry), format!("{value}\n")).unwrap();
            }
        };
        supply("AC", &[("type", "Mains"), ("online", "0")]);
        supply("BAT0", &[("type", "Battery"), ("status", "Discharging"), ("capacity", "43")]);
        supply("mouse", &[("type", "Battery"), ("scope", "Device"), ("status", "Discharging"), ("capacity", "5")]);
        assert_eq!(batteries(dir.path()), [Battery { is_discharging: true, percent: Some(43) }]);
        assert_eq!(batteries(&dir.path().join("nothing")), []);
    }

    #[test]
    fn the_name_of_a_user_is_read_by_number() {
        let passwd = "root:x:0:0:root:/r:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(user_name(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(user_name(passwd, 7), None);
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let facts = look(&Git::from_env(), &Home::at(dir.path().join("home")));
        assert!(facts.git.is_ok(), "{facts:?}");
        assert!(facts.free_bytes.is_some_and(|free| free > 0));
        assert!(!dir.path().join("home").exists(), "nothing is made");
        let _watch = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).unwrap();
        assert!(inotify().is_some_and(|(_, used)| used >= 1));
    }
}
