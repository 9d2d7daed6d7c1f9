//! A worker whose processes try to get away from whoever ends it: `escapee KIND MARK [stay]`.
//!
//! It returns once what is to get away is there; with `stay` it says `ready` and stays itself. MARK, a file, is
//! in the command line of every process, and all of them share a lock on it but the one that closes
//! everything, so that a test can tell whether any is left. Nothing lives longer than [`LIFETIME`], whatever
//! the test does.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::poll;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper, setsid};
use rustix::time::Timespec;

/// The longest that any process of this program lives.
const LIFETIME: Duration = Duration::from_secs(120);

/// How many processes are between a worker and what it leaves behind in `intermediates`, and how many it
/// leaves behind in `storm`.
const MANY: u32 = 20;

/// Told when what is to get away is there; at the latest when it becomes another program.
struct Ready(OwnedFd);

impl Ready {
    fn say(&self) {
        // The worker may have been killed meanwhile.
        let _ = rustix::io::write(&self.0, b".");
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, mark, rest @ ..] = arguments.as_slice() else { return ExitCode::from(64) };
    let stays = rest.iter().any(|word| word == "stay");
    match run(kind, mark, stays) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is nobody else to tell.
            let _ = writeln!(io::stderr(), "escapee: {error}");
            ExitCode::from(65)
        }
    }
}

fn run(kind: &str, mark: &str, stays: bool) -> io::Result<()> {
    if kind == "linger" {
        linger();
    }
    // Handed down to everything that is started; nobody drops it.
    let held = open(mark, OFlags::CREATE | OFlags::RDWR, Mode::RUSR | Mode::WUSR)?;
    flock(&held, FlockOperation::LockShared)?;
    std::mem::forget(held);
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let ready = Ready(write);
    if fork()? {
        drop(ready);
        // A byte, or the end of the pipe.
        rustix::io::read(&read, &mut [0; 1])?;
        if !stays {
            return Ok(());
        }
        io::stdout().write_all(b"ready\n")?;
        if kind == "respawn" { respawn(&Ready(read)) } else { linger() }
    }
    drop(read);
    get_away(kind, mark, &ready)
}

/// What the child does; it does not return.
fn get_away(kind: &str, mark: &str, ready: &Ready) -> io::Result<()> {
    match kind {
        "child" => {}
        "setsid" => drop(setsid()?),
        "double-fork" => daemonise()?,
        "nohup" => ignore(&[libc::SIGHUP, libc::SIGTERM, libc::SIGINT]),
        "env-i" => {
            daemonise()?;
            let program = std::env::current_exe()?;
            return Err(Command::new(program).args(["linger", mark]).env_clear().exec());
        }
        "respawn" => {
            setsid()?;
            respawn(ready);
        }
        "hopper" => hop(ready)?,
        "stopped" => {
            setsid()?;
            ready.say();
            kill_process(getpid(), Signal::STOP)?;
        }
        "intermediates" => {
            for _ in 0..MANY {
                daemonise()?;
            }
        }
        "traced" => be_traced(ready)?,
        "thread" => leave_a_thread(ready),
        "subreaper" => {
            setsid()?;
            set_child_subreaper(Some(getpid()))?;
            if !fork()? {
                daemonise()?;
            }
        }
        "closed" => {
            daemonise()?;
            std::env::set_current_dir("/")?;
            ignore(&[libc::SIGHUP, libc::SIGTERM, libc::SIGINT]);
            ready.say();
            close_everything();
        }
        "storm" => {
            for _ in 0..MANY {
                if !fork()? {
                    setsid()?;
                    break;
                }
            }
        }
        "quiet" => be_a_quiet_child()?,
        "namespace" => enter_a_number_space()?,
        "leave-group" => {
            setsid()?;
            leave_the_group();
        }
        _ => return Err(io::Error::other(format!("no kind {kind}"))),
    }
    ready.say();
    linger()
}

/// A new session without its leader.
fn daemonise() -> io::Result<()> {
    setsid().map(drop).or_else(|error| if error == rustix::io::Errno::PERM { Ok(()) } else { Err(error) })?;
    if fork()? {
        quit();
    }
    Ok(())
}

/// Forks away all the time.
fn hop(ready: &Ready) -> io::Result<()> {
    let began = Instant::now();
    while began.elapsed() < LIFETIME {
        if fork()? {
            quit();
        }
        setsid()?;
        ready.say();
    }
    quit()
}

/// Answers every TERM with a successor in a session of its own.
fn respawn(ready: &Ready) -> ! {
    let asked = Arc::new(AtomicBool::new(false));
    let registered = signal_hook::flag::register(signal_hook::consts::SIGTERM, asked.clone());
    if registered.is_err() {
        quit();
    }
    ready.say();
    let began = Instant::now();
    while began.elapsed() < LIFETIME {
        wait(Duration::from_millis(20));
        if asked.swap(false, Ordering::Relaxed) {
            match fork() {
                Ok(false) => drop(setsid()),
                _ => quit(),
            }
        }
    }
    quit()
}

/// A process that its tracer holds stopped, and the tracer.
#[expect(unsafe_code, reason = "ptrace has no safe wrapper")]
fn be_traced(ready: &Ready) -> io::Result<()> {
    setsid()?;
    if fork()? {
        let mut status = 0;
        // SAFETY: `status` is a live variable. Without permission to trace, the stop is a plain one.
        unsafe { libc::waitpid(-1, &raw mut status, libc::WUNTRACED) };
        ready.say();
        linger();
    }
    // SAFETY: TRACEME takes no pointers.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    kill_process(getpid(), Signal::STOP)?;
    linger()
}

/// The main thread ends; the process is listed as a zombie, and lives.
#[expect(unsafe_code, reason = "only a raw system call ends the main thread alone")]
fn leave_a_thread(ready: &Ready) {
    let (say, said) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        // It ends with the main thread's half.
        let _ = said.recv_timeout(LIFETIME);
        quit();
    });
    std::mem::forget(say);
    ready.say();
    // SAFETY: `exit` ends the calling thread and touches no memory.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// A child whose end is told by no signal, which a plain `wait` does not see.
#[expect(unsafe_code, reason = "clone with these flags has no wrapper")]
fn be_a_quiet_child() -> io::Result<()> {
    // SAFETY: without CLONE_VM and with no stack this is a fork, in a program with one thread.
    match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        0 => setsid().map(drop).map_err(io::Error::from),
        _ => quit(),
    }
}

/// A process in its own space of process numbers, where the system allows it.
#[expect(unsafe_code, reason = "unshare has a wrapper only in a feature that nothing else needs")]
fn enter_a_number_space() -> io::Result<()> {
    // SAFETY: it takes no pointers.
    unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) };
    if fork()? { linger() } else { setsid().map(drop).map_err(io::Error::from) }
}

/// Moves this process out of the attempt's control group, where it may.
fn leave_the_group() {
    let listed = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = listed.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let parent = std::path::Path::new(group).parent().map_or_else(String::new, |dir| dir.display().to_string());
    for mount in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
        // Where it may not, it stays a child like any other.
        let _ = std::fs::write(format!("{mount}{parent}/cgroup.procs"), "0");
    }
}

#[expect(unsafe_code, reason = "dispositions have no safe wrapper")]
fn ignore(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: SIG_IGN is a valid disposition.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

#[expect(unsafe_code, reason = "it closes descriptors that nothing here uses any more")]
fn close_everything() {
    // SAFETY: nothing is read, written or dropped after this; `linger` needs no descriptor.
    unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
    linger();
}

/// Whether this is the parent.
#[expect(unsafe_code, reason = "a worker forks without becoming another program")]
fn fork() -> io::Result<bool> {
    // SAFETY: this program has one thread wherever it forks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid).is_some()),
    }
}

/// Leaves without destructors, as a fork should.
#[expect(unsafe_code, reason = "there is no safe _exit")]
fn quit() -> ! {
    // SAFETY: it runs no code of this process.
    unsafe { libc::_exit(0) }
}

fn linger() -> ! {
    let began = Instant::now();
    while began.elapsed() < LIFETIME {
        wait(LIFETIME);
    }
    quit()
}

fn wait(time: Duration) {
    if let Ok(timeout) = Timespec::try_from(time) {
        let _ = poll(&mut [], Some(&timeout));
    }
}
