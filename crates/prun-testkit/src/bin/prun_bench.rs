//! Measures prun beside what does the same without it, in the same minutes on the same machine, and prints
//! a table. `benches/README.md` says what each row means.
//!
//!     prun-bench PRUN [ROW…]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The program that every unit, job and spawn runs.
const PROGRAM: &str = "true";

/// Rows in their order, with what measures them.
const ROWS: &[(&str, Row)] = &[
    ("unit", one_unit),
    ("units-200", two_hundred),
    ("units-1000", thousand),
    ("dispatch-task", dispatch_task),
    ("memory", memory),
    ("status-1000", status),
    ("size", size),
];

type Row = fn(&Bench) -> std::io::Result<()>;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(prun) = arguments.next().and_then(|path| std::fs::canonicalize(path).ok()) else {
        return fail("usage: prun-bench PRUN [ROW…], where PRUN is the program of a release build");
    };
    let wanted: Vec<String> = arguments.collect();
    if let Some(unknown) = wanted.iter().find(|name| ROWS.iter().all(|(row, _)| row != name)) {
        return fail(&format!("there is no row {unknown}"));
    }
    let bench = match TempDir::with_prefix("prun-bench-") {
        Ok(dir) => Bench { prun, dir },
        Err(error) => return fail(&format!("cannot make a directory: {error}")),
    };
    for (name, measure) in ROWS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|one| one == name)) {
        if let Err(error) = measure(&bench) {
            return fail(&format!("{name}: {error}"));
        }
    }
    ExitCode::SUCCESS
}

fn fail(message: &str) -> ExitCode {
    // There is nobody else to tell.
    let _ = writeln!(std::io::stderr(), "prun-bench: {message}");
    ExitCode::from(2)
}

/// Whether prun syncs what it writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    On,
    Off,
}

struct Bench {
    prun: PathBuf,
    dir: TempDir,
}

impl Bench {
    fn prun(&self, durable: Durable, args: &[&str]) -> Command {
        let mut command = Command::new(&self.prun);
        command.args(args).current_dir(self.dir.path()).env("PRUN_HOME", self.dir.path().join("home"));
        command.env_remove("PRUN_DURABLE").env_remove("PRUN_DEPTH");
        if durable == Durable::Off {
            command.env("PRUN_DURABLE", "off");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// A plan of units that run `command` and need no repository; its path.
    fn plan(&self, units: usize, jobs: usize, command: &str) -> std::io::Result<String> {
        let mut text = format!("version = 1\ntitle = \"bench\"\njobs = {jobs}\n[defaults]\nexecutor = \"command\"\n");
        text += "mode = \"read\"\ncheckout = false\nretries = 0\n";
        for number in 0..units {
            text += &format!("[[unit]]\nid = \"u{number}\"\nprompt = \"x\"\ncommand = [{command}]\n");
        }
        let path = self.dir.path().join("plan.toml");
        std::fs::write(&path, text)?;
        // The executor `command` has a slot for each core; the plan's `jobs` alone shall count here.
        std::fs::write(self.config(), format!("[executor.command]\nslots = {jobs}\n"))?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    /// Milliseconds of a whole `prun run` of no-op units, the supervisor's start included.
    fn run(&self, durable: Durable, units: usize, jobs: usize) -> std::io::Result<f64> {
        let plan = self.plan(units, jobs, &format!("{PROGRAM:?}"))?;
        let began = Instant::now();
        let status = self.prun(durable, &["run", "--again", &plan]).env("PRUN_CONFIG", self.config()).status()?;
        // 3: the units did nothing and wrote no result, which prun says.
        expect(status.code() == Some(3), "prun run did not end as it should")?;
        Ok(millis(began))
    }

    fn xargs(&self, units: usize, jobs: usize) -> std::io::Result<f64> {
        let began = Instant::now();
        let script = format!("seq {units} | xargs -P {jobs} -n 1 {PROGRAM}");
        let status = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).status()?;
        expect(status.success(), "xargs failed")?;
        Ok(millis(began))
    }
}

/// A no-op unit from its start until it is settled: what a unit adds to a run that does one after the other.
fn one_unit(bench: &Bench) -> std::io::Result<()> {
    for durable in [Durable::On, Durable::Off] {
        let per_unit = median(5, || Ok((bench.run(durable, 41, 1)? - bench.run(durable, 1, 1)?) / 40.0))?;
        say(&format!("no-op unit, start to settled{}", of(durable)), &format!("{per_unit:.2} ms"))?;
    }
    let whole = median(5, || bench.run(Durable::On, 1, 1))?;
    say("prun run of one no-op unit, from the shell and back", &format!("{whole:.0} ms"))
}

fn two_hundred(bench: &Bench) -> std::io::Result<()> {
    beside_xargs(bench, 200, 20, 5)
}

fn thousand(bench: &Bench) -> std::io::Result<()> {
    beside_xargs(bench, 1_000, 50, 3)
}

fn beside_xargs(bench: &Bench, units: usize, jobs: usize, times: usize) -> std::io::Result<()> {
    let xargs = median(times, || bench.xargs(units, jobs))?;
    let each = |all: f64| all / units as f64;
    say(&format!("{units} no-ops at {jobs} at once, xargs -P"), &format!("{:.2} ms each", each(xargs)))?;
    for durable in [Durable::On, Durable::Off] {
        let own = median(times, || bench.run(durable, units, jobs))?;
        let text = format!("{:.2} ms each, {:.1} x xargs", each(own), own / xargs);
        say(&format!("{units} no-ops at {jobs} at once, prun run{}", of(durable)), &text)?;
    }
    Ok(())
}

fn dispatch_task(bench: &Bench) -> std::io::Result<()> {
    let at = |name: &str| bench.dir.path().join(name).to_string_lossy().into_owned();
    let prompt = at("prompt.md");
    std::fs::write(&prompt, "x")?;
    for (name, durable) in [("on", Durable::On), ("off", Durable::Off)] {
        // By turns: a machine whose speed drifts is as fast for the one as for the other.
        let (mut bare, mut own) = (Vec::new(), Vec::new());
        for number in 0..200 {
            bare.push(timed(Command::new(PROGRAM).stdin(Stdio::null()))?);
            let result = at(&format!("{name}-{number}.md"));
            let args = ["--prompt-file", &prompt, "--result-file", &result, "--unit-id", "u", "--", PROGRAM];
            let mut command = bench.prun(durable, &["dispatch-task"]);
            own.push(timed(command.args(args).env("TMPDIR", bench.dir.path()))?);
        }
        let (bare, own) = (middle(bare), middle(own));
        let text = format!("{own:.2} ms, {:.1} x a bare spawn of {bare:.2} ms", own / bare);
        say(&format!("dispatch-task of a no-op{}", of(durable)), &text)?;
    }
    Ok(())
}

/// Proportional set size of dispatchers whose workers sleep: one alone, and one of twenty.
fn memory(bench: &Bench) -> std::io::Result<()> {
    for count in [1, 20] {
        let plan = bench.plan(count, count, "\"sleep\", \"600\"")?;
        let started =
            bench.prun(Durable::Off, &["run", "-d", "--again", &plan]).env("PRUN_CONFIG", bench.config()).status()?;
        expect(started.success(), "prun run -d failed")?;
        let run = newest_run(bench)?;
        let living = wait_for(|| Some(dispatchers(&run)).filter(|found| found.len() == count));
        let sizes: Vec<f64> = living.iter().flatten().filter_map(|pid| pss_kib(*pid)).collect();
        // Also after a failure: nothing of it may stay.
        bench.prun(Durable::Off, &["stop", &name(&run), "--now"]).status()?;
        wait_for(|| living.iter().flatten().all(|pid| pss_kib(*pid).is_none()).then_some(()))?;
        living?;
        let mean = sizes.iter().sum::<f64>() / sizes.len().max(1) as f64;
        say(&format!("PSS of an idle dispatcher, {count} at once"), &format!("{:.2} MiB", mean / 1024.0))?;
    }
    Ok(())
}

fn status(bench: &Bench) -> std::io::Result<()> {
    bench.run(Durable::Off, 1_000, 50)?;
    let run = name(&newest_run(bench)?);
    let time = median(11, || timed(&mut bench.prun(Durable::On, &["status", &run])))?;
    say("prun status of a run of 1,000 units", &format!("{time:.0} ms"))
}

fn size(bench: &Bench) -> std::io::Result<()> {
    let bytes = std::fs::metadata(&bench.prun)?.len();
    say("size of the program", &format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)))
}

fn timed(command: &mut Command) -> std::io::Result<f64> {
    let began = Instant::now();
    command.status()?;
    Ok(millis(began))
}

fn median(times: usize, mut measure: impl FnMut() -> std::io::Result<f64>) -> std::io::Result<f64> {
    (0..times).map(|_| measure()).collect::<Result<_, _>>().map(middle)
}

fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The directory of the run that was started last; two ids of one second tell no order.
fn newest_run(bench: &Bench) -> std::io::Result<PathBuf> {
    let runs = std::fs::read_dir(bench.dir.path().join("home/runs"))?.flatten().map(|entry| entry.path());
    let begun = |run: &PathBuf| std::fs::metadata(run.join("run.json")).and_then(|card| card.modified()).ok();
    runs.max_by_key(begun).ok_or_else(|| std::io::Error::other("there is no run"))
}

fn name(run: &Path) -> String {
    run.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The dispatchers of a run whose workers were started.
fn dispatchers(run: &Path) -> Vec<u64> {
    let below = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let states = below(run.join("units")).flat_map(below).flat_map(below);
    let identities = states.filter_map(|state| std::fs::read(state.join("identity.json")).ok());
    let parsed = identities.filter_map(|text| serde_json::from_slice::<Value>(&text).ok());
    parsed.filter(|identity| !identity["worker"].is_null()).filter_map(|it| it["dispatcher"]["pid"].as_u64()).collect()
}

fn pss_kib(pid: u64) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

#[expect(clippy::disallowed_methods, reason = "polls a condition of other processes, with a deadline")]
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> std::io::Result<T> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        expect(Instant::now() < deadline, "waited in vain")?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn expect(is: bool, message: &str) -> std::io::Result<()> {
    if is { Ok(()) } else { Err(std::io::Error::other(message)) }
}

fn of(durable: Durable) -> &'static str {
    match durable {
        Durable::On => "",
        Durable::Off => ", PRUN_DURABLE=off",
    }
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1_000.0
}

fn say(what: &str, figure: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{what:<64} {figure}")?;
    stdout.flush()
}
