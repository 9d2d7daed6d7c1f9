//! Is the machine too busy for one more worker? What the kernel says of pressure, where it says it.
//!
//! `/proc/pressure/cpu` and `memory` tell in which share of the last 10 s some process had to wait (Linux 4.20,
//! `Documentation/accounting/psi.rst`). The variable `PRUN_PRESSURE` is `off` or changes the limits: `cpu=90,memory=30`.

use std::path::{Path, PathBuf};

use prun_core::schedule::{PRESSURE_LOOK_MILLIS, Pressure};
use prun_core::supervise::Pressed;

/// The variable that changes the limits.
pub const VARIABLE: &str = "PRUN_PRESSURE";

/// Percent of the last 10 s in which some process waited for a CPU, from which no agent starts.
const CPU_LIMIT: f64 = 80.0;

/// The same for memory, from which nothing starts: pages are being fetched again all the time.
const MEMORY_LIMIT: f64 = 20.0;

/// What is below this share of a limit ends a pause: a value that swings around the limit does not.
const RELIEF: f64 = 0.75;

/// Looks at the machine now and then.
#[derive(Debug)]
pub struct Gauge {
    dir: PathBuf,
    cpu_limit: f64,
    memory_limit: f64,
    looked_at: Option<u64>,
    last: Option<Pressure>,
}

impl Gauge {
    /// A gauge with the limits that `setting`, the value of [`VARIABLE`], names. What it does not understand means
    /// the usual ones.
    #[must_use]
    pub fn new(dir: &Path, setting: Option<&str>) -> Self {
        let mut gauge =
            Self { dir: dir.to_owned(), cpu_limit: CPU_LIMIT, memory_limit: MEMORY_LIMIT, looked_at: None, last: None };
        for part in setting.unwrap_or_default().split(',') {
            match part.trim().split_once('=') {
                None if part.trim() == "off" => (gauge.cpu_limit, gauge.memory_limit) = (f64::INFINITY, f64::INFINITY),
                Some(("cpu", limit)) => gauge.cpu_limit = limit.parse().unwrap_or(gauge.cpu_limit),
                Some(("memory", limit)) => gauge.memory_limit = limit.parse().unwrap_or(gauge.memory_limit),
                _ => {}
            }
        }
        gauge
    }

    /// Looks at `now` (milliseconds, monotonic) unless it did so a moment ago. What changed, where anything did.
    pub fn look(&mut self, now: u64) -> Option<Option<Pressed>> {
        if self.looked_at.is_some_and(|at| now < at.saturating_add(PRESSURE_LOOK_MILLIS)) {
            return None;
        }
        self.looked_at = Some(now);
        let found = self
            .check("memory", Pressure::Memory, self.memory_limit)
            .or_else(|| self.check("cpu", Pressure::Cpu, self.cpu_limit));
        let what = found.as_ref().map(|pressed| pressed.what);
        (std::mem::replace(&mut self.last, what) != what).then_some(found)
    }

    fn check(&self, name: &str, what: Pressure, limit: f64) -> Option<Pressed> {
        if limit.is_infinite() {
            return None;
        }
        let share = waited(&std::fs::read_to_string(self.dir.join(name)).ok()?)?;
        let bound = if self.last == Some(what) { limit * RELIEF } else { limit };
        let why = format!("processes waited for {name} in {share:.0} % of the last 10 s");
        (share >= bound).then_some(Pressed { what, why })
    }
}

/// The share of `some avg10=`, in percent.
fn waited(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split(' ').find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(dir: &Path, name: &str, share: &str) {
        let text = format!("some avg10={share} avg60=0.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0.00 total=1\n");
        std::fs::write(dir.join(name), text).unwrap();
    }

    #[test]
    fn a_change_is_told_once_and_relief_comes_well_below_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let mut gauge = Gauge::new(dir, None);
        let mut now = 0;
        let mut look = |share: &str| {
            set(dir, "cpu", share);
            now += PRESSURE_LOOK_MILLIS;
            gauge.look(now).map(|pressed| pressed.map(|pressed| pressed.why))
        };
        assert_eq!(look("12.50"), None);
        let why = "processes waited for cpu in 85 % of the last 10 s".to_owned();
        assert_eq!(look("85.10"), Some(Some(why)));
        assert_eq!(look("95.00"), None);
        assert_eq!(look("61.00"), None, "still above three quarters of the limit");
        assert_eq!(look("59.00"), Some(None));
        assert_eq!(look("79.00"), None);
    }

    #[test]
    fn memory_goes_first_and_what_is_not_there_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Gauge::new(dir.path(), None).look(5), None);
        set(dir.path(), "memory", "20.00");
        set(dir.path(), "cpu", "99.00");
        let what = |setting| Gauge::new(dir.path(), setting).look(5).flatten().map(|pressed| pressed.what);
        assert_eq!(what(None), Some(Pressure::Memory));
        assert_eq!(what(Some("memory=30")), Some(Pressure::Cpu));
        assert_eq!(what(Some("cpu=99.5, memory=21")), None);
        assert_eq!(what(Some("off")), None);
        let mut gauge = Gauge::new(dir.path(), None);
        assert!(gauge.look(5).is_some() && gauge.look(6).is_none(), "it looked a moment ago");
    }
}
