//! Landing through the real binary: what is reconciled, what lands, and what stays when it is cut off.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use prun_engine::process::stat;

use super::{GOOD, PRUN, User, has};

/// Waits for a condition.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "between two looks at a condition")]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_gone(pid_file: &Path) -> bool {
    let text = std::fs::read_to_string(pid_file).unwrap_or_default();
    let pid = text.trim().parse().unwrap_or_else(|_| panic!("no process in {}", pid_file.display()));
    stat(pid).is_none_or(|stat| stat.is_dead())
}

/// The check ends with the command that runs it, however that ends; what left its process group ends with the next
/// command that lands or cleans.
#[test]
fn the_check_of_a_killed_integrate_ends_with_it() {
    let user = User::new();
    let marks = user.at("marks");
    std::fs::create_dir(&marks).unwrap();
    let (own, away, go) = (marks.join("own"), marks.join("away"), marks.join("go"));
    let check = format!(
        "[ ! -e {} ] || {{ setsid sh -c \"echo \\$\\$ > {}; exec sleep 600\" & echo $$ > {}; sleep 600; }}",
        go.display(),
        away.display(),
        own.display()
    );
    user.run(&format!("verify = '''{check}'''"), &[("u", &format!("{GOOD} echo x > x"))]);
    std::fs::write(&go, "").unwrap();
    let mut child = user.command(PRUN, &["integrate", "--dry-run"]).stdout(Stdio::null()).spawn().unwrap();
    until("the check to run", || own.exists() && std::fs::read(&away).is_ok_and(|text| text.ends_with(b"\n")));
    child.kill().unwrap();
    child.wait().unwrap();
    until("the check to end", || is_gone(&own));
    assert!(!is_gone(&away));
    std::fs::remove_file(&go).unwrap();
    has(&user.ok(&["clean"]), &["can go  trial-"]);
    until("its daemon to end", || is_gone(&away));
}
