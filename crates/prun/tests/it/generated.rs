//! What is made from the command line itself: completions and man pages.

use std::process::Command;

use prun_testkit::env::TestEnv;

use crate::support::PRUN;

#[test]
fn bash_completes_verbs_and_options_by_the_script() {
    let env = TestEnv::new(PRUN);
    env.write("prun.bash", env.command(&["completions", "bash"]).output().unwrap().stdout);
    let completed = |words: &str, at: usize, word: &str, before: &str| {
        let ask = format!(
            "source ./prun.bash; COMP_WORDS=({words}); COMP_CWORD={at}; _prun prun '{word}' '{before}'; \
             echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["--norc", "-c", &ask]).current_dir(env.repo()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(completed("prun integ", 1, "integ", "prun"), "integrate\n");
    assert_eq!(completed("prun integrate --dry", 2, "--dry", "integrate"), "--dry-run\n");
}

#[test]
fn each_verb_has_a_page_that_names_it_as_it_is_typed() {
    let env = TestEnv::new(PRUN);
    let printed = env.prun("man pages");
    assert_eq!(printed.code, 0, "{printed}");
    let page = |name: &str| std::fs::read_to_string(env.repo().join("pages").join(name)).unwrap();
    assert!(page("prun.1").contains("prun\\-integrate(1)"), "{}", page("prun.1"));
    for (name, typed) in [("prun-integrate.1", "\\fBprun integrate\\fR"), ("prun-ledger-rebuild.1", "rebuild\\fR")] {
        let text = page(name);
        assert!(text.contains(".SH SYNOPSIS") && text.contains(typed), "{name}: {text}");
    }
    let hidden = std::fs::read_dir(env.repo().join("pages")).unwrap().flatten();
    assert!(hidden.into_iter().all(|entry| !entry.file_name().to_string_lossy().contains("__")));
}
