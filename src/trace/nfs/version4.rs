//! Converts a call of version 4 (RFC 7530, 8881, 7862) and its reply to operations: a call is compound, and one or two
//! of its operations are its purpose.

use super::handles::{Handles, Server};
use super::message::{Fields, Message, file_handles, first, names};
use super::pdml::Field;
use crate::trace::{Kind, Operation, Problems, Trouble};

/// The peers of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    /// The client, by its number as a process.
    pub process: u32,
    /// The server, by number.
    pub server: u32,
}

mod code {
    pub(super) const ACCESS: u64 = 3;
    pub(super) const CLOSE: u64 = 4;
    pub(super) const COMMIT: u64 = 5;
    pub(super) const CREATE: u64 = 6;
    pub(super) const GETATTR: u64 = 9;
    pub(super) const GETFH: u64 = 10;
    pub(super) const LINK: u64 = 11;
    pub(super) const LOOKUP: u64 = 15;
    pub(super) const LOOKUPP: u64 = 16;
    pub(super) const OPEN: u64 = 18;
    pub(super) const PUTFH: u64 = 22;
    pub(super) const PUTPUBFH: u64 = 23;
    pub(super) const PUTROOTFH: u64 = 24;
    pub(super) const READ: u64 = 25;
    pub(super) const READDIR: u64 = 26;
    pub(super) const READLINK: u64 = 27;
    pub(super) const REMOVE: u64 = 28;
    pub(super) const RENAME: u64 = 29;
    pub(super) const RESTOREFH: u64 = 31;
    pub(super) const SAVEFH: u64 = 32;
    pub(super) const SETATTR: u64 = 34;
    pub(super) const WRITE: u64 = 38;
    pub(super) const LAYOUTGET: u64 = 50;
    pub(super) const ALLOCATE: u64 = 59;
    pub(super) const COPY: u64 = 60;
    pub(super) const DEALLOCATE: u64 = 62;
    pub(super) const READ_PLUS: u64 = 68;
    pub(super) const CLONE: u64 = 71;
    /// No version defines higher ones yet.
    pub(super) const HIGHEST: u64 = 75;
}

/// File type of directories (NF4DIR).
const DIRECTORY: u64 = 2;

/// One operation of a call, or its result in a reply.
#[derive(Debug, Clone, Copy)]
struct CompoundPart<'a> {
    opcode: u64,
    fields: Fields<'a>,
}

fn parts(message: &Message) -> Vec<CompoundPart<'_>> {
    let fields = &message.fields;
    let starts: Vec<usize> = (0..fields.len()).filter(|&at| fields[at].0 == Field::Opcode).collect();
    let ends = starts.iter().skip(1).copied().chain([fields.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| CompoundPart {
            opcode: first(&fields[start..], Field::Opcode).unwrap_or(0),
            fields: &fields[start + 1..end],
        })
        .collect()
}

/// The kind of an operation; `None` if it only prepares others.
fn kind(part: &CompoundPart<'_>) -> Option<Kind> {
    Some(match part.opcode {
        code::ACCESS | code::LOOKUP | code::LOOKUPP | code::READLINK => Kind::Lookup,
        code::CLOSE => Kind::Close,
        code::COMMIT => Kind::Sync,
        code::CREATE if first(part.fields, Field::FileType) == Some(DIRECTORY) => Kind::MakeDirectory,
        code::CREATE | code::LINK => Kind::Link,
        code::GETATTR => Kind::Stat,
        code::OPEN if first(part.fields, Field::OpenType) == Some(1) => Kind::Create,
        code::OPEN => Kind::Open,
        code::READ | code::READ_PLUS => Kind::Read,
        code::READDIR => Kind::ReadDirectory,
        code::REMOVE => Kind::Unlink,
        code::RENAME => Kind::Rename,
        code::SETATTR if first(part.fields, Field::Size).is_some() => Kind::Truncate,
        code::SETATTR => Kind::SetAttributes,
        code::WRITE => Kind::Write,
        code::ALLOCATE | code::DEALLOCATE => Kind::Allocate,
        code::COPY | code::CLONE => Kind::Other,
        _ => return None,
    })
}

/// Whether another file is current after an operation.
fn moves(opcode: u64) -> bool {
    matches!(
        opcode,
        code::PUTFH
            | code::PUTROOTFH
            | code::PUTPUBFH
            | code::LOOKUP
            | code::LOOKUPP
            | code::OPEN
            | code::CREATE
            | code::RESTOREFH
    )
}

/// State within a call: current and saved file.
struct Walk<'a> {
    current: Option<u32>,
    saved: Option<u32>,
    replies: Vec<CompoundPart<'a>>,
}

impl Walk<'_> {
    /// Whether the operation at `at` failed, according to the reply.
    fn failed(&self, at: usize, has_reply: bool) -> bool {
        match self.replies.get(at) {
            Some(part) => first(part.fields, Field::Status).is_some_and(|status| status != 0),
            // Operations after a failed one are not attempted.
            None => has_reply,
        }
    }

    /// The handle in the reply of the file that is current after `at`.
    fn handle_after(&self, calls: &[CompoundPart<'_>], at: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let behind = (at + 1..calls.len()).take_while(|&next| !moves(calls[next].opcode));
        let next = behind.into_iter().find(|&next| calls[next].opcode == code::GETFH)?;
        let handle = file_handles(self.replies.get(next)?.fields).first().copied()?;
        Some((handle.bytes.to_vec(), handle.hash.to_vec()))
    }

    /// The size in the reply of the file that is current at `at`.
    fn size(&self, calls: &[CompoundPart<'_>], at: usize) -> Option<u64> {
        let behind = (at..calls.len()).take_while(|&next| next == at || !moves(calls[next].opcode));
        behind.into_iter().find_map(|next| first(self.replies.get(next)?.fields, Field::Size))
    }

    /// Moves to the file that is current after `at`.
    fn step(&mut self, calls: &[CompoundPart<'_>], at: usize, known: &mut Handles, server: Server) {
        let part = &calls[at];
        match part.opcode {
            code::PUTFH => {
                let handle = file_handles(part.fields).first().copied();
                self.current = handle.and_then(|handle| known.file(server, handle.bytes, handle.hash));
            }
            code::PUTROOTFH | code::PUTPUBFH => self.current = known.root(server),
            code::SAVEFH => self.saved = self.current,
            code::RESTOREFH => self.current = self.saved,
            code::LOOKUP | code::OPEN | code::CREATE => {
                let name = names(part.fields).next();
                self.current = match (self.current, name, self.handle_after(calls, at)) {
                    (Some(directory), Some(name), Some((bytes, _))) => known.named(server, directory, name, &bytes),
                    (Some(directory), Some(name), None) => known.child(directory, name),
                    (_, _, Some((bytes, hash))) => known.file(server, &bytes, &hash),
                    // Opened by handle.
                    _ if part.opcode == code::OPEN => self.current,
                    _ => None,
                };
            }
            code::LOOKUPP => {
                let handle = self.handle_after(calls, at);
                self.current = handle.and_then(|(bytes, hash)| known.file(server, &bytes, &hash));
            }
            _ => {}
        }
    }

    /// Adds what is known of the operation at `at`, which succeeded: its range, and the size of its file.
    fn complete(&self, calls: &[CompoundPart<'_>], at: usize, operation: &mut Operation, known: &mut Handles) {
        let (fields, kind) = (calls[at].fields, operation.kind);
        let result = self.replies.get(at).map(|part| part.fields).unwrap_or_default();
        match kind {
            Kind::Read | Kind::Write => {
                let done = if kind == Kind::Read { Field::DataLength } else { Field::Count };
                let asked = if kind == Kind::Read { Field::Count } else { Field::DataLength };
                operation.offset_bytes = first(fields, Field::Offset);
                operation.length_bytes = first(result, done).or_else(|| first(fields, asked)).unwrap_or(0);
            }
            Kind::Truncate => operation.length_bytes = first(fields, Field::Size).unwrap_or(0),
            _ => {}
        }
        // The size is that of a directory if the operation is on a name in it, or on the saved file.
        let told = self.size(calls, at).filter(|_| operation.file == self.current);
        known.add_size(operation, told);
    }
}

/// The operations of a call; `reply` is `None` if the capture does not have it.
pub(super) fn operations(
    call: &Message,
    reply: Option<&Message>,
    known: &mut Handles,
    context: &Context,
    problems: &mut Problems,
    ready: &mut impl Extend<Operation>,
) {
    let calls = parts(call);
    let mut walk = Walk { current: None, saved: None, replies: reply.map(parts).unwrap_or_default() };
    // Nearly every call also asks for attributes and permissions; they are its purpose only if it asks for nothing
    // else.
    let beside = |part: &CompoundPart<'_>| matches!(part.opcode, code::GETATTR | code::ACCESS);
    let main = calls.iter().any(|part| kind(part).is_some() && !beside(part));
    let asks = calls.iter().any(|part| part.opcode == code::ACCESS);
    for (at, part) in calls.iter().enumerate() {
        let refused = reply.is_some_and(|reply| reply.refused);
        let failed = refused || walk.failed(at, reply.is_some());
        let directory = walk.current;
        walk.step(&calls, at, known, context.server);
        match part.opcode {
            code::LAYOUTGET if !failed => {
                problems.count(Trouble::NotTraced, || "layouts: reads and writes go to other servers".to_owned());
            }
            opcode if opcode > code::HIGHEST && opcode != 10_044 => {
                problems.count(Trouble::UnknownCall, || format!("operation {opcode} of NFS version 4"));
            }
            _ => {}
        }
        let Some(kind) = kind(part) else { continue };
        if beside(part) && (main || (asks && part.opcode == code::GETATTR)) {
            known.sized(walk.current, walk.size(&calls, at).filter(|_| part.opcode == code::GETATTR));
            continue;
        }
        let mut file = walk.current;
        let mut names = names(part.fields);
        match (part.opcode, directory, names.next()) {
            (code::REMOVE, Some(directory), Some(name)) => {
                file = known.child(directory, name);
                if !failed {
                    known.removed(directory, name);
                }
            }
            (code::RENAME, Some(to), Some(name)) => {
                file = walk.saved.and_then(|from| known.child(from, name));
                if let (Some(from), Some(new), false) = (walk.saved, names.next(), failed) {
                    known.renamed((from, name), (to, new));
                }
            }
            (code::LINK, ..) => file = walk.saved,
            _ => {}
        }
        let mut operation = Operation {
            duration_ns: reply.map(|reply| reply.time_ns.saturating_sub(call.time_ns)),
            file,
            failed,
            ..Operation::new(call.time_ns, context.process, kind)
        };
        if !failed {
            walk.complete(&calls, at, &mut operation, known);
        }
        ready.extend([operation]);
    }
}
