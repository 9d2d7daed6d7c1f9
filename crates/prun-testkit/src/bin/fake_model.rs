//! `fake-model --port-file FILE`: the scripted model server as a process, until it is ended.
//!
//! FILE appears, whole, once the server answers; it holds the port and a newline.

use std::path::Path;
use std::process::ExitCode;

use prun_testkit::fake_model::Server;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [flag, file] = args.as_slice() else { return usage() };
    if flag != "--port-file" {
        return usage();
    }
    let server = Server::start();
    if let Err(error) = announce(Path::new(file), server.port()) {
        return complain(&format!("cannot write {file}: {error}"));
    }
    server.run_forever();
    ExitCode::FAILURE
}

fn announce(file: &Path, port: u16) -> std::io::Result<()> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temp = tempfile::NamedTempFile::new_in(dir)?;
    std::fs::write(temp.path(), format!("{port}\n"))?;
    temp.persist(file)?;
    Ok(())
}

fn usage() -> ExitCode {
    complain("usage: fake-model --port-file FILE")
}

#[expect(clippy::print_stderr, reason = "a test tool without a printer of its own")]
fn complain(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(2)
}
