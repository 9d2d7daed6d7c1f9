//! The run's socket: commands in, acknowledgements out, one JSON object a line.
//!
//! The server speaks first: a [`Hello`]. A command is answered after it took effect and is recorded.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use prun_core::supervise::{Command, Reply};
use serde::{Deserialize, Serialize};

use crate::files::{Durability, FileError, write_atomically};
use crate::home::RunDir;

/// The version of the protocol. A client of another version is told so and does nothing.
pub const PROTOCOL: u32 = 1;

/// How long a client waits for an answer. A supervisor answers within one turn, which a slow disk may stretch.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// The longest line that is read, in bytes; a retry's message is the largest thing in a command.
const LINE_LIMIT: u64 = 1 << 20;

/// The longest path of a socket, in bytes: `sun_path` has 108 with its NUL.
const LONGEST_ADDRESS: usize = 107;

/// The server's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Version of prun.
    pub version: String,
}

/// A command that somebody waits for.
#[derive(Debug)]
pub struct Request {
    /// What.
    pub command: Command,
    /// Where the answer goes.
    pub answer: Sender<Reply>,
}

/// Why a supervisor could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens: no supervisor drives this run.
    #[error("no supervisor drives this run")]
    NoSupervisor,
    /// It speaks another version of the protocol.
    #[error("the supervisor is prun {version}, which speaks another protocol")]
    Protocol {
        /// Its version.
        version: String,
    },
    /// It was there, but the connection broke before it answered.
    #[error("the supervisor did not answer: {0}")]
    Broken(std::io::Error),
}

/// The listening end, in a thread of its own. The socket file is removed when it is dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
}

impl Server {
    /// Listens for commands to `run` and hands them to `take`. Only the holder of the run's lock calls
    /// this, so a socket file that stands there is a dead supervisor's.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn start(run: &RunDir, take: impl Fn(Request) + Clone + Send + 'static) -> Result<Self, FileError> {
        let path = socket_path(run)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(FileError::at("remove the old socket", &path)(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(FileError::at("listen at", &path))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
            .map_err(FileError::at("protect", &path))?;
        let name = path.as_os_str().as_encoded_bytes();
        write_atomically(&pointer(run), name, Durability::Cached)?;
        let serve = move || {
            for stream in listener.incoming().flatten() {
                let take = take.clone();
                // A client that went away is its own concern; the command it sent may have taken effect.
                let _ = std::thread::Builder::new().name("control".into()).spawn(move || serve(stream, take));
            }
        };
        std::thread::Builder::new().name("listen".into()).spawn(serve).map_err(FileError::at("serve", &path))?;
        Ok(Self { path })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Left behind it would only be replaced by the next supervisor.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(stream: UnixStream, take: impl Fn(Request)) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    let hello = Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() };
    send(&mut writer, &hello)?;
    let mut reader = BufReader::new(stream);
    while let Some(line) = receive(&mut reader)? {
        let reply = match serde_json::from_str(&line) {
            Err(error) => Reply::Refused { message: format!("not understood: {error}"), hint: None },
            Ok(command) => {
                let (answer, answered) = channel();
                take(Request { command, answer });
                answered.recv().unwrap_or_else(|_| Reply::Refused {
                    message: "the supervisor ended before the command took effect".to_owned(),
                    hint: None,
                })
            }
        };
        send(&mut writer, &reply)?;
    }
    Ok(())
}

/// Asks the supervisor of `run` and waits until the command took effect.
///
/// # Errors
/// There is none, it is of another version, or it broke off.
pub fn ask(run: &RunDir, command: &Command) -> Result<Reply, ControlError> {
    let path = std::fs::read(pointer(run)).map_err(|_| ControlError::NoSupervisor)?;
    let path = PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(path));
    let stream = UnixStream::connect(path).map_err(|_| ControlError::NoSupervisor)?;
    let exchange = || -> std::io::Result<Result<Reply, ControlError>> {
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        let mut writer = stream.try_clone()?;
        let mut reader = BufReader::new(stream);
        let hello: Hello = parse(receive(&mut reader)?)?;
        if hello.protocol != PROTOCOL {
            return Ok(Err(ControlError::Protocol { version: hello.version }));
        }
        send(&mut writer, command)?;
        Ok(Ok(parse(receive(&mut reader)?)?))
    };
    exchange().map_err(ControlError::Broken)?
}

fn parse<T: for<'a> Deserialize<'a>>(line: Option<String>) -> std::io::Result<T> {
    let line = line.ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok(serde_json::from_str(&line)?)
}

fn send(writer: &mut impl Write, message: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    writer.write_all(&line)
}

fn receive(reader: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    let read = std::io::Read::take(reader, LINE_LIMIT).read_line(&mut line)?;
    Ok((read > 0).then_some(line))
}

/// The file that tells clients where the socket is: their environment may name another place.
fn pointer(run: &RunDir) -> PathBuf {
    run.root().join("control")
}

/// `$XDG_RUNTIME_DIR/prun/<run>.sock`, else a private directory of the user's under the temp directory, else
/// under `/tmp`: the first of them that the kernel takes as a socket's address.
fn socket_path(run: &RunDir) -> Result<PathBuf, FileError> {
    let name = format!("{}.sock", run.root().file_name().unwrap_or_default().to_string_lossy());
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute() && dir.is_dir());
    let own = format!("prun-{}", rustix::process::getuid().as_raw());
    let mut dirs: Vec<PathBuf> = runtime.map(|dir| dir.join("prun")).into_iter().collect();
    dirs.extend([std::env::temp_dir().join(&own), Path::new("/tmp").join(&own)]);
    let fits = |dir: &&PathBuf| dir.join(&name).as_os_str().len() <= LONGEST_ADDRESS;
    // The last one is short.
    let dir = dirs.iter().find(fits).unwrap_or(&dirs[dirs.len() - 1]);
    private_dir(dir)?;
    Ok(dir.join(name))
}

/// Makes `dir` with mode 0700, or takes it as it stands if it is ours alone: others may write the temp directory.
fn private_dir(dir: &Path) -> Result<(), FileError> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(FileError::at("create", dir)(error)),
    }
    let meta = std::fs::symlink_metadata(dir).map_err(FileError::at("look at", dir))?;
    let ours = meta.is_dir() && meta.uid() == rustix::process::getuid().as_raw() && meta.mode() & 0o077 == 0;
    if ours {
        return Ok(());
    }
    let error = std::io::Error::new(std::io::ErrorKind::PermissionDenied, "it is not a private directory of yours");
    Err(FileError::at("use", dir)(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prun_core::ids::Seq;

    #[test]
    fn a_command_is_answered_after_it_was_handled() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path().join("261130-000000-test"));
        std::fs::create_dir(run.root()).unwrap();
        assert!(matches!(ask(&run, &Command::Ping), Err(ControlError::NoSupervisor)));
        let server = Server::start(&run, |request| {
            let reply = Reply::Done { seq: Seq(7), message: format!("{:?}", request.command) };
            request.answer.send(reply).unwrap();
        })
        .unwrap();
        let reply = ask(&run, &Command::Ping).unwrap();
        assert_eq!(reply, Reply::Done { seq: Seq(7), message: "Ping".into() });
        let mode = std::fs::metadata(&server.path).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600);
        drop(server);
        assert!(matches!(ask(&run, &Command::Ping), Err(ControlError::NoSupervisor)));
    }

    fn place() -> (tempfile::TempDir, RunDir) {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path().join(format!("261130-000000-{}", std::process::id())));
        std::fs::create_dir(run.root()).unwrap();
        (dir, run)
    }

    #[test]
    fn a_supervisor_of_another_protocol_is_told_by_its_version_and_asked_nothing() {
        let (dir, run) = place();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        std::fs::write(pointer(&run), socket.as_os_str().as_encoded_bytes()).unwrap();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            send(&mut stream, &Hello { protocol: PROTOCOL + 1, version: "9.9".into() }).unwrap();
            let mut asked = String::new();
            std::io::Read::read_to_string(&mut stream, &mut asked).unwrap();
            asked
        });
        let said = ask(&run, &Command::Ping).unwrap_err().to_string();
        assert!(said.contains("9.9"), "{said}");
        assert_eq!(other.join().unwrap(), "");
    }

    #[test]
    fn a_dead_supervisors_socket_is_in_nobodys_way() {
        let (_dir, run) = place();
        let dead = Server::start(&run, drop).unwrap();
        let path = dead.path.clone();
        // Killed, it removes nothing.
        std::mem::forget(dead);
        std::fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        assert!(matches!(ask(&run, &Command::Ping), Err(ControlError::NoSupervisor)));
        let _next = Server::start(&run, |request| {
            request.answer.send(Reply::Done { seq: Seq(1), message: "alive".into() }).unwrap();
        })
        .unwrap();
        assert!(matches!(ask(&run, &Command::Ping), Ok(Reply::Done { .. })));
    }

    #[test]
    fn many_clients_are_served_at_once_and_each_gets_its_own_answer() {
        let (_dir, run) = place();
        let (sender, requests) = channel::<Request>();
        let _server = Server::start(&run, move |request| sender.send(request).unwrap()).unwrap();
        // One that says nothing keeps nobody waiting.
        let silent = UnixStream::connect(socket_path(&run).unwrap()).unwrap();
        let ask_for = |unit: usize| Command::Submit { unit: format!("u{unit}").parse().unwrap() };
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8)
                .map(|unit| {
                    (
                        unit,
                        scope.spawn({
                            let run = &run;
                            move || ask(run, &ask_for(unit)).unwrap()
                        }),
                    )
                })
                .collect();
            // All are there before the first is answered.
            let all: Vec<Request> = (0..8).map(|_| requests.recv().unwrap()).collect();
            for request in all {
                let reply = Reply::Done { seq: Seq(1), message: format!("{:?}", request.command) };
                request.answer.send(reply).unwrap();
            }
            for (unit, client) in clients {
                let expected = Reply::Done { seq: Seq(1), message: format!("{:?}", ask_for(unit)) };
                assert_eq!(client.join().unwrap(), expected);
            }
        });
        drop(silent);
    }
}
