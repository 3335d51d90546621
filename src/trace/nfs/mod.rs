//! NFS captures, versions 3 and 4, decoded by tshark: calls and replies, matched by XID, become operations.
//!
//! A call counts when its reply arrives, with the time at which it was sent. A call whose reply is not in the capture
//! counts as requested, at the end or after a timeout. Captures are passed to tshark as a stream and never stored.

mod handles;
mod message;
mod pdml;
mod version3;
mod version4;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::handles::Handles;
use self::message::{Assembler, Message};
use self::pdml::{Field, Token};
use self::version4::Context;
use super::input::{Input, OPERATION};
use super::program::{Program, failed};
use super::{Findings, Index, Names, Operation, Origin, Problems, Source, Trouble};
use crate::error::{Error, ErrorKind, Result};

const NFS: u64 = 100_003;
const MOUNT: u64 = 100_005;

/// A reply that has not arrived by then is treated as lost.
const LONGEST_NS: u64 = 300_000_000_000;
/// Largest number of calls that are remembered in order of time. It is small in tests, where more are sent within
/// [`LONGEST_NS`] only on purpose.
const MOST_PENDING: usize = if cfg!(test) { 1 << 9 } else { 1 << 18 };
/// Packets may be captured a little out of order.
const OVERLAP_NS: u64 = 1_000_000_000;

/// Only the required protocols are enabled: the others carry the bytes of files, which are most of a capture. Segments
/// are not reordered, since a lost one would then hold up everything after it. A client port below 1024 may belong to
/// another protocol; so traffic to the NFS port is decoded as NFS, and on other ports NFS is tried first.
const ARGUMENTS: [&str; 25] = [
    "-r",
    "-",
    "-n",
    "-T",
    "pdml",
    "-Y",
    "rpc",
    "-J",
    "ip ipv6 rpc nfs mount _ws.malformed _ws.short _ws.unreassembled",
    "-d",
    "tcp.port==2049,rpc",
    "-o",
    "tcp.try_heuristic_first:TRUE",
    "-o",
    "tcp.desegment_tcp_streams:TRUE",
    "-o",
    "tcp.reassemble_out_of_order:FALSE",
    "-o",
    "rpc.defragment_rpc_over_tcp:TRUE",
    "-o",
    "rpc.find_fragment_start:TRUE",
    "-o",
    "nfs.file_name_snooping:FALSE",
    "-o",
    "nfs.file_full_name_snooping:FALSE",
];

/// Whether a text is tshark output, so that tshark need not run.
pub(crate) fn is_pdml(head: &[u8]) -> bool {
    const TAG: &[u8] = b"<pdml";
    head.starts_with(b"<?xml") && head[..head.len().min(1000)].windows(TAG.len()).any(|window| window == TAG)
}

/// A reader of a capture.
#[derive(Debug)]
pub struct Reader {
    printed: Input,
    program: Option<Program>,
    passed_bytes: Arc<AtomicU64>,
    size_bytes: Option<u64>,
    line: Vec<u8>,
    assembler: Assembler,
    calls: Calls,
    /// Whether the output of tshark was complete.
    whole: bool,
    /// Whether the end was reached.
    ended: bool,
}

/// Calls that wait for their replies, and the results of completed ones.
#[derive(Debug)]
struct Calls {
    pending: HashMap<(u32, u32, u64), Message>,
    /// The calls in order of time; completed ones are skipped.
    order: VecDeque<(u64, (u32, u32, u64))>,
    known: Handles,
    clients: Names,
    client_index: Index,
    servers: HashMap<Vec<u8>, u32>,
    ready: VecDeque<Operation>,
    origin: Origin,
    problems: Problems,
    latest_ns: u64,
    messages: u64,
}

impl Reader {
    /// Reads a capture with tshark.
    ///
    /// # Errors
    /// If tshark is missing; errors from reading.
    pub fn new(input: Input) -> Result<Reader> {
        let path = input.path().to_owned();
        let (_, size_bytes) = input.progress();
        let passed_bytes = input.counter();
        let (program, printed) = Program::start("tshark", ARGUMENTS, Some(input), &path)?;
        Ok(Reader { program: Some(program), passed_bytes, size_bytes, ..Reader::of_pdml(printed) })
    }

    /// Reads existing output of tshark (`-T pdml`).
    pub fn of_pdml(printed: Input) -> Reader {
        let passed_bytes = printed.counter();
        let (_, size_bytes) = printed.progress();
        Reader {
            printed,
            program: None,
            passed_bytes,
            size_bytes,
            line: Vec::new(),
            assembler: Assembler::default(),
            calls: Calls::new(),
            whole: false,
            ended: false,
        }
    }

    /// At the end of the output: messages of tshark, and calls without a reply.
    fn end(&mut self) -> Result<()> {
        self.calls.expire(u64::MAX);
        if self.assembler.undated > 0 {
            let undated = self.assembler.undated;
            self.calls.problems.count_many(Trouble::Incomplete, undated, || "a packet has no time".to_owned());
        }
        let path = self.printed.path().to_owned();
        match self.program.take().map(Program::end) {
            Some(Err(words)) if self.assembler.packets == 0 => return Err(failed(&path, words)),
            Some(Err(words)) => self.calls.problems.count(Trouble::Truncated, || words),
            None if !self.whole => {
                self.calls.problems.count(Trouble::Truncated, || "the output of tshark is truncated".to_owned())
            }
            Some(Ok(())) | None if self.calls.messages == 0 => {
                return Err(Error::new(ErrorKind::NotRecognised, OPERATION, "it has no NFS calls").at(&path).advise(
                    "capture whole packets of TCP port 2049, as 'tcpdump -i any -s 0 -w FILE.pcap port 2049' does; \
                        encrypted traffic cannot be read",
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Source for Reader {
    fn next(&mut self) -> Result<Option<Operation>> {
        loop {
            if let Some(operation) = self.calls.ready.pop_front() {
                return Ok(Some(operation));
            }
            if self.ended {
                return Ok(None);
            }
            if !pdml::next(&mut self.printed, &mut self.line)? {
                self.ended = true;
                self.end()?;
                continue;
            }
            let Some(token) = pdml::token(&self.line) else { continue };
            self.whole |= token == Token::End;
            if let Some(message) = self.assembler.take(token) {
                self.calls.take(message);
            }
        }
    }

    fn findings(&self) -> Findings<'_> {
        Findings {
            files: &self.calls.known.names,
            processes: &self.calls.clients,
            origin: &self.calls.origin,
            problems: &self.calls.problems,
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.passed_bytes.load(Ordering::Relaxed), self.size_bytes)
    }
}

impl Calls {
    fn new() -> Calls {
        let mut origin = Origin::new("pcap");
        origin.notes = vec![
            "Operations are NFS calls: reads from the caches of the clients are not recorded, and the programs on a \
                client are unknown."
                .to_owned(),
        ];
        Calls {
            pending: HashMap::new(),
            order: VecDeque::new(),
            known: Handles::default(),
            clients: Names::default(),
            client_index: Index::default(),
            servers: HashMap::new(),
            ready: VecDeque::new(),
            origin,
            problems: Problems::default(),
            latest_ns: 0,
            messages: 0,
        }
    }

    fn take(&mut self, message: Message) {
        let Some(xid) = message.xid else { return };
        // tshark repeats the program and the version of a call in its reply: 0 is one whose call it has not seen.
        let is_other = !matches!(message.program, NFS | MOUNT);
        if is_other && (!message.is_reply || message.program != 0) {
            return;
        }
        if message.malformed {
            self.problems.count(Trouble::Incomplete, || format!("call {xid:#x}: only part of it was captured"));
        }
        if message.time_ns.saturating_add(OVERLAP_NS) < self.latest_ns {
            let back = (self.latest_ns - message.time_ns) as f64 / 1e9;
            self.problems.count(Trouble::ClockBackwards, || format!("call {xid:#x}, by {back:.3} s"));
        }
        self.latest_ns = self.latest_ns.max(message.time_ns);
        let (client, server) = match message.is_reply {
            false => (&message.source, &message.destination),
            true => (&message.destination, &message.source),
        };
        let Some(client) = self.client_index.number(&mut self.clients, client) else { return };
        let number = self.servers.len() as u32;
        let server = match self.servers.get(server) {
            Some(&server) => server,
            None => *self.servers.entry(server.clone()).or_insert(number),
        };
        let key = (client, server, xid);
        if message.is_reply {
            match self.pending.remove(&key) {
                Some(call) => self.complete(&call, Some(&message), client, server),
                // Its call is counted as unknown.
                None if (message.program, message.version) == (NFS, 2) => {}
                None => self
                    .problems
                    .count(Trouble::Unmatched, || format!("reply {xid:#x}, whose call is not in the capture")),
            }
            return;
        }
        self.messages += u64::from(message.program == NFS);
        if !matches!((message.program, message.version), (NFS, 3 | 4) | (MOUNT, _)) {
            self.problems.count(Trouble::UnknownCall, || format!("NFS version {}", message.version));
            return;
        }
        let time_ns = message.time_ns;
        // A retransmitted call counts once.
        self.pending.entry(key).or_insert_with(|| {
            self.order.push_back((time_ns, key));
            message
        });
        let mut expired_ns = time_ns.saturating_sub(LONGEST_NS);
        if self.order.len() > MOST_PENDING {
            // One lost reply holds the completed calls behind it. Those just sent may still get theirs.
            expired_ns = expired_ns.max(self.order[self.order.len() / 2].0);
        }
        self.expire(expired_ns);
    }

    /// Ends calls from before `before_ns` that have no reply.
    fn expire(&mut self, before_ns: u64) {
        while let Some(&(time_ns, key)) = self.order.front()
            && (time_ns < before_ns || !self.pending.contains_key(&key))
        {
            self.order.pop_front();
            // The XID may belong to another call by now.
            if self.pending.get(&key).is_some_and(|call| call.time_ns == time_ns)
                && let Some(call) = self.pending.remove(&key)
            {
                self.problems
                    .count(Trouble::Unfinished, || format!("call {:#x}, whose reply is not in the capture", key.2));
                self.complete(&call, None, key.0, key.1);
            }
        }
    }

    fn complete(&mut self, call: &Message, reply: Option<&Message>, process: u32, server: u32) {
        let context = Context { process, server };
        match (call.program, call.version) {
            (NFS, 3) => {
                if !version3::is_known(call.procedure) {
                    self.problems
                        .count(Trouble::UnknownCall, || format!("procedure {} of NFS version 3", call.procedure));
                }
                self.ready.extend(version3::operation(call, reply, &mut self.known, &context));
            }
            (NFS, _) => {
                version4::operations(call, reply, &mut self.known, &context, &mut self.problems, &mut self.ready);
            }
            _ => self.mounted(call, reply, server),
        }
    }

    /// The handle of a mounted path is where names begin.
    fn mounted(&mut self, call: &Message, reply: Option<&Message>, server: u32) {
        let path = call.fields.iter().find_map(|(field, value)| match value {
            message::Value::Bytes(path) if *field == Field::MountPath => Some(path),
            _ => None,
        });
        if let (Some(path), Some(reply)) = (path, reply)
            && let Some(handle) = message::file_handles(&reply.fields).first()
        {
            self.known.mounted(server, path, handle.bytes);
        }
    }
}

#[cfg(test)]
mod tests;
