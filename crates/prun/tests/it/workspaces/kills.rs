//! SIGKILL of `prun integrate` at random moments: whatever was killed, `integrate --continue` or `undo` brings the
//! working tree to one of its two states, byte for byte, and the git directory is never touched.
//!
//! `PRUN_TEST_KILLS` sets how many kills there are, `PRUN_TEST_SEED` where the moments begin.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{GOOD, PRUN, User};

/// Everything in the working tree: bytes and modes.
fn tree(user: &User) -> BTreeMap<String, String> {
    fn walk(root: &Path, dir: &Path, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            let meta = path.symlink_metadata().unwrap();
            let text = if meta.is_symlink() {
                format!("-> {}", std::fs::read_link(&path).unwrap().display())
            } else if meta.is_dir() {
                if name != ".git" {
                    walk(root, &path, found);
                }
                "directory".to_owned()
            } else {
                format!("{:o} {:?}", meta.mode(), std::fs::read(&path).unwrap())
            };
            found.insert(name, text);
        }
    }
    let mut found = BTreeMap::new();
    walk(&user.at("repo"), &user.at("repo"), &mut found);
    found
}

/// Every kind of operation, and many of each, so that landing takes its time.
fn busy() -> User {
    let user = User::new();
    for n in 0..20 {
        user.write(&format!("repo/edit/{n}"), &format!("{n}\na\nb\nc\n"));
        user.write(&format!("repo/gone/{}/{n}", n % 3), &format!("{n}\n"));
        user.write(&format!("repo/turn{n}"), "a file\n");
        user.write(&format!("repo/dir{n}/x"), "in a directory\n");
    }
    user.git(&["add", "-A"]);
    user.git(&["commit", "-qm", "many"]);
    user.write("repo/edit/0", "0\na\nb\nc\nmine\n");
    user.write("repo/untracked", "mine\n");
    std::fs::set_permissions(user.at("repo/edit/1"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let script = format!(
        "{GOOD} for n in $(seq 0 19); do sed -i 1s/^/new/ edit/$n; mkdir -p fresh/$n; echo $n > fresh/$n/f; \
         rm turn$n; mkdir turn$n; echo y > turn$n/y; rm -r dir$n; ln -s edit dir$n; done; rm -r gone; chmod +x README"
    );
    let (code, told) = user.run("dirty = \"ignore\"", &[("u", &script)]);
    assert_eq!(code, 0, "{told}");
    user
}

/// xorshift64*: the same moments on every machine, as far as machines are alike.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit.max(1)
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Whether any landing of the run has begun: its journal says so.
fn is_landing(user: &User) -> bool {
    let runs = user.at("home/.local/state/prun/runs");
    let run = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let landings = std::fs::read_dir(run.join("landings")).into_iter().flatten().flatten();
    let phase = |dir: std::fs::DirEntry| std::fs::read_to_string(dir.path().join("phase.json")).unwrap_or_default();
    landings.map(phase).any(|phase| phase.contains("landing"))
}

#[test]
fn an_integrate_killed_at_any_moment_is_finished_or_undone() {
    let user = busy();
    let (before, git) = (tree(&user), user.git_dir());
    let said = user.ok(&["integrate", "--dry-run"]);
    let id = said.split(" · tree ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let began = Instant::now();
    user.ok(&["integrate", "--tree", &id]);
    let whole = u64::try_from(began.elapsed().as_micros()).unwrap();
    let after = tree(&user);
    assert_ne!(before, after);
    user.ok(&["undo"]);
    assert_eq!(tree(&user), before);
    let mut random = Random(number("PRUN_TEST_SEED", 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut early, mut amid, mut late) = (0, 0, 0);
    for round in 0..number("PRUN_TEST_KILLS", 12) {
        let mut child = user.command(PRUN, &["integrate", "--tree", &id]).stdout(Stdio::null()).spawn().unwrap();
        let mut until = Instant::now() + Duration::from_micros(random.below(whole + whole / 5));
        if round % 3 > 0 {
            // Landing is a small part of the whole: most kills come in it.
            while !is_landing(&user) && child.try_wait().unwrap().is_none() {}
            until = Instant::now() + Duration::from_micros(random.below(whole / 40));
        }
        while Instant::now() < until {}
        child.kill().unwrap();
        child.wait().unwrap();
        let (found, finishes) = (tree(&user), random.below(2) == 0);
        let act: &[&str] = if finishes { &["integrate", "--continue"] } else { &["undo"] };
        let (code, said) = user.prun(act);
        let now = tree(&user);
        match (code, finishes) {
            (0, true) => assert!(now == after, "round {round}: finished otherwise: {said}"),
            (0, false) => assert!(now == before, "round {round}: undone otherwise: {said}"),
            // Nothing was cut off: nothing had begun, or all was over and on record.
            _ => assert!(now == found && (now == before || now == after), "round {round} ({code}): {said}"),
        }
        match (found == before, found == after) {
            (true, _) => early += 1,
            (_, true) => late += 1,
            _ => amid += 1,
        }
        if now == after {
            user.ok(&["undo"]);
        }
        assert!(tree(&user) == before, "round {round}");
        assert!(user.git_dir() == git, "round {round}: the git directory changed");
    }
    println!("{early} before anything was changed, {amid} in the middle, {late} after all was");
    assert!(amid > 0 || number("PRUN_TEST_KILLS", 12) < 12, "no kill came in the middle");
}
