//! The plan of a chaotic run: workers that are quick, slow, deaf, flaky, and that leave something behind.

use std::fmt::Write as _;

/// What every worker does first and last: it says so in the journal, after a look whether an earlier
/// process of its unit still lives.
const BEGIN: &str = r#"
journal=$CHAOS_JOURNAL
while read -r what unit attempt pid; do
    [ "$what" = start ] && [ "$unit" = "$PRUN_UNIT" ] && [ "$pid" != $$ ] || continue
    if tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "PRUN_UNIT=$unit"; then
        echo "overlap $unit $attempt $PRUN_ATTEMPT" >>"$journal"
    fi
done <"$journal"
echo "start $PRUN_UNIT $PRUN_ATTEMPT $$" >>"$journal"
"#;

const END: &str = r##"
printf '# %s result\nConclusion: done\nFiles: none\nOpen items: none\nVerification: none\n' "$PRUN_UNIT" >"$PRUN_RESULT"
echo "stop $PRUN_UNIT $PRUN_ATTEMPT $$" >>"$journal"
"##;

const SLOW: &str = "for n in 1 2 3 4 5 6; do echo $n; sleep 0.12; done; echo slow >>$PRUN_UNIT.txt";
const SETSID: &str = r#"setsid sh -c 'echo "start $PRUN_UNIT $PRUN_ATTEMPT $$" >>"$CHAOS_JOURNAL"; exec sleep 600' &
sleep 0.3; echo a >$PRUN_UNIT.txt"#;
const FLAKY: &str = r#"[ "$PRUN_ATTEMPT" != 1 ] || exit 9; echo b >flaky.txt"#;
const STUBBORN: &str = "trap '' TERM; sleep 0.5; echo c >stubborn.txt";
const COMMITS: &str =
    "echo d >committed.txt; git add . && git -c user.name=a -c user.email=a@b commit -qm x; sleep 0.2";

/// The run's check; it leaves something behind.
const CHECK: &str = r#"setsid sh -c 'echo "start $PRUN_UNIT $PRUN_ATTEMPT $$" >>"$CHAOS_JOURNAL"; exec sleep 600' &
sleep 0.3"#;

/// The units: name, mode, what the worker does.
const UNITS: &[(&str, &str, &str)] = &[
    ("quick-1", "write", "echo 1 >q1.txt"),
    ("slow-1", "write", SLOW),
    ("setsid-1", "write", SETSID),
    ("flaky", "write", FLAKY),
    ("slow-2", "write", SLOW),
    ("stubborn", "write", STUBBORN),
    ("quick-2", "write", "echo 2 >>src/two.txt"),
    ("reader-1", "read", "ls repo >/dev/null; sleep 0.2"),
    ("commits", "write", COMMITS),
    ("setsid-2", "write", SETSID),
    ("reader-2", "read", "sleep 0.4"),
    ("quick-3", "write", "rm src/one.txt"),
];

/// The files that the run changes, below the repository.
pub(super) const CHANGED: &[&str] = &[
    "committed.txt",
    "flaky.txt",
    "q1.txt",
    "setsid-1.txt",
    "setsid-2.txt",
    "slow-1.txt",
    "slow-2.txt",
    "src/one.txt",
    "src/two.txt",
    "stubborn.txt",
];

/// The names of the units.
pub(super) fn units() -> impl Iterator<Item = &'static str> {
    UNITS.iter().map(|(name, ..)| *name)
}

/// The text of the plan, for a repository at `../repo`.
pub(super) fn text() -> String {
    // The dispatchers' deaths spend retries; the plan has some to spare.
    let verify = format!(r#"["env", "PRUN_UNIT=check", "PRUN_ATTEMPT=0", "sh", "-c", '''{BEGIN}{CHECK}''']"#);
    let mut text = format!(
        "version = 1\ntitle = \"chaos\"\nrepo = \"../repo\"\ndirty = \"include\"\njobs = 6\n\
         verify = {verify}\n[defaults]\nexecutor = \"command\"\nretries = 9\ntimeout = \"2m\"\n"
    );
    for (name, mode, work) in UNITS {
        write!(text, "[[unit]]\nid = \"{name}\"\nmode = \"{mode}\"\nprompt = \"work\"\n").expect("a text takes it");
        write!(text, "command = '''{BEGIN}\n{work}\n{END}'''\n").expect("a text takes it");
    }
    text
}
