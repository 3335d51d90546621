//! Converts a call of version 3 (RFC 1813) and its reply to an operation.

use super::handles::Handles;
use super::message::{Message, entries, file_handles, first, last, names};
use super::pdml::Field;
use super::version4::Context;
use crate::trace::{Kind, Operation};

/// The kind of a procedure; `None` if it does not concern a file.
fn kind(procedure: u64, call: &Message) -> Option<Kind> {
    Some(match procedure {
        1 => Kind::Stat,
        2 if first(&call.fields, Field::SetSize).is_some() => Kind::Truncate,
        2 => Kind::SetAttributes,
        3..=5 => Kind::Lookup,
        6 => Kind::Read,
        7 => Kind::Write,
        8 => Kind::Create,
        9 => Kind::MakeDirectory,
        10 | 15 => Kind::Link,
        12 | 13 => Kind::Unlink,
        14 => Kind::Rename,
        16 | 17 => Kind::ReadDirectory,
        21 => Kind::Sync,
        11 | 18..=20 => Kind::Other,
        _ => return None,
    })
}

/// Whether a procedure is one of version 3.
pub(super) fn is_known(procedure: u64) -> bool {
    procedure <= 21
}

/// The operation of a call; `reply` is `None` if the capture does not have it.
pub(super) fn operation(
    call: &Message,
    reply: Option<&Message>,
    known: &mut Handles,
    context: &Context,
) -> Option<Operation> {
    let kind = kind(call.procedure, call)?;
    let status = reply.and_then(|reply| first(&reply.fields, Field::Status));
    let failed = reply.is_some_and(|reply| reply.refused) || status.is_some_and(|status| status != 0);
    let given = file_handles(&call.fields);
    let mut directory_and_name = given
        .iter()
        .skip(usize::from(kind == Kind::Link && call.procedure == 15))
        .zip(names(&call.fields))
        .filter_map(|(handle, name)| Some((known.file(context.server, handle.bytes, handle.hash)?, name)))
        .collect::<Vec<_>>()
        .into_iter();
    let told = reply.filter(|_| !failed).map(|reply| file_handles(&reply.fields)).unwrap_or_default();
    let own =
        |known: &mut Handles| given.first().and_then(|handle| known.file(context.server, handle.bytes, handle.hash));
    let file = match (directory_and_name.next(), told.first()) {
        // The name now has a handle.
        (Some((directory, name)), Some(handle)) if matches!(call.procedure, 3 | 8..=11) => {
            known.named(context.server, directory, name, handle.bytes)
        }
        (Some(_), _) if call.procedure == 15 => own(known),
        (Some((directory, name)), _) => {
            let file = known.child(directory, name);
            match kind {
                Kind::Unlink if !failed => known.removed(directory, name),
                Kind::Rename if !failed => {
                    if let Some(to) = directory_and_name.next() {
                        known.renamed((directory, name), to);
                    }
                }
                _ => {}
            }
            file
        }
        (None, _) => own(known),
    };
    if let (Kind::ReadDirectory, Some(directory), Some(reply)) = (kind, file, reply) {
        for (name, handle) in entries(&reply.fields) {
            known.named(context.server, directory, name, handle.bytes);
        }
    }
    let mut operation = Operation {
        duration_ns: reply.map(|reply| reply.time_ns.saturating_sub(call.time_ns)),
        file,
        failed,
        ..Operation::new(call.time_ns, context.process, kind)
    };
    if failed {
        return Some(operation);
    }
    // The last attributes in the reply are those after the operation.
    let told_size = match kind {
        Kind::Stat | Kind::Read | Kind::Write | Kind::Truncate | Kind::SetAttributes | Kind::Sync => {
            reply.and_then(|reply| last(&reply.fields, Field::Size))
        }
        _ => None,
    };
    match kind {
        Kind::Read | Kind::Write => {
            operation.offset_bytes = first(&call.fields, Field::Offset);
            let moved = reply.and_then(|reply| first(&reply.fields, Field::Count));
            operation.length_bytes = moved.or_else(|| first(&call.fields, Field::Count)).unwrap_or(0);
        }
        Kind::Truncate => operation.length_bytes = first(&call.fields, Field::SetSize).unwrap_or(0),
        _ => {}
    }
    known.add_size(&mut operation, told_size);
    Some(operation)
}
