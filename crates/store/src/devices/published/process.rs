//! Who writes: a process, which others on its machine can look for.
//!
//! Processes see each other if the machine started once for both, and they count processes and time alike (in one
//! namespace of each). Then, and only then, may one say that another has ended, or for how long it has been silent.

use std::fmt;
use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};

/// Identifies a process among all that ever were.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Process {
    /// Name of the machine, for people.
    pub host: String,
    /// What processes have in common that see each other; empty if unknown.
    pub machine: String,
    /// Its number on the machine.
    pub number: u32,
    /// When it began, in the machine's units.
    pub began: u64,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.as_str() {
            "" => write!(f, "{}", self.number),
            host => write!(f, "{} on {}", self.number, crate::units::escape(host.as_bytes())),
        }
    }
}

impl Process {
    /// This process.
    pub fn this() -> Process {
        static MACHINE: LazyLock<String> = LazyLock::new(machine);
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let number = std::process::id();
        let began = look_at(number).map_or(0, |found| found.began);
        Process { host: host.trim().to_owned(), machine: MACHINE.clone(), number, began }
    }

    /// Whether two processes see each other.
    pub fn sees(&self, other: &Process) -> bool {
        !self.machine.is_empty() && self.machine == other.machine
    }

    /// Whether both are one process, whatever its machine is called by now.
    pub(crate) fn is(&self, other: &Process) -> bool {
        (&self.machine, self.number, self.began) == (&other.machine, other.number, other.began)
    }

    /// Whether it has ended. Never if this process does not see it.
    pub fn has_ended(&self) -> bool {
        if !Process::this().sees(self) {
            return false;
        }
        let number = i32::try_from(self.number).ok().and_then(Pid::from_raw);
        let is_absent = number.is_none_or(|number| test_kill_process(number) == Err(Errno::SRCH));
        // Another one may have its number by now.
        is_absent || look_at(self.number).is_some_and(|found| found.is_dead || found.began != self.began)
    }
}

/// What processes on a machine have in common that see each other; empty if that cannot be found out.
fn machine() -> String {
    let started = fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned());
    let space = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).map(|link| link.display().to_string());
    let parts = started.and_then(|started| Ok([started, space("pid")?]));
    // Kernels without namespaces of time have one time.
    let time = space("time").unwrap_or_default();
    parts.map(|[started, processes]| format!("{started} {processes} {time}")).unwrap_or_default()
}

struct Found {
    is_dead: bool,
    began: u64,
}

/// What the system shows of a process.
fn look_at(number: u32) -> Option<Found> {
    parse(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
}

fn parse(stat: &str) -> Option<Found> {
    /// Field of the time at which a process began, after its name, which may have any characters.
    const BEGAN: usize = 19;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    // One that waits for its parent has ended.
    let is_dead = matches!(fields.next()?, "Z" | "X");
    Some(Found { is_dead, began: fields.nth(BEGAN - 1)?.parse().ok()? })
}

/// Time since the machine started, without what it slept.
pub(super) fn elapsed() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_until_it_has_ended() {
        let this = Process::this();
        assert!(this.began > 0 && this.sees(&Process::this()) && !this.has_ended());
        assert!(Process { began: this.began + 1, ..this.clone() }.has_ended(), "another one had the number");
        let unseen = Process { machine: "elsewhere".to_owned(), began: 1, ..this.clone() };
        assert!(!unseen.has_ended() && !unseen.sees(&this));
        let unknown = Process { machine: String::new(), ..this.clone() };
        assert!(!unknown.sees(&unknown) && !unknown.has_ended());

        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let began = look_at(child.id()).unwrap().began;
        let other = Process { number: child.id(), began, ..this };
        assert!(!other.has_ended());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(other.has_ended());
    }

    #[test]
    fn a_name_with_anything_in_it_is_skipped() {
        let line = "7 (a) Z 1 (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        let found = parse(line).unwrap();
        assert!(!found.is_dead && found.began == 4711);
        assert!(parse("7 (cat) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711").unwrap().is_dead);
        assert!(parse("7 (cat) S 1 2").is_none() && parse("").is_none());
    }

    #[test]
    fn time_goes_on() {
        let before = elapsed();
        assert!(before > Duration::ZERO && elapsed() >= before);
    }
}
