//! Processes on machines, with one time that passes only while one of them waits.
//!
//! What a process wants to do beside everything else, its heartbeats, it does in the second in which it is due, unless
//! it sleeps or has ended. Nothing runs at once with anything else.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::devices::published::{Machine, Process, Surroundings};
use crate::error::Result;
use crate::locks::lock;

/// What time passes by.
const STEP: Duration = Duration::from_secs(1);

type Call = Box<dyn FnMut() -> bool + Send>;

/// A process calls something again and again.
struct Due {
    interval: Duration,
    next: Duration,
    call: Call,
}

/// All machines.
#[derive(Default)]
pub(crate) struct Machines {
    milliseconds: AtomicU64,
    processes: Mutex<Vec<Weak<SimulatedProcess>>>,
}

impl Machines {
    pub(crate) fn now(&self) -> Duration {
        Duration::from_millis(self.milliseconds.load(Ordering::Relaxed))
    }

    /// A new process on a machine.
    pub(crate) fn process(self: &Arc<Self>, host: &str) -> Arc<SimulatedProcess> {
        let mut processes = lock(&self.processes);
        let mut process = Process::default();
        (process.number, process.began) = (processes.len() as u32 + 1, 1);
        (process.host, process.machine) = (host.to_owned(), format!("machine {host}"));
        let (is_asleep, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let process =
            SimulatedProcess { machines: Arc::clone(self), process, is_asleep, has_ended, due: Mutex::default() };
        let process = Arc::new(process);
        processes.push(Arc::downgrade(&process));
        process
    }

    /// Lets time pass, and the processes do what is due meanwhile.
    pub(crate) fn pass(&self, time: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            let now = end.min(self.now() + STEP);
            self.milliseconds.store(now.as_millis() as u64, Ordering::Relaxed);
            let processes: Vec<_> = lock(&self.processes).iter().filter_map(Weak::upgrade).collect();
            processes.iter().for_each(|process| process.do_what_is_due());
        }
    }
}

/// A process: it runs, sleeps, or has ended.
pub(crate) struct SimulatedProcess {
    machines: Arc<Machines>,
    process: Process,
    is_asleep: AtomicBool,
    has_ended: AtomicBool,
    due: Mutex<Vec<Due>>,
}

impl fmt::Debug for SimulatedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.process)
    }
}

impl SimulatedProcess {
    /// All machines, and their time.
    pub(crate) fn machines(&self) -> &Arc<Machines> {
        &self.machines
    }

    /// From now on, it does nothing beside what the test lets it do.
    pub(crate) fn sleep(&self) {
        self.is_asleep.store(true, Ordering::Relaxed);
    }

    /// It goes on.
    pub(crate) fn wake(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// From now on, it does nothing, and others on its machine see that.
    pub(crate) fn kill(&self) {
        self.sleep();
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn do_what_is_due(&self) {
        if self.is_asleep.load(Ordering::Relaxed) {
            return;
        }
        let now = self.machines.now();
        let mut due = std::mem::take(&mut *lock(&self.due));
        due.retain_mut(|due| {
            if due.next > now {
                return true;
            }
            due.next = now + due.interval;
            (due.call)()
        });
        lock(&self.due).append(&mut due);
    }
}

impl Surroundings for SimulatedProcess {
    fn random(&self) -> Result<u64> {
        Machine::default().random()
    }

    fn now_nanoseconds(&self) -> i64 {
        self.machines.now().as_nanos() as i64
    }

    fn wait(&self, _attempts: u32) -> bool {
        false
    }

    fn elapsed(&self) -> Duration {
        self.machines.now()
    }

    fn pause(&self, time: Duration) {
        self.machines.pass(time);
    }

    fn process(&self) -> Process {
        self.process.clone()
    }

    fn has_ended(&self, process: &Process) -> bool {
        let processes: Vec<_> = lock(&self.machines.processes).iter().filter_map(Weak::upgrade).collect();
        let found = processes.iter().find(|found| found.process == *process);
        self.process.sees(process) && found.is_none_or(|found| found.has_ended.load(Ordering::Relaxed))
    }

    fn keep_calling(&self, interval: Duration, call: Call) {
        lock(&self.due).push(Due { interval, next: self.machines.now() + interval, call });
    }
}

/// A process on a machine of its own, where every other one has ended, and without patience.
#[derive(Debug)]
struct Survivor {
    machine: Machine,
    number: u64,
}

/// A new one.
pub(crate) fn survivor() -> Arc<dyn Surroundings> {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let machine = Machine { attempts: 1, ..Machine::default() };
    Arc::new(Survivor { machine, number: NUMBERS.fetch_add(1, Ordering::Relaxed) })
}

impl Surroundings for Survivor {
    fn random(&self) -> Result<u64> {
        self.machine.random()
    }

    fn now_nanoseconds(&self) -> i64 {
        self.machine.now_nanoseconds()
    }

    fn wait(&self, attempts: u32) -> bool {
        self.machine.wait(attempts)
    }

    fn process(&self) -> Process {
        Process { began: self.number, ..Process::default() }
    }

    fn has_ended(&self, process: &Process) -> bool {
        *process != self.process()
    }

    fn keep_calling(&self, _interval: Duration, _call: Call) {}
}
