//! The machine that a bench runs on, as the kernel describes it.

use std::fs;

use super::result::Host;
use crate::units::escape;

/// Describes the machine; the current load becomes the load before the run.
pub(crate) fn host() -> Host {
    Host {
        name: escape(line("/proc/sys/kernel/hostname").as_bytes()),
        kernel: line("/proc/sys/kernel/osrelease"),
        machine: std::env::consts::ARCH.to_owned(),
        cpu_model: cpu_model(&read("/proc/cpuinfo")),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
        memory_bytes: memory_bytes(&read("/proc/meminfo"), "MemTotal"),
        is_root: rustix::process::geteuid().is_root(),
        load_before: load_average(),
        load_after: 0.0,
    }
}

/// One-minute load average; 0 if the kernel does not report it.
pub(crate) fn load_average() -> f64 {
    read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// Memory that can be used without evicting other pages, in bytes: what the kernel reports as available, within the
/// limits of the memory cgroups of the process.
pub(crate) fn available_memory_bytes() -> u64 {
    let limits = read("/proc/self/cgroup");
    let left = limits.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (root, limit, used) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            list if list.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => return None,
        };
        // The limit of an ancestor counts too.
        let path = path.trim_start_matches('/');
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let groups = ends.map(|end| &path[..end]).chain([""]);
        groups.filter_map(|group| left_in(&format!("{root}/{group}"), limit, used)).min()
    });
    left.chain([memory_bytes(&read("/proc/meminfo"), "MemAvailable")]).min().unwrap_or(0)
}

/// What a cgroup's limit leaves; `None` where it has no limit.
fn left_in(directory: &str, limit: &str, used: &str) -> Option<u64> {
    let number = |name: &str| line(&format!("{directory}/{name}")).parse::<u64>().ok();
    Some(number(limit)?.saturating_sub(number(used)?))
}

fn read(path: &str) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// First line of a file of the kernel; empty if there is none.
pub(super) fn line(path: &str) -> String {
    read(path).lines().next().unwrap_or("").trim().to_owned()
}

/// A row of /proc/meminfo.
fn memory_bytes(meminfo: &str, name: &str) -> u64 {
    let row = meminfo.lines().find_map(|row| row.strip_prefix(name)?.strip_prefix(':'));
    let kib = row.and_then(|row| row.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Model of the first processor, under the field names of several architectures.
fn cpu_model(cpuinfo: &str) -> String {
    let named = |name: &str| {
        let rows = cpuinfo.lines().filter_map(|row| row.split_once(':'));
        rows.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned()).next()
    };
    ["model name", "Model", "cpu model", "cpu", "Hardware", "uarch", "CPU part"]
        .iter()
        .find_map(|name| named(name))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let host = host();
        assert!(!host.kernel.is_empty() && host.cpus >= 1);
        assert!(host.memory_bytes > 1 << 20 && available_memory_bytes() <= host.memory_bytes);
    }

    #[test]
    fn rows_are_read() {
        let meminfo = "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\n";
        assert_eq!(memory_bytes(meminfo, "MemTotal"), 16 << 20);
        assert_eq!(memory_bytes(meminfo, "MemAvailable"), 8 << 20);
        assert_eq!(memory_bytes(meminfo, "Mem"), 0);
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: A: fast one\nmodel name\t: B\n"), "A: fast one");
        assert_eq!(cpu_model(""), "");
    }
}
