//! `guard = "mount"`: a command in a mount namespace of its own, in which the user's repository is read-only.
//!
//! The namespace is made between fork and exec, so that nothing of it is ever seen by prun itself. Root makes it
//! directly; anybody else by way of a user namespace, in which they are nobody but themselves. It keeps workers
//! from accidents, not from malice: a worker with root's rights can take the mount off again.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind_recursive, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use super::source::Source;
use crate::spec::GuardSpec;

/// What a command must not write, made ready before the fork: the child may allocate nothing.
#[derive(Debug)]
pub struct Guard {
    read_only: Vec<CString>,
    writable: Vec<CString>,
    cwd: CString,
    /// What is written into `/proc/self` to stay who one is in a new user namespace.
    uid_map: Vec<u8>,
    gid_map: Vec<u8>,
}

impl GuardSpec {
    /// The work tree of `source` and all that git keeps for it. What is in `writable` stays so.
    #[must_use]
    pub fn of(source: &Source, writable: &[PathBuf]) -> Self {
        let parts = [&source.top, &source.git_dir, &source.common_dir, &source.objects];
        let mut all: Vec<PathBuf> = parts.into_iter().map(|path| real(path)).collect();
        all.sort();
        all.dedup();
        let is_inside = |path: &Path, dirs: &[PathBuf]| dirs.iter().any(|dir| path != dir && path.starts_with(dir));
        let read_only: Vec<PathBuf> = all.iter().filter(|path| !is_inside(path, &all)).cloned().collect();
        let writable = writable.iter().map(|path| real(path)).filter(|path| is_inside(path, &read_only)).collect();
        Self { read_only, writable }
    }

    /// Tries it with a command that does nothing.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn probe(&self) -> io::Result<()> {
        // What is to be written is not there yet.
        let spec = Self { writable: Vec::new(), ..self.clone() };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", ":"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Guard::new(&spec, Path::new("/"))?.apply(&mut command);
        let status = command.status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl Guard {
    /// Makes it ready for a command that starts in `cwd`.
    ///
    /// # Errors
    /// A path cannot be told to the system, or is the root directory.
    pub fn new(spec: &GuardSpec, cwd: &Path) -> io::Result<Self> {
        if spec.read_only.iter().any(|path| path.parent().is_none()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the root directory cannot be guarded"));
        }
        let text = |path: &Path| Ok(CString::new(path.as_os_str().as_bytes())?);
        let texts = |paths: &[PathBuf]| paths.iter().map(|path| text(path)).collect::<io::Result<Vec<_>>>();
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        Ok(Self {
            read_only: texts(&spec.read_only)?,
            writable: texts(&spec.writable)?,
            cwd: text(cwd)?,
            uid_map: format!("{uid} {uid} 1\n").into_bytes(),
            gid_map: format!("{gid} {gid} 1\n").into_bytes(),
        })
    }

    /// Has `command` enter the namespace before it becomes its program.
    #[expect(unsafe_code, reason = "a namespace is entered between fork and exec")]
    pub fn apply(self, command: &mut Command) {
        // SAFETY: `enter` makes system calls alone, and allocates nothing.
        unsafe { command.pre_exec(move || self.enter()) };
    }

    /// Enters it. To be called in a child before it becomes its program; it makes system calls alone.
    ///
    /// # Errors
    /// The system does not allow it; then the program must not be started.
    pub fn enter(&self) -> io::Result<()> {
        self.unshare()?;
        // What is mounted outside still shows inside, and nothing of ours shows outside.
        mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
        for path in &self.read_only {
            mount_bind_recursive(path.as_c_str(), path.as_c_str())?;
            set_read_only(path, true)?;
            // Believed only as the kernel tells it.
            if !rustix::fs::statvfs(path.as_c_str())?.f_flag.contains(StatVfsMountFlags::RDONLY) {
                return Err(Errno::ROFS.into());
            }
        }
        for path in &self.writable {
            mount_bind_recursive(path.as_c_str(), path.as_c_str())?;
            set_read_only(path, false)?;
        }
        // The working directory that was inherited may lie below what was mounted over it.
        Ok(rustix::process::chdir(self.cwd.as_c_str())?)
    }

    fn unshare(&self) -> io::Result<()> {
        match new_namespaces(UnshareFlags::NEWNS) {
            Err(Errno::PERM) => {}
            other => return Ok(other?),
        }
        // `ENOSPC` says that there may be no more of them, not that a disk is full.
        new_namespaces(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
            .map_err(|error| if error == Errno::NOSPC { Errno::PERM } else { error })?;
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", &self.uid_map)?;
        write(c"/proc/self/gid_map", &self.gid_map)
    }
}

#[expect(unsafe_code, reason = "the child leaves the namespaces of prun")]
fn new_namespaces(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the table of descriptors is not among what is unshared.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

fn write(path: &CStr, text: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text)?;
    Ok(())
}

/// Since Linux 5.12. An older call could not change the mounts inside of one.
#[expect(unsafe_code, reason = "mount_setattr has no safe wrapper")]
fn set_read_only(path: &CStr, is_read_only: bool) -> io::Result<()> {
    let (attr_set, attr_clr) = if is_read_only { (libc::MOUNT_ATTR_RDONLY, 0) } else { (0, libc::MOUNT_ATTR_RDONLY) };
    let attributes = libc::mount_attr { attr_set, attr_clr, propagation: 0, userns_fd: 0 };
    // SAFETY: both pointers are to live values of the right type, and the size is theirs.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::testing::{Fixture, gits, left_out, user_git};

    /// What a shell says that tries to write into each of `dirs`, behind the guard.
    fn tried(spec: &GuardSpec, cwd: &Path, dirs: &[&Path]) -> String {
        let mut script = "id -u; ".to_owned();
        for dir in dirs {
            script += &format!("(: > '{}/new') 2>/dev/null && echo wrote || echo kept out; ", dir.display());
        }
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).current_dir(cwd);
        Guard::new(spec, cwd).unwrap().apply(&mut command);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    #[test]
    fn c18_nothing_of_a_repository_or_of_a_linked_worktree_can_be_written() {
        let git = &gits()[0];
        let fixture = Fixture::new(git);
        let dir = fixture.repo.parent().unwrap().to_owned();
        user_git(git, &fixture.repo, &["worktree", "add", "-q", "../linked"]);
        let linked = dir.join("linked");
        let spec = GuardSpec::of(&Source::open(git, &linked).unwrap(), &[]);
        assert_eq!(spec.read_only, [linked.clone(), fixture.repo.join(".git")]);
        if let Err(error) = spec.probe() {
            return left_out("the guard", &error);
        }
        let dirs = [linked.as_path(), &fixture.repo.join(".git/refs/heads"), &dir];
        let told = tried(&spec, &dir, &dirs);
        let uid = geteuid().as_raw();
        assert_eq!(told, format!("{uid}\nkept out\nkept out\nwrote\n"));
        std::fs::write(linked.join("mine"), "outside of the namespace nothing has changed").unwrap();
    }

    #[test]
    fn a_directory_inside_can_stay_writable_and_no_way_leads_out_of_it() {
        let git = &gits()[0];
        let fixture = Fixture::new(git);
        let inside = fixture.repo.join("home/attempt");
        std::fs::create_dir_all(&inside).unwrap();
        let outside = fixture.temp.path().to_owned();
        let spec = GuardSpec::of(&fixture.source(), &[inside.clone(), outside]);
        assert_eq!((spec.read_only.len(), spec.writable.as_slice()), (1, &[inside.clone()][..]));
        if let Err(error) = spec.probe() {
            return left_out("the guard", &error);
        }
        let told = tried(&spec, &inside, &[Path::new("."), Path::new("../.."), &fixture.repo]);
        assert!(told.ends_with("\nwrote\nkept out\nkept out\n"), "{told}");
    }

    #[test]
    fn the_root_directory_is_refused() {
        let spec = GuardSpec { read_only: vec!["/".into()], writable: vec![] };
        assert!(spec.probe().is_err());
    }
}
