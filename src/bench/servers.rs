//! FUSE programs of a killed run: they outlive it and hold no lock; one that had not mounted yet would mount after
//! everything else of that run was cleared away.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::file_systems::FileSystemKind;

/// Length of a process name as the kernel stores it.
const COMM_BYTES: usize = 15;
/// Time limit for a killed program to disappear.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills this user's programs that were told to serve something below a directory.
pub(super) fn end_servers(directory: &Path) {
    let found = |process: i32| serves(process, directory).unwrap_or(false);
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let servers: Vec<i32> = numbers.filter(|&process| found(process)).collect();
    for pid in servers.iter().filter_map(|&process| Pid::from_raw(process)) {
        // One that is already gone needs no signal.
        let _ = kill_process(pid, Signal::KILL);
    }
    let started = Instant::now();
    while servers.iter().any(|&process| found(process)) && started.elapsed() < PATIENCE {
        sleep(Duration::from_millis(5));
    }
}

/// Whether a process of this user serves something below a directory, which must be absolute: it is one of these
/// programs, by its name, and has such an argument, or it mounts a store. The command line of one that has ended is
/// empty.
fn serves(process: i32, directory: &Path) -> io::Result<bool> {
    let about = Path::new("/proc").join(process.to_string());
    if fs::metadata(&about)?.uid() != rustix::process::geteuid().as_raw() {
        return Ok(false);
    }
    let below = [directory.as_os_str().as_encoded_bytes(), b"/"].concat();
    let is_below = |argument: &&[u8]| argument.starts_with(&below);
    let command = fs::read(about.join("cmdline"))?;
    let arguments: Vec<&[u8]> = command.split(|&byte| byte == 0).collect();
    // The program that serves a store is this one, which is started as `/proc/self/exe`, or by an interpreter.
    if arguments.windows(3).any(|words| words[0] == b"mount" && words[1..].iter().all(is_below)) {
        return Ok(true);
    }
    let name = fs::read_to_string(about.join("comm"))?;
    let is_server = |program: &str| program.get(..program.len().min(COMM_BYTES)) == Some(name.trim_end());
    let mut programs = FileSystemKind::ALL.iter().filter_map(|kind| kind.fuse()).map(|fuse| fuse.program);
    Ok(programs.any(is_server) && arguments.iter().any(is_below))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_servers_of_that_directory_are_ended() {
        let sandbox = tempfile::tempdir().unwrap();
        let start = |name: &str, first: &[&str], serves: &str| {
            let program = sandbox.path().join(name);
            // It reports that it runs, then reads until end of file, so that it waits without a child.
            fs::write(&program, "#!/bin/sh\necho\nread -r line\n").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
            let root = sandbox.path().join(serves);
            let mut command = Command::new(&program);
            command.args(first).arg(root).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            child
        };
        let (device, home) = ("/dev/loop99", sandbox.path().join("run/0/store"));
        let mut servers = [
            start("ntfs-3g", &[device], "run/0/root"),
            start("mount.exfat-fuse", &[device], "run/0/root"),
            start("exe", &["mount", home.to_str().unwrap()], "run/0/root"),
        ];
        let mut others = [
            start("ntfs-3g.other", &[device], "run/0/root"),
            start("fusefat", &[device], "runs/0/root"),
            start("granulo", &["survey"], "run/0/root"),
        ];
        end_servers(&sandbox.path().join("run"));
        for server in &mut servers {
            assert_eq!(server.wait().unwrap().signal(), Some(9));
        }
        for other in &mut others {
            assert!(other.try_wait().unwrap().is_none());
            drop(other.stdin.take());
            other.wait().unwrap();
        }
    }
}
