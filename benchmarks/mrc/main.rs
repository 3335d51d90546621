//! Speed, memory and error of miss-ratio curves: `cargo bench --bench mrc -- [--quick] [--out DIR]`.
//!
//! Traces are generated in memory, so that only the pass is timed. Each is processed by the exact pass, a textbook one
//! (a hash map and a Fenwick tree with a slot for every reference, both from the standard library), samples, and
//! simulations of one cache each; rounds are interleaved. Goals: 5 million references per second, exactly, on one core;
//! a mean error of samples of at most 0.01 over all cache sizes.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use granulo_core::mrc::curve::Curve;
use granulo_core::mrc::policy::Policy;
use granulo_core::mrc::recorder::{Recorder, Sampling};
use granulo_core::mrc::request::Kind;
use granulo_core::random::Random;

const WANTED_PER_SECOND: f64 = 5e6;
const WANTED_ERROR: f64 = 0.01;

struct Trace {
    name: &'static str,
    blocks: u64,
    keys: Vec<u64>,
}

/// A number below `end`, small ones more often: the n-th about 1/n times as often as the first.
fn popular(random: &mut Random, end: u64) -> u64 {
    ((end as f64).powf(random.fraction()) as u64 - 1).min(end - 1)
}

fn traces(references: usize) -> Vec<Trace> {
    let mut random = Random::new(1);
    let mut of = |name, blocks, next: &mut dyn FnMut(&mut Random, u64) -> u64| Trace {
        name,
        blocks,
        keys: (0..references as u64).map(|number| next(&mut random, number)).collect(),
    };
    let mut file = (0u64, 0u64);
    vec![
        of("popular, 1 M blocks", 1 << 20, &mut |random, _| scattered(popular(random, 1 << 20)) % (1 << 20)),
        of("uniform, 1 M blocks", 1 << 20, &mut |random, _| random.any() % (1 << 20)),
        of("one scan after the other, 1 M blocks", 1 << 20, &mut |_, number| number % (1 << 20)),
        of("whole files, popular", 1 << 20, &mut |random, _| {
            if file.1 == 0 {
                // 65,536 files of 1 to 32 blocks.
                let number = scattered(popular(random, 1 << 16)) % (1 << 16);
                file = (number << 32, scattered(number) % 32 + 1);
            }
            file.1 -= 1;
            file.0 + file.1
        }),
        of("popular, 8 M blocks", 1 << 23, &mut |random, _| scattered(popular(random, 1 << 23)) % (1 << 23)),
    ]
}

/// A clock of the processor time of this thread, which other work on the machine affects little; of wall time where the
/// kernel does not report it.
struct Clock(Instant, Option<Duration>);

impl Clock {
    fn start() -> Clock {
        Clock(Instant::now(), Clock::on_processor())
    }

    fn on_processor() -> Option<Duration> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
    }

    fn seconds(&self) -> f64 {
        let on_processor = self.1.and_then(|before| Clock::on_processor()?.checked_sub(before));
        on_processor.unwrap_or_else(|| self.0.elapsed()).as_secs_f64()
    }
}

fn scattered(number: u64) -> u64 {
    Random::new(number).any()
}

fn record(trace: &Trace, sampling: Sampling, watched: &[u64]) -> Curve {
    let mut recorder = Recorder::new(sampling, watched);
    trace.keys.iter().for_each(|&key| recorder.refer(key, Kind::Read, false));
    recorder.finish()
}

/// The textbook: a Fenwick tree over all references, and the last position of each block. Returns the sum of distances,
/// for comparison.
fn textbook(trace: &Trace) -> u64 {
    let mut tree = vec![0u32; trace.keys.len() + 1];
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut counts: Vec<u64> = Vec::new();
    let add = |tree: &mut Vec<u32>, at: usize, by: i32| {
        let mut at = at + 1;
        while at < tree.len() {
            tree[at] = tree[at].wrapping_add_signed(by);
            at += at & at.wrapping_neg();
        }
    };
    let sum = |tree: &Vec<u32>, end: usize| {
        let (mut at, mut sum) = (end, 0u64);
        while at > 0 {
            sum += u64::from(tree[at]);
            at &= at - 1;
        }
        sum
    };
    for (place, &key) in trace.keys.iter().enumerate() {
        if let Some(before) = last.insert(key, place) {
            let distance = (sum(&tree, place) - sum(&tree, before + 1)) as usize;
            if distance >= counts.len() {
                counts.resize(distance + 1, 0);
            }
            counts[distance] += 1;
            add(&mut tree, before, -1);
        }
        add(&mut tree, place, 1);
    }
    counts.iter().enumerate().map(|(distance, count)| distance as u64 * count).sum()
}

/// Mean and largest difference of two curves, over 1,024 sizes from 50 sampled blocks in the cache to all of them.
fn errors(exact: &Curve, sampled: &Curve) -> (f64, f64) {
    let most = exact.enough_blocks().max(1);
    let least = ((50.0 / sampled.rate) as u64).min(most);
    let sizes = (0..=1024).map(|step| least + (most - least) * step / 1024);
    let off: Vec<f64> = sizes.map(|size| (exact.at(size).miss_ratio - sampled.at(size).miss_ratio).abs()).collect();
    (off.iter().sum::<f64>() / off.len() as f64, off.iter().copied().fold(0.0, f64::max))
}

struct Row {
    trace: &'static str,
    way: String,
    per_second: Vec<f64>,
    memory_bytes: u64,
    errors: Option<(f64, f64)>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    // `cargo bench` passes `--bench`; anything else builds without optimisation.
    let is_quick = arguments.iter().any(|word| word == "--quick") || !arguments.iter().any(|word| word == "--bench");
    let out = arguments.iter().position(|word| word == "--out").and_then(|at| arguments.get(at + 1)).map(PathBuf::from);
    let (references, rounds) = if is_quick { (2_000_000, 1) } else { (20_000_000, 3) };
    let mut rows: Vec<Row> = Vec::new();
    for trace in traces(references) {
        eprintln!("{}", trace.name);
        let sizes: Vec<u64> = (1..=8).map(|part| trace.blocks * part / 8).collect();
        let all = Sampling { rate: 1.0, most_blocks: u64::MAX };
        let ways: [(&str, Sampling); 5] = [
            ("exact", all),
            ("sample of 10 %", Sampling { rate: 0.1, ..all }),
            ("sample of 1 %", Sampling { rate: 0.01, ..all }),
            ("sample of 65,536 blocks", Sampling { most_blocks: 1 << 16, ..all }),
            ("sample of 16,384 blocks", Sampling { most_blocks: 1 << 14, ..all }),
        ];
        let first = rows.len();
        let row = |way: String| Row { trace: trace.name, way, per_second: Vec::new(), memory_bytes: 0, errors: None };
        rows.extend(ways.iter().map(|(way, _)| row((*way).to_owned())));
        rows.push(row("textbook".to_owned()));
        rows.extend(Policy::EVERY.map(|policy| row(format!("{}, one cache of a tenth", policy.name()))));
        for _ in 0..rounds {
            let mut exact: Option<Curve> = None;
            for (at, (_, sampling)) in ways.iter().enumerate() {
                let started = Clock::start();
                let curve = record(&trace, *sampling, &sizes);
                let row = &mut rows[first + at];
                row.per_second.push(references as f64 / started.seconds());
                row.memory_bytes = curve.memory_bytes;
                match &exact {
                    None => exact = Some(curve),
                    Some(exact) => row.errors = Some(errors(exact, &curve)),
                }
            }
            let started = Clock::start();
            std::hint::black_box(textbook(&trace));
            let row = &mut rows[first + ways.len()];
            row.per_second.push(references as f64 / started.seconds());
            row.memory_bytes = 4 * references as u64;
            for (at, policy) in Policy::EVERY.into_iter().enumerate() {
                let started = Clock::start();
                let mut cache = policy.cache(trace.blocks as usize / 10);
                let hits = trace.keys.iter().filter(|&&key| cache.refer(key)).count();
                std::hint::black_box(hits);
                let row = &mut rows[first + ways.len() + 1 + at];
                row.per_second.push(references as f64 / started.seconds());
                row.memory_bytes = cache.memory_bytes() as u64;
            }
        }
    }
    let summary = summary(&rows, references, rounds);
    println!("{summary}");
    if let Some(directory) = out {
        let mut raw = "trace,way,references_per_second,memory_bytes,mean_error,largest_error\n".to_owned();
        for row in &rows {
            for per_second in &row.per_second {
                let error = row.errors.map_or(",".to_owned(), |(mean, most)| format!("{mean:.5},{most:.5}"));
                let _ = writeln!(raw, "\"{}\",\"{}\",{per_second:.0},{},{error}", row.trace, row.way, row.memory_bytes);
            }
        }
        let written = std::fs::create_dir_all(&directory)
            .and_then(|()| std::fs::write(directory.join("summary.md"), &summary))
            .and_then(|()| std::fs::write(directory.join("raw.csv"), raw));
        if let Err(error) = written {
            eprintln!("cannot write the record to {}: {error}", directory.display());
            std::process::exit(1);
        }
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut samples = samples.to_vec();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn summary(rows: &[Row], references: usize, rounds: usize) -> String {
    let verdict = |reached: bool| if reached { "reached" } else { "**missed**" };
    let exact = rows.iter().filter(|row| row.way == "exact");
    let slowest = exact.map(|row| median(&row.per_second)).fold(f64::INFINITY, f64::min);
    let worst = rows.iter().filter_map(|row| row.errors).fold(0.0, |worst: f64, (mean, _)| worst.max(mean));
    let mut text = format!(
        "# Miss-ratio curves\n\n{references} references, {rounds} rounds, interleaved, by the time that the one thread had a processor. Wanted: {:.0} million references a second \
         exactly on every trace: {} ({:.1}). Samples off by {WANTED_ERROR} or less, the mean over all sizes: {} ({worst:.4}).\n\n\
         | trace | way | M references/s | smallest to largest | memory, MiB | mean error | largest |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
        WANTED_PER_SECOND / 1e6,
        verdict(slowest >= WANTED_PER_SECOND),
        slowest / 1e6,
        verdict(worst <= WANTED_ERROR),
    );
    for row in rows {
        let (least, most) = row.per_second.iter().fold((f64::INFINITY, 0.0f64), |(l, m), &s| (l.min(s), m.max(s)));
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} | {:.1} to {:.1} | {:.1} | {} |",
            row.trace,
            row.way,
            median(&row.per_second) / 1e6,
            least / 1e6,
            most / 1e6,
            row.memory_bytes as f64 / f64::from(1 << 20),
            row.errors.map_or(" |".to_owned(), |(mean, most)| format!("{mean:.4} | {most:.4}")),
        );
    }
    text.push_str("\nTextbook: memory of the tree alone, without its map. Errors where the cache holds 50 sampled blocks or more; where the curve has a cliff, a \
         sample that places it a little aside has its height as the largest error.\n");
    text
}
