//! A trace against caches and blocks of several sizes: the division of the work, and the result, `granulo/cache/1`.
//!
//! One thread takes requests from the source and checks them; each block size is a *lane*, with a pass and the
//! simulations of other policies, and the lanes are distributed to as many threads as allowed. The result does not
//! depend on their number.

use std::sync::{Arc, mpsc};
use std::thread;

use serde::{Deserialize, Serialize};

use super::curve::{Curve, Misses, References};
use super::device::Device;
use super::policy::{Cache, Policy};
use super::recorder::{BYTES_FOR_EACH_BLOCK, Recorder, Sampling, is_sampled};
use super::request::{Event, Files, Keys, Seen, Step, split};
use crate::error::Result;
use crate::progress::Progress;

/// The schema name in documents.
pub const SCHEMA: &str = "granulo/cache/1";

/// Requests per chunk.
const CHUNK: usize = 4096;
/// Most chunks that wait for a thread.
const WAITING: usize = 8;
/// Standard errors that contain 95 % of samples.
const SURE: f64 = 1.96;

/// The write policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// Written when the block is evicted, and at the end.
    Back,
    /// Written immediately.
    Through,
}

/// What to compute.
#[derive(Debug, Clone)]
pub struct StudyRequest {
    /// Block sizes, without duplicates.
    pub block_sizes_bytes: Vec<u64>,
    /// Cache sizes, without duplicates.
    pub cache_sizes_bytes: Vec<u64>,
    /// Share of the blocks that is sampled.
    pub rate: f64,
    /// Most blocks of each size that are remembered; `None` for what the memory allows.
    pub most_blocks: Option<u64>,
    /// Memory for all passes and simulations.
    pub memory_bytes: u64,
    /// Policies besides LRU.
    pub policies: Vec<Policy>,
    /// The write policy.
    pub writes: Writes,
    /// The device for misses and writes.
    pub device: Device,
    /// Time of a run without the device.
    pub base_seconds: f64,
    /// Miss ratios for which the smallest cache is requested, falling.
    pub targets: Vec<f64>,
    /// Longer requests are omitted.
    pub longest_bytes: u64,
    /// Threads that compute.
    pub threads: usize,
}

/// The result of reading a trace.
#[derive(Debug, Clone)]
pub struct TraceResult {
    /// The content of the trace.
    pub seen: Seen,
    /// Whether the trace was read to the end.
    pub complete: bool,
    /// The curve of each block size.
    pub curves: Vec<(u64, Curve)>,
    /// Other policies.
    pub policies: Vec<PolicyCell>,
}

/// The result document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version that wrote it.
    pub granulo_version: String,
    /// Commit that wrote it, with `+changed` where the tree differed from it; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granulo_commit: Option<String>,
    /// Name of the trace.
    pub trace: String,
    /// The machine that it was recorded on, if the trace says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When the study was made, RFC 3339; `None` in one by an older granulo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at: Option<String>,
    /// Whether the trace was read to the end.
    pub complete: bool,
    /// Its content.
    pub seen: Seen,
    /// Remarks on the figures.
    pub notes: Vec<String>,
    /// The write policy.
    pub writes: Writes,
    /// The device for misses and writes.
    pub device: Device,
    /// Time of a run without the device.
    pub base_seconds: f64,
    /// Cache sizes, ascending.
    pub cache_sizes_bytes: Vec<u64>,
    /// Block sizes, ascending.
    pub block_sizes: Vec<BlockSize>,
    /// The matrix.
    pub cells: Vec<Cell>,
    /// Other policies.
    pub policies: Vec<PolicyCell>,
    /// A measured matrix, if there is one.
    pub beside: Option<Beside>,
}

/// A block size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockSize {
    /// The size.
    pub block_bytes: u64,
    /// References to blocks.
    pub references: References,
    /// Different blocks.
    pub blocks: u64,
    /// Share of the references that are the first to their block.
    pub compulsory_ratio: f64,
    /// The smallest cache with compulsory misses only.
    pub enough_bytes: u64,
    /// Share of the blocks that were sampled for the curve; 1 if it is exact.
    pub rate: f64,
    /// Memory of the pass.
    pub memory_bytes: u64,
    /// The smallest cache for each requested miss ratio.
    pub targets: Vec<Target>,
    /// The curve.
    pub curve: Vec<Point>,
}

/// The smallest cache for a miss ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The miss ratio.
    pub miss_ratio: f64,
    /// The cache; `None` if no size is enough.
    pub cache_bytes: Option<u64>,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Size of the cache.
    pub cache_bytes: u64,
    /// Misses per reference.
    pub miss_ratio: f64,
}

/// A cache size and a block size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Size of the cache.
    pub cache_bytes: u64,
    /// Size of a block.
    pub block_bytes: u64,
    /// Blocks that the cache holds.
    pub cache_blocks: u64,
    /// Its misses.
    #[serde(flatten)]
    pub misses: Misses,
    /// Half-width of the 95 % confidence interval of the miss ratio; 0 if this one is exact.
    pub error_ratio: f64,
    /// Transfers that write.
    pub writes: f64,
    /// Bytes written.
    pub written_bytes: f64,
    /// Predicted time, including that without the device.
    pub seconds: f64,
}

/// Another policy with a cache size and a block size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyCell {
    /// The policy.
    pub policy: Policy,
    /// Size of the cache.
    pub cache_bytes: u64,
    /// Size of a block.
    pub block_bytes: u64,
    /// Misses per reference; `None` if it exceeded its memory.
    pub miss_ratio: Option<f64>,
}

/// A measured matrix, with the prediction for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Name of the result.
    pub name: String,
    /// The workload that was run.
    pub workload: String,
    /// Whether the time besides that of the device is chosen so that the run with the largest limit of each file system
    /// agrees.
    #[serde(default)]
    pub is_fitted: bool,
    /// Its cells.
    pub cells: Vec<BesideCell>,
}

/// A cell that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BesideCell {
    /// The file system that was measured.
    pub subject: String,
    /// The limit of memory.
    pub limit_bytes: u64,
    /// Block size of the file system.
    pub file_system_block_bytes: u64,
    /// Memory that the limit leaves for the cache.
    pub cache_bytes: u64,
    /// Unit of the cache.
    pub block_bytes: u64,
    /// Time besides that of the device, in the prediction.
    #[serde(default)]
    pub base_seconds: f64,
    /// Median time.
    pub measured_seconds: f64,
    /// Predicted time.
    pub predicted_seconds: f64,
    /// Median of the bytes that were read from the device.
    pub measured_read_bytes: u64,
    /// Predicted bytes fetched.
    pub predicted_read_bytes: u64,
}

/// A block size: its pass, its policies.
#[derive(Debug)]
struct Lane {
    block_bytes: u64,
    keys: Keys,
    recorder: Recorder,
    references: u64,
    sampling: Sampling,
    simulated: Vec<Simulated>,
    /// Memory for all simulations together.
    memory_bytes: usize,
}

#[derive(Debug)]
struct Simulated {
    policy: Policy,
    cache_bytes: u64,
    /// `None` after it exceeded its memory, or if the curve is no longer exact and a sample is requested.
    whole: Option<Simulation>,
    /// Of the requested sample; `None` if none is requested, or after it exceeded its memory.
    sampled: Option<Simulation>,
}

#[derive(Debug)]
struct Simulation {
    cache: Box<dyn Cache>,
    misses: u64,
}

impl Lane {
    fn new(request: &StudyRequest, block_bytes: u64, memory_bytes: u64) -> Lane {
        let (for_pass, for_policies) = match request.policies.len() {
            0 => (memory_bytes, 0),
            _ => (memory_bytes / 2, memory_bytes / 2),
        };
        let most_blocks = (for_pass / BYTES_FOR_EACH_BLOCK).min(request.most_blocks.unwrap_or(u64::MAX));
        let sampling = Sampling { rate: request.rate, most_blocks };
        let watched: Vec<u64> = request.cache_sizes_bytes.iter().map(|size| size / block_bytes).collect();
        let simulated = request.policies.iter().flat_map(|&policy| {
            request.cache_sizes_bytes.iter().map(move |&cache_bytes| {
                let blocks = (cache_bytes / block_bytes) as f64;
                let of = |blocks: f64| Simulation { cache: policy.cache(blocks.round() as usize), misses: 0 };
                let sampled = (request.rate < 1.0).then(|| of(blocks * request.rate));
                Simulated { policy, cache_bytes, whole: Some(of(blocks)), sampled }
            })
        });
        Lane {
            block_bytes,
            keys: Keys::default(),
            recorder: Recorder::new(sampling, &watched),
            references: 0,
            sampling,
            simulated: simulated.filter(|simulated| simulated.cache_bytes >= block_bytes).collect(),
            memory_bytes: for_policies as usize,
        }
    }

    fn take(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Refer { request, size_bytes } => {
                    split(request, *size_bytes, self.block_bytes, &mut self.keys, |key, kind, joins| {
                        self.recorder.refer(key, kind, joins);
                        self.references += 1;
                        if !self.simulated.is_empty() {
                            let in_sample = is_sampled(key, self.sampling);
                            self.simulated.iter_mut().for_each(|simulated| simulated.refer(key, in_sample));
                        }
                    });
                }
                Step::Forget { file, from_bytes, size_bytes } => {
                    let (first, end) = (from_bytes.div_ceil(self.block_bytes), size_bytes.div_ceil(self.block_bytes));
                    if first < end {
                        let ranges = self.keys.ranges(*file, first, end - 1);
                        self.recorder.forget(&ranges);
                        // What the pass remembers may be a smaller sample than theirs.
                        let simulations = self.simulated.iter_mut().flat_map(Simulated::simulations);
                        simulations.for_each(|of| of.cache.forget(&ranges));
                    }
                }
            }
        }
        if self.recorder.rate() < 1.0 {
            self.simulated.iter_mut().filter(|of| of.sampled.is_some()).for_each(|of| of.whole = None);
        }
        self.keep_to_memory();
    }

    /// Drops the largest simulations until the others have room.
    fn keep_to_memory(&mut self) {
        while self.simulated.iter().map(Simulated::memory_bytes).sum::<usize>() > self.memory_bytes {
            if let Some(largest) = self.simulated.iter_mut().max_by_key(|of| of.memory_bytes()) {
                (largest.whole, largest.sampled) = (None, None);
            }
        }
    }

    fn finish(self) -> (u64, Curve, Vec<PolicyCell>) {
        let references = (self.references as f64).max(1.0);
        let cell = |simulated: Simulated| PolicyCell {
            policy: simulated.policy,
            cache_bytes: simulated.cache_bytes,
            block_bytes: self.block_bytes,
            miss_ratio: match (simulated.whole, simulated.sampled) {
                (Some(whole), _) => Some(whole.misses as f64 / references),
                (None, sampled) => sampled.map(|of| (of.misses as f64 / (references * self.sampling.rate)).min(1.0)),
            },
        };
        (self.block_bytes, self.recorder.finish(), self.simulated.into_iter().map(cell).collect())
    }
}

impl Simulated {
    fn simulations(&mut self) -> impl Iterator<Item = &mut Simulation> {
        self.whole.iter_mut().chain(&mut self.sampled)
    }

    fn refer(&mut self, key: u64, in_sample: bool) {
        let sampled = self.sampled.iter_mut().filter(|_| in_sample);
        self.whole.iter_mut().chain(sampled).for_each(|of| of.misses += u64::from(!of.cache.refer(key)));
    }

    fn memory_bytes(&self) -> usize {
        self.whole.iter().chain(&self.sampled).map(|of| of.cache.memory_bytes()).sum()
    }
}

/// Shares of the memory: half of it evenly, half by the number of blocks in the same number of bytes.
fn shares(block_sizes_bytes: &[u64], memory_bytes: u64) -> Vec<u64> {
    let number = block_sizes_bytes.len() as f64;
    let parts: f64 = block_sizes_bytes.iter().map(|&bytes| 1.0 / bytes as f64).sum();
    let share = |&bytes: &u64| memory_bytes as f64 * (0.5 / number + 0.5 / bytes as f64 / parts);
    block_sizes_bytes.iter().map(|bytes| share(bytes) as u64).collect()
}

/// Computes what is requested from all events of a source. Ends early if `progress` is asked to stop; the study then
/// has what was read until then.
///
/// # Errors
/// Errors of the source.
pub fn run(
    request: &StudyRequest,
    source: &mut dyn FnMut() -> Result<Option<Event>>,
    progress: &Progress,
) -> Result<TraceResult> {
    let memory = shares(&request.block_sizes_bytes, request.memory_bytes);
    let lanes: Vec<Lane> = request
        .block_sizes_bytes
        .iter()
        .zip(memory)
        .map(|(&block, memory)| Lane::new(request, block, memory))
        .collect();
    let threads = request.threads.clamp(1, lanes.len().max(1));
    let mut hands: Vec<Vec<Lane>> = Vec::new();
    hands.resize_with(threads, Vec::new);
    // Back and forth, so that no thread has all the small blocks, which are the most work.
    for (number, lane) in lanes.into_iter().enumerate() {
        let (round, place) = (number / threads, number % threads);
        hands[if round % 2 == 0 { place } else { threads - 1 - place }].push(lane);
    }
    let (seen, complete, mut finished) = thread::scope(|scope| {
        let (mut senders, mut workers) = (Vec::new(), Vec::new());
        for mut lanes in hands {
            let (sender, receiver) = mpsc::sync_channel::<Arc<Vec<Step>>>(WAITING);
            senders.push(sender);
            workers.push(scope.spawn(move || {
                for steps in receiver {
                    lanes.iter_mut().for_each(|lane| lane.take(&steps));
                }
                lanes.into_iter().map(Lane::finish).collect::<Vec<_>>()
            }));
        }
        let fed = feed(request.longest_bytes, source, progress, &senders);
        drop(senders);
        let mut finished = Vec::new();
        for worker in workers {
            finished.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        fed.map(|(seen, complete)| (seen, complete, finished))
    })?;
    finished.sort_by_key(|(block_bytes, ..)| *block_bytes);
    let (mut curves, mut policies) = (Vec::new(), Vec::new());
    for (block_bytes, curve, cells) in finished {
        curves.push((block_bytes, curve));
        policies.extend(cells);
    }
    policies.sort_by_key(|cell| (cell.policy, cell.block_bytes, cell.cache_bytes));
    Ok(TraceResult { seen, complete, curves, policies })
}

fn feed(
    longest_bytes: u64,
    source: &mut dyn FnMut() -> Result<Option<Event>>,
    progress: &Progress,
    senders: &[mpsc::SyncSender<Arc<Vec<Step>>>],
) -> Result<(Seen, bool)> {
    let mut files = Files::new(longest_bytes);
    let mut complete = false;
    while !complete && !progress.should_stop() {
        let mut steps = Vec::with_capacity(CHUNK);
        for _ in 0..CHUNK {
            match source()? {
                Some(event) => steps.extend(files.take(event)),
                None => {
                    complete = true;
                    break;
                }
            }
        }
        let steps = Arc::new(steps);
        // A thread that has ended has panicked; joining it reports that.
        senders.iter().for_each(|sender| drop(sender.send(steps.clone())));
    }
    Ok((files.seen(), complete))
}

impl StudyRequest {
    /// The misses of a cache of this size with blocks of this size, and the time for them.
    pub fn cell(&self, curve: &Curve, block_bytes: u64, cache_bytes: u64) -> Cell {
        let cache_blocks = cache_bytes / block_bytes;
        let misses = curve.at(cache_blocks);
        let references = &curve.references;
        let requests = references.write_requests as f64;
        let (writes, written_blocks) = match self.writes {
            Writes::Through => (requests, references.writes() as f64),
            // Blocks are written back in pieces of the same length as the writes.
            Writes::Back if references.writes() > 0 => {
                let written = misses.written_back_blocks;
                (written * requests / references.writes() as f64, written)
            }
            Writes::Back => (0.0, 0.0),
        };
        let (fetched_bytes, written_bytes) =
            (misses.fetched_blocks * block_bytes as f64, written_blocks * block_bytes as f64);
        Cell {
            cache_bytes,
            block_bytes,
            cache_blocks,
            error_ratio: SURE * curve.error(cache_blocks).unwrap_or(0.0),
            writes,
            written_bytes,
            seconds: self.base_seconds + self.device.seconds(misses.fetches + writes, fetched_bytes + written_bytes),
            misses,
        }
    }

    /// The result.
    pub fn study(&self, found: &TraceResult, trace: String, notes: Vec<String>) -> Study {
        let mut sizes = self.cache_sizes_bytes.clone();
        sizes.sort_unstable();
        let block_size = |(block_bytes, curve): &(u64, Curve)| {
            let bytes = |blocks: u64| blocks.saturating_mul(*block_bytes);
            let target =
                |&miss_ratio: &f64| Target { miss_ratio, cache_bytes: curve.least_blocks(miss_ratio).map(bytes) };
            let point = |blocks| Point { cache_bytes: bytes(blocks), miss_ratio: curve.at(blocks).miss_ratio };
            BlockSize {
                block_bytes: *block_bytes,
                references: curve.references,
                blocks: curve.blocks().round() as u64,
                compulsory_ratio: curve.compulsory_ratio(),
                enough_bytes: bytes(curve.enough_blocks()),
                rate: curve.rate,
                memory_bytes: curve.memory_bytes,
                targets: self.targets.iter().map(target).collect(),
                curve: curve.sizes().into_iter().map(point).collect(),
            }
        };
        let cells = sizes
            .iter()
            .flat_map(|&size| found.curves.iter().map(move |(block, curve)| self.cell(curve, *block, size)));
        Study {
            schema: SCHEMA.to_owned(),
            granulo_version: env!("CARGO_PKG_VERSION").to_owned(),
            granulo_commit: None,
            trace,
            host: None,
            written_at: None,
            complete: found.complete,
            seen: found.seen,
            notes,
            writes: self.writes,
            device: self.device.clone(),
            base_seconds: self.base_seconds,
            block_sizes: found.curves.iter().map(block_size).collect(),
            cells: cells.collect(),
            cache_sizes_bytes: sizes,
            policies: found.policies.clone(),
            beside: None,
        }
    }
}

impl Study {
    /// The cell of a cache size and a block size.
    pub fn cell(&self, cache_bytes: u64, block_bytes: u64) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.cache_bytes == cache_bytes && cell.block_bytes == block_bytes)
    }

    /// The block size with which a cache of this size needs the least time; the smallest one within a hundredth of it.
    pub fn best_block(&self, cache_bytes: u64) -> Option<&Cell> {
        let cells = || self.cells.iter().filter(|cell| cell.cache_bytes == cache_bytes && cell.cache_blocks > 0);
        let least = cells().map(|cell| cell.seconds).fold(f64::INFINITY, f64::min);
        cells().find(|cell| cell.seconds <= least * 1.01)
    }
}
