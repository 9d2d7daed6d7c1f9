//! What a configuration may say, and whose: a repository's tunes, the user's names programs.

use prun_testkit::env::TestEnv;

use crate::support::{PRUN, WORDS, json};

/// A user with an executor of their own, and a repository with a configuration.
fn place(repository: &str) -> TestEnv {
    let env = TestEnv::new(PRUN);
    let own = env.script("own", &format!("{WORDS}\ncat > /dev/null\necho own > own.txt; result 'by own' own.txt"));
    let user = format!("[executor.own]\nkind = \"command\"\nprogram = \"{}\"\nargs = []\nslots = 3\n", own.display());
    std::fs::write(env.at("user/config/prun/config.toml"), user).unwrap();
    env.write(".prun/config.toml", repository);
    env.write("prun.toml", "version = 1\ndirty = \"ignore\"\n[[unit]]\nid = \"a\"\nprompt = \"Do a.\"\n");
    env
}

fn slots(env: &TestEnv, name: &str) -> u64 {
    let executors = json(env, "executors --json");
    let executors = executors["executors"].as_array().unwrap();
    executors.iter().find(|executor| executor["executor"] == name).unwrap()["slots"].as_u64().unwrap()
}

#[test]
fn a_repository_chooses_among_executors_and_tunes_them_downwards() {
    let env =
        place("executors = [\"own\"]\n[executor.own]\nslots = 2\nstagger = \"1ms\"\n[executor.codex]\nslots = 99\n");
    assert_eq!((slots(&env, "own"), slots(&env, "codex")), (2, 6), "never more than the user has");
    let checked = env.prun("check");
    assert!(checked.code == 0 && checked.stdout.contains("own 2 slots"), "{checked}");
    assert_eq!(env.prun("run").code, 0);
    assert!(env.prun("diff a").stdout.contains("+own"));
}

#[test]
fn a_repository_names_no_program_no_environment_and_no_endpoint() {
    let evil = "/bin/sh";
    for (key, says) in [
        ("program", format!("[executor.codex]\nprogram = \"{evil}\"\n")),
        ("program", format!("[executor.own]\nslots = 1\nprogram = \"{evil}\"\n")),
        ("args", "[executor.codex]\nargs = [\"-c\", \"openai_base_url=\\\"http://127.0.0.1:9\\\"\"]\n".to_owned()),
        ("args", "[executor.claude]\nargs = [\"--settings\", \"evil.json\"]\n".to_owned()),
        ("env", "[executor.claude]\nenv = { ANTHROPIC_BASE_URL = \"http://127.0.0.1:9\" }\n".to_owned()),
        ("env", "[executor.own]\nenv = { LD_PRELOAD = \"evil.so\" }\n".to_owned()),
        ("model_args", "[executor.own]\nmodel_args = [\"{model}\", \"; evil\"]\n".to_owned()),
        ("account", "[executor.own]\naccount = \"codex\"\n".to_owned()),
        ("errors", "[executor.own]\nerrors = [{ class = \"auth\", pattern = \".\" }]\n".to_owned()),
        ("a repository adds none", format!("[executor.new]\nkind = \"command\"\nprogram = \"{evil}\"\n")),
        ("run beside a run", "[run]\non_done = \"touch evil\"\n".to_owned()),
        ("no executor \"new\"", "executors = [\"new\"]\n".to_owned()),
    ] {
        let env = place(&says);
        for line in ["check", "run", "run -d", "executors"] {
            let refused = env.prun(line);
            assert_eq!(refused.code, 2, "{line}: {says}: {refused}");
            assert!(refused.stderr.contains(".prun/config.toml:") && refused.stderr.contains(key), "{says}: {refused}");
        }
        assert!(env.run_ids().is_empty(), "nothing was started: {says}");
    }
}

#[test]
fn a_prompt_that_no_argument_can_hold_is_told_before_anything_starts() {
    let env = place("executors = [\"own\"]\n");
    let user = "[executor.own]\nkind = \"command\"\nprogram = \"/bin/echo\"\nargs = [\"--say={prompt}\"]\n";
    std::fs::write(env.at("user/config/prun/config.toml"), user).unwrap();
    let unit = |id: &str, bytes: usize| {
        env.write(&format!("{id}.md"), "x".repeat(bytes));
        format!("[[unit]]\nid = \"{id}\"\nprompt_file = \"{id}.md\"\n")
    };
    let plan = ["version = 1\ndirty = \"ignore\"\n".to_owned(), unit("short", 120_000), unit("long", 131_072)].concat();
    env.write("prun.toml", plan);
    for line in ["check", "run"] {
        let refused = env.prun(line);
        assert_eq!(refused.code, 2, "{refused}");
        let said = format!("{}{}", refused.stdout, refused.stderr);
        assert!(said.contains("the prompt of long: ") && said.contains("less than 128 KiB"), "{said}");
        assert!(said.contains("{prompt-file}") && !said.contains("the prompt of short"), "{said}");
    }
    assert!(env.run_ids().is_empty());
}
