//! The real Codex, started as prun starts it, against the scripted model: are the flags, the event
//! stream and the error classes still what prun takes them for?

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use prun_core::outcome::{Cause, FinalEvent};
use prun_engine::executor::launch::{LAST_MESSAGE, launch_with};
use prun_engine::executor::preflight::{self, Login};
use prun_engine::executor::stream::{Activity, StreamReader, StreamSummary};
use prun_engine::executor::{Executor, LaunchRequest, Registry};
use prun_testkit::clients::{self, client_home, codex_config, codex_env};
use prun_testkit::fake_model::{Server, Step, directive};
use tempfile::TempDir;

/// A Codex with a home and a working directory of its own.
struct Codex {
    executor: Executor,
    home: TempDir,
    work: TempDir,
}

/// How it ended and what it said.
struct Ended {
    status: ExitStatus,
    summary: StreamSummary,
    activities: Vec<Activity>,
    last_message: String,
}

impl Codex {
    /// `None` where the client is not installed: the test is skipped then.
    fn at(server: &Server) -> Option<Self> {
        let config = codex_config(&clients::codex()?, server);
        let registry = Registry::built_in(2).with_config(&config, Path::new("config.toml"), 2).unwrap();
        let executor = registry.get(&"codex".parse().unwrap()).unwrap().clone();
        Some(Self { executor, home: client_home(), work: tempfile::tempdir().unwrap() })
    }

    fn start(&self, prompt: &str, request: &LaunchRequest<'_>) -> Child {
        let worker = launch_with(&self.executor, request, |name| std::env::var_os(name).filter(|_| name == "PATH"));
        let worker = worker.unwrap().unwrap();
        assert!(worker.argv[0].ends_with("bin/codex"), "the native program is run, not {}", worker.argv[0]);
        let last_message = self.last_message().to_str().unwrap().to_owned();
        let args = worker.argv[1..].iter().map(|arg| if arg == LAST_MESSAGE { &last_message } else { arg });
        let mut child = Command::new(&worker.argv[0])
            .args(args)
            .env_clear()
            .envs(codex_env(self.home.path()))
            .current_dir(self.work.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(prompt.as_bytes()).unwrap();
        child
    }

    fn end(&self, child: Child) -> Ended {
        let output = child.wait_with_output().unwrap();
        let mut reader = StreamReader::new(self.executor.stream);
        let activities = reader.feed(&output.stdout);
        let last_message = std::fs::read_to_string(self.last_message()).unwrap_or_default();
        Ended { status: output.status, summary: reader.summary().clone(), activities, last_message }
    }

    fn run(&self, prompt: &str, request: &LaunchRequest<'_>) -> Ended {
        self.end(self.start(prompt, request))
    }

    fn last_message(&self) -> PathBuf {
        self.home.path().join("last-message")
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.work.path().join(name)).unwrap_or_default()
    }
}

fn prompt(steps: &[Step]) -> String {
    format!("Do what the model says.\n\n{}\n", directive(steps))
}

#[test]
fn codex_edits_a_file_with_its_own_shell_tool() {
    let server = Server::start();
    let Some(codex) = Codex::at(&server) else { return };
    let steps = [Step::sh("echo hello > greeting.txt"), Step::text("Wrote the greeting.")];
    let request = LaunchRequest { effort: Some("low"), ..LaunchRequest::default() };
    let ended = codex.run(&prompt(&steps), &request);
    assert!(ended.status.success(), "{:?}", ended.activities);
    assert_eq!(codex.file("greeting.txt"), "hello\n");
    let summary = ended.summary;
    assert_eq!((summary.final_event, &summary.error), (FinalEvent::Completed, &None));
    assert_eq!(summary.message.as_deref(), Some("Wrote the greeting."));
    assert_eq!(ended.last_message, "Wrote the greeting.");
    // Two answers of 100 and 10 tokens each.
    assert_eq!(summary.usage.map(|usage| (usage.input_tokens, usage.output_tokens)), Some((200, 20)));
    assert!(summary.session.is_some());
    let shown: Vec<&str> = ended.activities.iter().map(|activity| activity.line.as_deref().unwrap_or("")).collect();
    assert!(shown.contains(&"$ echo hello > greeting.txt"), "{shown:?}");
    assert!(shown.contains(&"exit 0: echo hello > greeting.txt"), "{shown:?}");
}

#[test]
fn models_that_call_tools_by_code_edit_files_too() {
    let server = Server::start();
    let Some(codex) = Codex::at(&server) else { return };
    let request = LaunchRequest { model: Some("gpt-6.2-sol"), ..LaunchRequest::default() };
    let ended = codex.run(&prompt(&[Step::sh("echo \"it's\" > a.txt"), Step::text("Done.")]), &request);
    assert_eq!((codex.file("a.txt").as_str(), ended.summary.final_event), ("it's\n", FinalEvent::Completed));
}

#[test]
fn a_spent_usage_limit_is_reported_with_its_reset_time() {
    let server = Server::start();
    let Some(codex) = Codex::at(&server) else { return };
    let now = jiff::Timestamp::now().as_second();
    let in_two_hours = now + 2 * 3600;
    let ended = codex.run(&prompt(&[Step::usage_limit(in_two_hours)]), &LaunchRequest::default());
    assert_eq!(ended.status.code(), Some(1));
    let summary = ended.summary.with_reset_time(&jiff::ZonedDateTime::now());
    assert_eq!(summary.final_event, FinalEvent::Failed);
    let error = summary.error.unwrap();
    assert_eq!(error.class, Cause::UsageLimit, "{}", error.message);
    let resets_at = error.resets_at.unwrap().0 / 1000;
    assert!((in_two_hours..=in_two_hours + 60).contains(&resets_at), "{} is {resets_at}", error.message);
    assert_eq!(server.requests(), 1);
}

#[test]
fn a_refused_key_is_an_auth_error() {
    let server = Server::start();
    let Some(codex) = Codex::at(&server) else { return };
    let ended = codex.run(&prompt(&[Step::status(401)]), &LaunchRequest::default());
    assert_eq!(ended.summary.error.map(|error| error.class), Some(Cause::Auth));
    let retries: Vec<&Activity> = ended
        .activities
        .iter()
        .filter(|activity| activity.line.as_deref().unwrap_or("").starts_with("Reconnecting"))
        .collect();
    assert!(!retries.is_empty() && retries.iter().all(|activity| !activity.is_progress), "{:?}", ended.activities);
}

#[test]
fn a_thread_goes_on_where_it_was() {
    let server = Server::start();
    let Some(codex) = Codex::at(&server) else { return };
    let first = codex.run(&prompt(&[Step::text("First.")]), &LaunchRequest::default());
    let thread = first.summary.session.unwrap();
    let request = LaunchRequest { resume: Some(&thread), ..LaunchRequest::default() };
    let second = codex.run(&prompt(&[Step::sh("echo more > more.txt"), Step::text("Second.")]), &request);
    assert!(second.status.success(), "{:?}", second.activities);
    assert_eq!(second.summary.session.as_deref(), Some(thread.as_str()));
    assert_eq!((second.last_message.as_str(), codex.file("more.txt").as_str()), ("Second.", "more\n"));
    // Tokens are totals of the thread, over all its turns.
    assert_eq!(second.summary.usage.map(|usage| usage.input_tokens), Some(300));
}

#[test]
fn a_feature_that_a_version_does_not_have_is_only_a_warning() {
    let server = Server::start();
    let Some(mut codex) = Codex::at(&server) else { return };
    codex.executor.args.extend(["-c".to_owned(), "features.of_another_version=false".to_owned()]);
    let ended = codex.run(&prompt(&[Step::text("Done.")]), &LaunchRequest::default());
    assert_eq!((ended.summary.final_event, ended.summary.error), (FinalEvent::Completed, None));
    assert!(
        ended.activities.iter().any(|activity| activity.line.as_deref().unwrap_or("").starts_with("warning: ")),
        "{:?}",
        ended.activities
    );
}

#[test]
fn workers_with_scripts_of_their_own_share_one_server() {
    let server = Server::start();
    let workers: Vec<Codex> = (0..3).filter_map(|_| Codex::at(&server)).collect();
    let start = |(at, codex): (usize, &Codex)| {
        let steps = [Step::sh(format!("echo {at} > n.txt")), Step::text(format!("Done {at}."))];
        codex.start(&prompt(&steps), &LaunchRequest::default())
    };
    let children: Vec<Child> = workers.iter().enumerate().map(start).collect();
    for (at, (codex, child)) in workers.iter().zip(children).enumerate() {
        let ended = codex.end(child);
        assert_eq!(ended.summary.message, Some(format!("Done {at}.")));
        assert_eq!(codex.file("n.txt"), format!("{at}\n"));
    }
}

#[test]
fn the_pinned_codex_is_a_version_that_prun_knows() {
    let server = Server::start();
    let Some(codex) = Codex::at(&server) else { return };
    let env = codex_env(codex.home.path());
    let seen = preflight::check_with(&codex.executor, |name| {
        env.iter().find(|(key, _)| key == name).map(|(_, value)| value.into())
    });
    assert!(seen.program.unwrap().unwrap().ends_with("bin/codex"));
    assert_eq!((seen.version.is_some(), seen.login, seen.notes), (true, Login::LoggedIn, Vec::new()));
}
