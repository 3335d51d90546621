//! The remaining work of a walk: a tree of unfinished directories, and a stack of those with children to open.
//!
//! A directory becomes a [`Node`] when it has been listed; its child directories wait as bare names inside it (a few
//! bytes each, so that a directory of a million directories costs megabytes, not hundreds). The stack is last in, first
//! out: the walk is depth-first and the unfinished part stays small. A node is removed when everything below it is
//! finished.
//!
//! Invariants: a node is on the stack if and only if it has pending names; `unfinished` = pending names + children that
//! are open and not finished + names in it that wait for a decision ([`Waiting`](super::place::Waiting)) + 1 while it
//! is listed + 1 if other processes list it too ([`Division`](super::division::Division)); a node keeps its descriptor
//! until its last child was opened, unless the budget of descriptors is used up; it is then reopened from its nearest
//! open ancestor, one name at a time (so no path is ever too long).
//!
//! The checkpoint of a paused walk is exactly this tree ([`Snapshot`]).

use crate::locks::{lock, unpoisoned};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use serde::{Deserialize, Serialize};

use super::{DirectoryLocation, Tally};

/// An unfinished directory. The node without a parent is not a directory: its children are the roots.
pub(super) struct Node<T> {
    parent: Option<Arc<Node<T>>>,
    name: Box<[u8]>,
    depth: u32,
    /// Device of the root above.
    root_device: u64,
    state: Mutex<State<T>>,
}

struct State<T> {
    descriptor: Option<Arc<Descriptor>>,
    pending: NameList,
    unfinished: u64,
    own: T,
    below: T,
}

/// Names, concatenated, each followed by a NUL (which no name can contain).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NameList(Vec<u8>);

impl NameList {
    pub(super) fn push(&mut self, name: &[u8]) {
        self.0.extend_from_slice(name);
        self.0.push(0);
    }

    fn pop(&mut self) -> Option<Box<[u8]>> {
        let body = self.0.len().checked_sub(1)?;
        let start = self.0[..body].iter().rposition(|&byte| byte == 0).map_or(0, |at| at + 1);
        let name = self.0[start..body].into();
        self.0.truncate(start);
        Some(name)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these could have been made by [`push`](Self::push); `single`: each as one component.
    fn are_names(&self, single: bool) -> bool {
        match self.0.split_last() {
            None => true,
            Some((0, names)) => names.split(|&byte| byte == 0).all(|name| is_name(name, single)),
            Some(_) => false,
        }
    }

    fn count(&self) -> u64 {
        self.0.iter().filter(|&&byte| byte == 0).count() as u64
    }
}

/// Whether `name` is valid: a path, or with `single` one component that does not lead to the parent.
fn is_name(name: &[u8], single: bool) -> bool {
    let leads_away = name == b"." || name == b".." || name.contains(&b'/');
    !(name.is_empty() || name.contains(&0) || single && leads_away)
}

/// An open directory, counted against the budget.
pub(super) struct Descriptor {
    pub(super) fd: OwnedFd,
    kept: Option<Arc<AtomicUsize>>,
}

impl Descriptor {
    pub(super) fn new(fd: OwnedFd) -> Descriptor {
        Descriptor { fd, kept: None }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(kept) = &self.kept {
            kept.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// `path`, followed by `/name`.
pub(crate) fn join(mut path: Vec<u8>, name: &[u8]) -> Vec<u8> {
    if !path.is_empty() && path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

impl<T: Tally> Node<T> {
    /// A directory that is about to be listed.
    pub(super) fn child(parent: &Arc<Node<T>>, name: Box<[u8]>, root_device: u64) -> Node<T> {
        let depth = if parent.is_top() { 0 } else { parent.depth + 1 };
        // The listing itself keeps it unfinished.
        let state = Mutex::new(State { unfinished: 1, ..State::default() });
        Node { parent: Some(parent.clone()), name, depth, root_device, state }
    }

    fn top() -> Node<T> {
        Node { parent: None, name: Box::default(), depth: 0, root_device: 0, state: Mutex::new(State::default()) }
    }
}

impl<T: Tally> Node<T> {
    /// One thing that kept the directory unfinished has ended: adds `own` to its own sums and `below` to those below
    /// it, and returns whether it is finished.
    pub(super) fn settle(&self, own: &T, below: Option<&T>) -> bool {
        let mut state = lock(&self.state);
        state.own.add(own);
        below.iter().for_each(|below| state.below.add(below));
        state.unfinished -= 1;
        state.unfinished == 0
    }
}

/// Called when everything below `node` is finished and counted: adds its sums to the parent, and continues upwards
/// while that finishes the parent. `on_finished` receives each finished directory with its own sum and the sum below
/// it, and returns what to add to its parent.
pub(super) fn finish_upwards<T: Tally>(mut node: Arc<Node<T>>, mut on_finished: impl FnMut(&Node<T>, &T, &T) -> T) {
    // The top is no directory: nothing is passed up from it.
    while let Some(parent) = node.parent.clone() {
        let (own, below) = {
            let mut state = lock(&node.state);
            (std::mem::take(&mut state.own), std::mem::take(&mut state.below))
        };
        let passed_up = on_finished(&node, &own, &below);
        if !parent.settle(&T::default(), Some(&passed_up)) {
            return;
        }
        node = parent;
    }
}

impl<T: Default> Default for State<T> {
    fn default() -> State<T> {
        State { descriptor: None, pending: NameList::default(), unfinished: 0, own: T::default(), below: T::default() }
    }
}

impl<T> Drop for Node<T> {
    /// Ancestors that only this node held are dropped in a loop, not recursively: a path of a million names must not
    /// need a million stack frames.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut node) = next.and_then(Arc::into_inner) {
            next = node.parent.take();
        }
    }
}

impl<T> Node<T> {
    pub(super) fn is_top(&self) -> bool {
        self.parent.is_none()
    }

    pub(super) fn parent(&self) -> Option<&Arc<Node<T>>> {
        self.parent.as_ref()
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(super) fn root_device(&self) -> u64 {
        self.root_device
    }

    /// Whether this is one of the roots.
    pub(super) fn is_root(&self) -> bool {
        self.parent.as_ref().is_some_and(|parent| parent.is_top())
    }

    pub(super) fn descriptor(&self) -> Option<Arc<Descriptor>> {
        lock(&self.state).descriptor.clone()
    }

    /// Keeps the directory unfinished until one more [`settle`](Self::settle).
    pub(super) fn hold(&self) {
        lock(&self.state).unfinished += 1;
    }

    /// The path from the root (inclusive), or with `below_root` from below it.
    fn assemble(&self, below_root: bool) -> Vec<u8> {
        let mut names = Vec::new();
        let mut node = self;
        while let Some(parent) = &node.parent {
            if !(below_root && parent.is_top()) {
                names.push(&node.name);
            }
            node = parent;
        }
        names.iter().rev().fold(Vec::new(), |path, name| join(path, name))
    }

    pub(super) fn path_below_root(&self) -> Vec<u8> {
        self.assemble(true)
    }
}

impl<T> DirectoryLocation for Node<T> {
    fn path(&self) -> Vec<u8> {
        self.assemble(false)
    }

    fn depth(&self) -> u32 {
        self.depth
    }
}

/// A child directory to open.
pub(super) struct Work<T> {
    pub(super) parent: Arc<Node<T>>,
    /// The parent's descriptor, if it was kept.
    pub(super) descriptor: Option<Arc<Descriptor>>,
    pub(super) name: Box<[u8]>,
}

/// The unfinished part of a walk, shared by its workers.
pub(super) struct Frontier<T> {
    shared: Mutex<Shared<T>>,
    /// Signals that work is available, or that the walk has ended.
    work: Condvar,
    /// Signals that no worker is busy.
    quiet: Condvar,
    kept: Arc<AtomicUsize>,
    kept_limit: usize,
}

struct Shared<T> {
    stack: Vec<Arc<Node<T>>>,
    /// Directories that other processes list too: only what all have found finishes them.
    divided: Divided<T>,
    busy: usize,
    /// Workers that wait for work.
    idle: usize,
    paused: bool,
    stopped: bool,
}

impl<T: Tally> Frontier<T> {
    /// Creates a frontier with the roots to open; at most `kept_limit` descriptors are kept open for their children at
    /// a time.
    pub(super) fn new(roots: NameList, kept_limit: usize) -> Frontier<T> {
        let top = Node::top();
        {
            let mut state = lock(&top.state);
            state.unfinished = roots.count();
            state.pending = roots;
        }
        let stack = if lock(&top.state).pending.is_empty() { Vec::new() } else { vec![Arc::new(top)] };
        Frontier::with(stack, Vec::new(), kept_limit)
    }

    fn with(stack: Vec<Arc<Node<T>>>, divided: Vec<Arc<Node<T>>>, kept_limit: usize) -> Frontier<T> {
        Frontier {
            shared: Mutex::new(Shared { stack, divided, busy: 0, idle: 0, paused: false, stopped: false }),
            work: Condvar::new(),
            quiet: Condvar::new(),
            kept: Arc::new(AtomicUsize::new(0)),
            kept_limit,
        }
    }

    /// Returns the next child to open; waits while other workers may still find one. `None`: the walk has ended.
    pub(super) fn next(&self) -> Option<Work<T>> {
        let mut shared = lock(&self.shared);
        loop {
            if shared.stopped {
                return None;
            }
            if !shared.paused {
                if let Some(work) = shared.pop() {
                    shared.busy += 1;
                    return Some(work);
                }
                if shared.busy == 0 {
                    self.work.notify_all();
                    self.quiet.notify_all();
                    return None;
                }
            }
            shared.idle += 1;
            shared = unpoisoned(self.work.wait(shared));
            shared.idle -= 1;
        }
    }

    /// Called when a worker has finished what [`next`](Self::next) returned.
    pub(super) fn done(&self) {
        let mut shared = lock(&self.shared);
        shared.busy -= 1;
        if shared.busy > 0 {
            return;
        }
        let exhausted = shared.stack.is_empty();
        if exhausted {
            self.work.notify_all();
        }
        // Wakes a thread that waits for quiet only when quiet will last, not after every directory.
        if exhausted || shared.paused || shared.stopped {
            self.quiet.notify_all();
        }
    }

    /// Adds a listed directory and its sums to the unfinished ones; returns whether it is finished.
    pub(super) fn listed(&self, node: &Arc<Node<T>>, descriptor: Descriptor, pending: NameList, own: &T) -> bool {
        if pending.is_empty() {
            return node.settle(own, None);
        }
        let mut state = lock(&node.state);
        state.own.add(own);
        let children = pending.count();
        // The listing has ended.
        state.unfinished += children - 1;
        state.pending = pending;
        state.descriptor = self.keep(descriptor);
        drop(state);
        let mut shared = lock(&self.shared);
        shared.stack.push(node.clone());
        // The worker that found the children takes one itself.
        let helpers = shared.idle.min(children as usize - 1);
        drop(shared);
        (0..helpers).for_each(|_| self.work.notify_one());
        false
    }

    /// Keeps a directory unfinished, because other processes list it too.
    pub(super) fn divide(&self, node: &Arc<Node<T>>) {
        node.hold();
        lock(&self.shared).divided.push(node.clone());
    }

    fn keep(&self, mut descriptor: Descriptor) -> Option<Arc<Descriptor>> {
        if self.kept.fetch_add(1, Ordering::Relaxed) < self.kept_limit {
            descriptor.kept = Some(self.kept.clone());
            Some(Arc::new(descriptor))
        } else {
            self.kept.fetch_sub(1, Ordering::Relaxed);
            None
        }
    }

    /// Lets every worker finish its current directory, waits for that, calls `observe`, then resumes.
    /// `held` are the nodes that wait for the decision on a name, `None` for a name in no directory.
    pub(super) fn paused<R, H: IntoIterator<Item = Option<Arc<Node<T>>>>>(
        &self,
        held: impl FnOnce() -> H,
        observe: impl FnOnce(Snapshot<T>) -> R,
    ) -> R {
        let mut shared = lock(&self.shared);
        shared.paused = true;
        while shared.busy > 0 {
            shared = unpoisoned(self.quiet.wait(shared));
        }
        let result = observe(Snapshot::of(&shared.stack, held(), &shared.divided));
        shared.paused = false;
        self.work.notify_all();
        result
    }

    /// Prevents workers from starting another directory.
    pub(super) fn stop(&self) {
        lock(&self.shared).stopped = true;
        self.work.notify_all();
    }

    /// Waits at most `patience` for the walk to end; returns whether it has.
    pub(super) fn wait(&self, patience: std::time::Duration) -> bool {
        let ended = |shared: &Shared<T>| shared.busy == 0 && (shared.stopped || shared.stack.is_empty());
        let shared = lock(&self.shared);
        if ended(&shared) {
            return true;
        }
        let waited = self.quiet.wait_timeout(shared, patience);
        let (shared, _) = unpoisoned(waited);
        ended(&shared)
    }

    /// Whether nothing is left to do.
    pub(super) fn is_exhausted(&self) -> bool {
        lock(&self.shared).stack.is_empty()
    }
}

impl<T> Shared<T> {
    fn pop(&mut self) -> Option<Work<T>> {
        let parent = self.stack.last()?.clone();
        let mut state = lock(&parent.state);
        let name = state.pending.pop()?;
        let descriptor = if state.pending.is_empty() {
            self.stack.pop();
            state.descriptor.take()
        } else {
            state.descriptor.clone()
        };
        drop(state);
        Some(Work { parent, descriptor, name })
    }
}

/// The directories of names that wait for a decision; `None`: a name in no directory.
pub(super) type Held<T> = Vec<Option<Arc<Node<T>>>>;

/// Directories that other processes list too.
pub(super) type Divided<T> = Vec<Arc<Node<T>>>;

/// Index of the parent of the roots in a [`Snapshot`].
const TOP: u32 = 0;

/// The unfinished part of a walk as data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Snapshot<T> {
    /// Parents before their children; the first is the parent of the roots.
    nodes: Vec<SavedNode<T>>,
    /// The stack, from bottom to top, as indices into `nodes`.
    stack: Vec<u32>,
    /// The nodes that wait for the decision on a name, once for each; [`TOP`] for a name in no directory.
    held: Vec<u32>,
    /// The nodes that other processes list too.
    divided: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SavedNode<T> {
    /// Index of the parent in `nodes`; the first node is its own parent.
    parent: u32,
    name: Box<[u8]>,
    root_device: u64,
    pending: NameList,
    unfinished: u64,
    own: T,
    below: T,
}

impl<T: Tally> Snapshot<T> {
    fn of(
        stack: &[Arc<Node<T>>],
        held: impl IntoIterator<Item = Option<Arc<Node<T>>>>,
        divided: &[Arc<Node<T>>],
    ) -> Snapshot<T> {
        let mut positions = std::collections::HashMap::new();
        let mut nodes = Vec::new();
        let held: Vec<Option<Arc<Node<T>>>> = held.into_iter().collect();
        for node in stack.iter().chain(held.iter().flatten()).chain(divided) {
            if positions.contains_key(&Arc::as_ptr(node)) {
                continue;
            }
            let mut ancestry = vec![node];
            while let Some(parent) = ancestry.last().and_then(|node| node.parent.as_ref()) {
                ancestry.push(parent);
            }
            for node in ancestry.into_iter().rev() {
                let position = nodes.len() as u32;
                if *positions.entry(Arc::as_ptr(node)).or_insert(position) == position {
                    let parent = node.parent.as_ref().map_or(position, |parent| positions[&Arc::as_ptr(parent)]);
                    nodes.push(SavedNode::of(node, parent));
                }
            }
        }
        let position = |node: &Arc<Node<T>>| positions[&Arc::as_ptr(node)];
        let stack = stack.iter().map(position).collect();
        let held = held.iter().map(|node| node.as_ref().map_or(TOP, position)).collect();
        let divided = divided.iter().map(position).collect();
        Snapshot { nodes, stack, held, divided }
    }

    /// Replaces each device number with its current one, as returned by `now`.
    pub(super) fn renumber_devices(&mut self, now: &impl Fn(u64) -> u64) {
        self.nodes.iter_mut().for_each(|node| node.root_device = now(node.root_device));
    }

    /// The sums of all unfinished directories: of their entries, and of finished directories below them.
    pub(super) fn sums(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().flat_map(|node| [&node.own, &node.below])
    }

    /// Folds the sums of all unfinished directories, deepest first, like `finish`: the calls that
    /// [`super::Visitor::finished`] would receive if nothing more were found.
    pub(super) fn fold(mut self, mut finish: impl FnMut(&Node<T>, &T, &T) -> T) {
        let restored = self.restore_nodes().expect("it was just taken from a walk");
        for (position, node) in restored.iter().enumerate().skip(1).rev() {
            let passed_up = finish(node, &self.nodes[position].own, &self.nodes[position].below);
            let parent = self.nodes[position].parent as usize;
            self.nodes[parent].below.add(&passed_up);
        }
    }

    /// Rebuilds the nodes, without their descriptors. Checks everything that a walk relies on: each parent comes first,
    /// no name leads out of its directory, and the counts of unfinished work agree with the tree. Nothing is being
    /// listed in a snapshot: the workers were paused.
    fn restore_nodes(&self) -> Result<Vec<Arc<Node<T>>>, &'static str> {
        let mut nodes: Vec<Arc<Node<T>>> = Vec::with_capacity(self.nodes.len());
        // Subdirectories and names without a decision; those that are not opened yet are counted by `pending`.
        let mut awaited = vec![0u64; self.nodes.len()];
        for (position, saved) in self.nodes.iter().enumerate() {
            let mut node = match nodes.get(saved.parent as usize) {
                _ if position == 0 => Node::top(),
                Some(parent) => {
                    awaited[saved.parent as usize] += 1;
                    Node::child(parent, saved.name.clone(), saved.root_device)
                }
                None => return Err("a directory comes before its parent, or has none"),
            };
            // A root may have a path of any length.
            let is_single = position > 0 && saved.parent != TOP;
            let named = position == 0 || is_name(&saved.name, is_single);
            if !named || !saved.pending.are_names(position > 0) {
                return Err("a name is invalid");
            }
            let state = unpoisoned(node.state.get_mut());
            state.pending = saved.pending.clone();
            state.unfinished = saved.unfinished;
            state.own = saved.own.clone();
            state.below = saved.below.clone();
            nodes.push(Arc::new(node));
        }
        for &position in self.held.iter().filter(|&&position| position != TOP) {
            *awaited.get_mut(position as usize).ok_or("a name is in a directory that does not exist")? += 1;
        }
        for &position in &self.divided {
            let awaited = awaited.get_mut(position as usize).filter(|_| position != TOP);
            *awaited.ok_or("a directory that was divided does not exist")? += 1;
        }
        for (position, (saved, awaited)) in self.nodes.iter().zip(awaited).enumerate() {
            // A directory without any would be finished, and not in the snapshot.
            if saved.unfinished != awaited + saved.pending.count() || saved.unfinished == 0 && position > 0 {
                return Err("a count of unfinished work is wrong");
            }
        }
        Ok(nodes)
    }

    /// Restores the frontier of this snapshot, and the nodes that wait for the decision on a name, as they were passed
    /// to [`Frontier::paused`]; `kept_limit` as for [`Frontier::new`].
    ///
    /// # Errors
    /// A description of the contradiction in the data.
    pub(super) fn restore(&self, kept_limit: usize) -> Result<(Frontier<T>, Held<T>), &'static str> {
        let nodes = self.restore_nodes()?;
        let mut on_stack = vec![false; nodes.len()];
        let mut stack = Vec::with_capacity(self.stack.len());
        for &position in &self.stack {
            match on_stack.get_mut(position as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err("the stack names a directory twice, or one that does not exist"),
            }
            stack.push(nodes[position as usize].clone());
        }
        if self.nodes.iter().zip(&on_stack).any(|(saved, &on_stack)| saved.pending.is_empty() == on_stack) {
            return Err("the stack does not have exactly the directories with entries to open");
        }
        let node = |&position: &u32| (position != TOP).then(|| nodes[position as usize].clone());
        let held = self.held.iter().map(node).collect();
        let divided = self.divided.iter().map(|&position| nodes[position as usize].clone()).collect();
        Ok((Frontier::with(stack, divided, kept_limit), held))
    }

    /// The snapshots of finished walks that divided their trees, as one: the same directory in several has the sums of
    /// all, and those that wait for names keep the order of the snapshots.
    ///
    /// # Errors
    /// A description of the contradiction in the data, or that a walk was not finished.
    pub(super) fn join<'s>(parts: impl IntoIterator<Item = &'s Snapshot<T>>) -> Result<Snapshot<T>, &'static str>
    where
        T: 's,
    {
        let mut joined = Snapshot { nodes: Vec::new(), stack: Vec::new(), held: Vec::new(), divided: Vec::new() };
        let mut known = std::collections::HashMap::new();
        for part in parts {
            if !part.stack.is_empty() {
                return Err("its walk was not finished");
            }
            // This checks all positions.
            part.restore_nodes()?;
            let mut positions: Vec<u32> = Vec::with_capacity(part.nodes.len());
            for (position, node) in part.nodes.iter().enumerate() {
                let parent = if position == 0 { TOP } else { positions[node.parent as usize] };
                let key = (position == 0, parent, node.name.clone());
                let at = *known.entry(key).or_insert_with(|| {
                    joined.nodes.push(SavedNode { parent, own: T::default(), below: T::default(), ..node.clone() });
                    joined.nodes.len() as u32 - 1
                });
                let sums = &mut joined.nodes[at as usize];
                sums.own.add(&node.own);
                sums.below.add(&node.below);
                positions.push(at);
            }
            joined.held.extend(part.held.iter().map(|&held| positions.get(held as usize).copied().unwrap_or(TOP)));
            joined.divided.extend(part.divided.iter().map(|&divided| positions[divided as usize]));
        }
        joined.divided.sort_unstable();
        joined.divided.dedup();
        joined.nodes.iter_mut().for_each(|node| node.unfinished = 0);
        let children = joined.nodes.iter().skip(1).map(|node| node.parent);
        let held = joined.held.iter().copied().filter(|&position| position != TOP);
        for position in children.chain(held).chain(joined.divided.iter().copied()).collect::<Vec<_>>() {
            joined.nodes[position as usize].unfinished += 1;
        }
        Ok(joined)
    }

    /// Restores the nodes that wait for the decision on a name, and those that are divided.
    ///
    /// # Errors
    /// A description of the contradiction in the data.
    pub(super) fn waiting(&self) -> Result<(Held<T>, Divided<T>), &'static str> {
        let (frontier, held) = self.restore(0)?;
        Ok((held, unpoisoned(frontier.shared.into_inner()).divided))
    }
}

impl<T: Tally> SavedNode<T> {
    fn of(node: &Node<T>, parent: u32) -> SavedNode<T> {
        let state = lock(&node.state);
        SavedNode {
            parent,
            name: node.name.clone(),
            root_device: node.root_device,
            pending: state.pending.clone(),
            unfinished: state.unfinished,
            own: state.own.clone(),
            below: state.below.clone(),
        }
    }
}
