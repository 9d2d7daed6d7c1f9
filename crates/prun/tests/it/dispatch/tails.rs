//! The worker's output: bounded, kept byte for byte, and never raw on a terminal.

use std::io::Read;
use std::os::unix::fs::MetadataExt;

use prun_core::outcome::{Channel, StopReason};

use super::{Bench, wait_until};
use crate::support::terminal;

/// Bytes that a tail may hold in these tests.
const LIMIT: u64 = 4 << 20;

/// C43.
#[test]
fn a_flood_is_ended_whatever_becomes_of_its_file() {
    for before in [
        "",
        // Gone from the directory, it still grows.
        "rm ../attempt/prun-task-*/tail; ",
        "mv ../attempt/prun-task-*/tail elsewhere; echo innocent > \"$(echo ../attempt/prun-task-*)/tail\"; ",
        "rm ../attempt/prun-task-*/tail; mkfifo \"$(echo ../attempt/prun-task-*)/tail\"; ",
        "rm ../attempt/prun-task-*/tail; ln -s /dev/zero \"$(echo ../attempt/prun-task-*)/tail\"; ",
        // Half a flood is left after the end that it was asked for.
        "trap '' TERM; ",
    ] {
        let bench = Bench::new();
        let mut spec = bench.spec(&format!("{before}exec yes 0123456789"));
        spec.limits.output_bytes = Some(LIMIT);
        spec.limits.grace_millis = 60_000;
        let (code, facts) = bench.dispatch(&spec);
        assert_eq!((code, facts.stopped), (124, Some(StopReason::OutputLimit)), "{before}");
        assert!(facts.worker_millis < 20_000, "{before}: {} ms", facts.worker_millis);
        let result = facts.result.unwrap();
        assert_eq!(result.channel, Channel::Salvage);
        assert!(result.bytes > 1 << 20 && result.bytes < (1 << 20) + 4096, "{before}: {}", result.bytes);
        assert!(bench.read("result.md").ends_with("worker reaped (output-limit); exit code 124.\n"), "{before}");
    }
}

#[test]
fn a_tail_that_is_cut_all_the_time_costs_no_disk_and_may_go_on() {
    let bench = Bench::new();
    let flood = "head -c 1000000 /dev/zero; : > \"$(echo ../attempt/prun-task-*)/tail\"; ";
    let mut spec = bench.spec(&format!("for i in 1 2 3 4 5 6 7 8 9 10; do {flood}done; echo end; exit 3"));
    spec.limits.output_bytes = Some(LIMIT);
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, facts.stopped), (3, None));
    let tail = std::fs::metadata(bench.state().unwrap().join("tail")).unwrap();
    assert!(tail.size() == 4 && tail.blocks() * 512 < LIMIT, "{tail:?}");
}

/// C58: among them one line of many megabytes.
#[test]
fn any_bytes_and_lines_of_any_length_stay_as_they_were_written() {
    let bench = Bench::new();
    let odd = r"printf '\000\377\376\033]0;title\007\r\n'; ";
    let long = "head -c 30000000 /dev/zero | tr '\\0' x; echo; ";
    let (code, _) = bench.dispatch(&bench.spec(&format!("{odd}{long}echo end")));
    assert_eq!(code, 0);
    let tail = std::fs::read(bench.state().unwrap().join("tail")).unwrap();
    let head: &[u8] = b"\0\xff\xfe\x1b]0;title\x07\r\n";
    assert_eq!(&tail[..head.len()], head);
    assert_eq!(tail.len(), head.len() + 30_000_001 + 4);
    let result = std::fs::read(bench.at("result.md")).unwrap();
    assert!(result.len() < (1 << 20) + 4096 && result.ends_with(b"xx\nend\n"), "{}", result.len());
}

#[test]
fn what_a_worker_wrote_does_not_act_on_the_terminal() {
    let script = r"printf 'a\033[2Jb\033]52;c;eA==\007\177\302\233c\342\200\256d\n'; exit 5";
    let bench = Bench::new();
    let output = bench.task(script).output().unwrap();
    assert!(output.stderr.starts_with(b"a\x1b[2Jb"), "a file gets the bytes: {output:?}");
    let (terminal, side) = terminal();
    let mut child = bench.task(script).stderr(side).spawn().unwrap();
    let reader = std::thread::spawn(move || {
        let mut shown = Vec::new();
        // It ends with an error once nobody has the other side open.
        let _ = std::fs::File::from(terminal).read_to_end(&mut shown);
        shown
    });
    wait_until(|| child.try_wait().unwrap().is_some());
    let shown = reader.join().unwrap();
    let text = String::from_utf8(shown).unwrap();
    assert!(text.contains(r"a\e[2Jb\e]52;c;eA==\u{7}\u{7f}\u{9b}c\u{202e}d"), "{text:?}");
    assert!(!text.contains('\u{1b}'));
}
