//! What a load reads, and in which order: ranges of segments, planned from the index in bounded memory.
//!
//! Keys that are adjacent on disk are planned as they come; others wait in a [`LoadWindow`] and follow in disk order,
//! in several passes if they exceed its size. So every wanted record is planned once, whatever the order.

use crate::format::ids::{LogOffset, SegmentNumber};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use crate::access::gather::{Joining, Span, Wanted, sort, spans};
use crate::access::walk::Walk;
use crate::engine::Engine;
use crate::engine::pins::Pin;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::{Entry, Kind};
use crate::format::index_key::object_key;
use crate::format::key::Key;
use crate::index::{Scan, Snapshot};

/// Bounds of one read: larger ones leave the processor's cache before they are verified.
const JOINING: Joining = Joining { gap_bytes: 64 << 10, longest_bytes: 1 << 20 };
/// Consecutive keys that are tested together for being adjacent on disk.
const RUN_KEYS: usize = 1024;
/// Places that are gathered before they are sorted: 40 bytes each.
const WINDOW_RECORDS: usize = 1 << 19;

/// What is to be loaded: a pinned state of the index.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) snapshot: Snapshot,
    top: Key,
    pub(super) pin: Pin,
}

/// A range to read.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) span: Span,
    pub(super) wanted: Vec<Wanted>,
    pub(super) turn: usize,
}

impl Engine {
    pub(super) fn scope(&self, top: &Key) -> Result<Scope> {
        let (pin, view) = self.pinned()?;
        let snapshot = view.snapshot();
        if !top.is_root() && snapshot.look_up_path(top.stored())?.is_none() {
            return Err(Error::new(ErrorKind::NotFound, "load", "no such object").at(&top.to_path()));
        }
        Ok(Scope { snapshot, top: top.clone(), pin })
    }
}

/// Records that are not adjacent on disk, in passes of bounded size.
#[derive(Debug, Default)]
struct LoadWindow {
    /// Earlier passes had the places before this.
    from: (SegmentNumber, LogOffset),
    /// Later passes have the places from here on.
    until: Option<(SegmentNumber, LogOffset)>,
    wanted: Vec<Wanted>,
}

fn at(wanted: &Wanted) -> (SegmentNumber, LogOffset) {
    (wanted.location.segment, wanted.location.offset)
}

impl LoadWindow {
    fn add(&mut self, wanted: Wanted, most: usize) {
        if at(&wanted) < self.from || self.until.is_some_and(|until| at(&wanted) >= until) {
            return;
        }
        self.wanted.push(wanted);
        if self.wanted.len() == most {
            // Full: the half further back waits for another pass. Places differ, except for names of one file.
            let (_, middle, _) = self.wanted.select_nth_unstable_by_key(most / 2, at);
            let until = at(middle);
            self.until = Some(until);
            self.wanted.retain(|wanted| at(wanted) < until);
        }
    }
}

/// Whether consecutive keys are adjacent on disk, so that waiting for others gains nothing.
fn is_together(spans: &[Span], wanted: &[Wanted]) -> bool {
    let read: u64 = spans.iter().map(|span| span.bytes.end - span.bytes.start).sum();
    let used: u64 = wanted.iter().map(|wanted| wanted.location.record_bytes).sum();
    spans.len() as u64 <= 2 + 2 * read / JOINING.longest_bytes && read <= used + used / 4
}

/// Sends everything that is to be read, until nobody wants more.
pub(super) fn plan_all(scope: &Scope, plan: &SyncSender<Result<Planned>>, is_over: &AtomicBool) {
    let mut turn = 0;
    let mut give = |wanted: &[Wanted], spans: Vec<Span>| {
        spans.into_iter().all(|span| {
            turn += 1;
            let wanted = wanted[span.wanted.clone()].to_vec();
            !is_over.load(Ordering::Relaxed) && plan.send(Ok(Planned { span, wanted, turn })).is_ok()
        })
    };
    if let Err(error) = plan_passes(scope, WINDOW_RECORDS, &mut give) {
        let _ = plan.send(Err(error));
    }
}

/// The entries of what is to be loaded.
enum Entries {
    All(Scan),
    Below(Box<Walk>),
}

impl Entries {
    fn of(scope: &Scope) -> Result<Entries> {
        Ok(match scope.top.is_root() {
            true => Entries::All(scope.snapshot.scan_from(&[])?),
            false => Entries::Below(Box::new(Walk::from(scope.snapshot.clone(), &scope.top, &Key::root())?)),
        })
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        match self {
            Entries::All(scan) => Ok(scan.next_entry()?.map(|(_, entry)| *entry)),
            Entries::Below(walk) => walk.next_unfollowed(),
        }
    }
}

/// The tag of a record whose object has newer attributes in a record of their own.
pub(super) const ATTRIBUTES_CHANGED: u32 = 1;

fn wanted(entry: &Entry) -> Wanted {
    Wanted::new(entry, if entry.attributes_id > 0 { ATTRIBUTES_CHANGED } else { 0 })
}

/// Passes the ranges of all wanted records to `give`, until it wants no more.
fn plan_passes(scope: &Scope, most: usize, give: &mut dyn FnMut(&[Wanted], Vec<Span>) -> bool) -> Result<()> {
    let mut window = LoadWindow::default();
    for pass in 0.. {
        let mut entries = Entries::of(scope)?;
        let mut files = HashSet::new();
        let mut run: Vec<Wanted> = Vec::with_capacity(RUN_KEYS + 1);
        loop {
            let mut is_end = true;
            if let Some(entry) = entries.next()? {
                is_end = false;
                run.push(wanted(&entry));
                // When everything is loaded, files with several names are separate entries.
                if entry.kind == Kind::Link && !scope.top.is_root() && files.insert(entry.linked()) {
                    let file = scope.snapshot.look_up(&object_key(entry.linked()))?;
                    run.extend(file.iter().map(wanted));
                }
            }
            if run.len() >= RUN_KEYS || is_end {
                sort(&mut run);
                let stretches = spans(&run, JOINING);
                if !is_together(&stretches, &run) {
                    run.iter().for_each(|wanted| window.add(*wanted, most));
                } else if pass == 0 && !give(&run, stretches) {
                    return Ok(());
                }
                run.clear();
            }
            if is_end {
                break;
            }
        }
        sort(&mut window.wanted);
        let stretches = spans(&window.wanted, JOINING);
        if !give(&window.wanted, stretches) {
            return Ok(());
        }
        match window.until.take() {
            None => return Ok(()),
            Some(until) => window = LoadWindow { from: until, until: None, wanted: std::mem::take(&mut window.wanted) },
        }
        window.wanted.clear();
    }
    Ok(())
}
