//! A toy store on trial: it passes while it is careful, and each mistake that a store can make is caught.
//!
//! Its log is one file of frames: length, checksum, sequence number, and the text of a batch's number in a list that
//! all instances share, instead of the batch itself. So it has the one difficulty that matters here, and none of the
//! others.

use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::*;
use crate::devices::device::{DeviceFile, Mode};
use crate::error::ErrorKind;
use crate::simulation::moments::Moments;
use crate::simulation::state::{Body, Object};
use crate::simulation::workload::pieces;

/// A mistake of the toy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// Acknowledges a batch as durable without a sync.
    NoSync,
    /// Never syncs the name of its log.
    NoSyncOfName,
    /// Considers a frame whole without verifying its checksum.
    NoChecksum,
    /// Continues after a torn frame.
    NoCut,
    /// Writes each change of a batch as a batch of its own.
    HalfBatches,
    /// When it is opened again, trusts what it wrote before a sync that failed.
    TrustsTheCache,
    /// Does not sync what it finds when it is opened.
    NoSyncOnOpening,
    /// Does not report a sync that failed.
    HidesErrors,
}

/// The pieces of all batches, by number: a real log would have them in its frames.
type Pieces = Arc<Mutex<Vec<Vec<Change>>>>;

type Settings = (Mistake, Pieces);

/// Length, checksum, sequence, number of the piece.
const FRAME_BYTES: usize = 32;

#[derive(Debug)]
struct Toy {
    mistake: Mistake,
    pieces: Pieces,
    file: Arc<dyn DeviceFile>,
    end: u64,
    sequence: u64,
    state: State,
    has_failed: bool,
}

fn frame(sequence: u64, piece: u64) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    let checksum = Random::new(sequence.rotate_left(32) ^ piece).any();
    let fields = [FRAME_BYTES as u64, checksum, sequence, piece];
    for (field, place) in fields.iter().zip(frame.chunks_exact_mut(8)) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    frame
}

fn broken(operation: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::new(ErrorKind::of(&error), operation, crate::error::os_message(&error))
}

impl Toy {
    fn append(&mut self, changes: &[Change]) -> Result<()> {
        if self.has_failed {
            return Err(Error::new(ErrorKind::ReadOnly, "write", "a write has failed"));
        }
        let number = {
            let mut pieces = self.pieces.lock().unwrap();
            pieces.push(changes.to_vec());
            pieces.len() as u64 - 1
        };
        let written = self.file.write_at(&frame(self.sequence, number), self.end);
        self.latch(written)?;
        self.end += FRAME_BYTES as u64;
        self.sequence += 1;
        self.apply(number, changes);
        Ok(())
    }

    fn apply(&mut self, number: u64, changes: &[Change]) {
        for (at, change) in changes.iter().enumerate() {
            self.state.apply(change, (number << 16) + at as u64);
        }
    }

    fn latch(&mut self, outcome: std::io::Result<()>) -> Result<()> {
        if self.mistake == Mistake::HidesErrors {
            return Ok(());
        }
        self.has_failed |= outcome.is_err();
        outcome.map_err(broken("write"))
    }
}

impl Subject for Toy {
    type Settings = Settings;

    fn devices(_: &Settings) -> usize {
        1
    }

    fn sizes(_: &Settings) -> (usize, usize) {
        (100, 1000)
    }

    fn create(settings: &Settings, world: &World) -> Result<Toy> {
        let device = &world.devices()[0];
        device.open("log", Mode::Create).map_err(broken("create"))?;
        if settings.0 != Mistake::NoSyncOfName {
            device.sync_directory("").map_err(broken("create"))?;
        }
        Toy::open(settings, world)
    }

    fn open((mistake, pieces): &Settings, world: &World) -> Result<Toy> {
        let file = world.devices()[0].open("log", Mode::Write).map_err(broken("open"))?;
        let mut content = Vec::new();
        file.read_onto(&mut content, 1 << 24, 0).map_err(broken("open"))?;
        let (pieces, state) = (Arc::clone(pieces), State::default());
        let mut toy = Toy { mistake: *mistake, pieces, file, end: 0, sequence: 0, state, has_failed: false };
        let known = toy.pieces.lock().unwrap().clone();
        for found in content.chunks_exact(FRAME_BYTES) {
            let number = u64::from_le_bytes(found[24..].try_into().unwrap());
            let is_whole = match mistake {
                Mistake::NoChecksum => found[0] == FRAME_BYTES as u8,
                _ => *found == frame(toy.sequence, number),
            };
            let Some(changes) = known.get(number as usize).filter(|_| is_whole) else {
                if *mistake == Mistake::NoCut {
                    toy.end += FRAME_BYTES as u64;
                    toy.sequence += 1;
                    continue;
                }
                break;
            };
            toy.apply(number, changes);
            toy.end += FRAME_BYTES as u64;
            toy.sequence += 1;
        }
        toy.file.set_size(toy.end).map_err(broken("recover"))?;
        if *mistake == Mistake::NoSyncOnOpening {
            return Ok(toy);
        }
        if *mistake != Mistake::TrustsTheCache {
            // What was written before a sync that failed is only in memory, and clean: only what is written again is
            // synced.
            toy.file.write_at(&content[..toy.end as usize], 0).map_err(broken("recover"))?;
        }
        toy.file.sync().map_err(broken("recover"))?;
        Ok(toy)
    }

    fn batch(&mut self, durability: Durability, changes: &[Change], done: &mut dyn FnMut()) -> Result<()> {
        let halves = self.mistake == Mistake::HalfBatches;
        for piece in pieces(if halves { Durability::Each } else { durability }, changes) {
            self.append(piece)?;
            if durability == Durability::Each {
                self.sync()?;
                done();
            }
        }
        if durability == Durability::None || self.mistake == Mistake::NoSync { Ok(()) } else { self.sync() }
    }

    fn sync(&mut self) -> Result<()> {
        let outcome = self.file.sync();
        self.latch(outcome)
    }

    fn compact(&mut self) -> Result<()> {
        Ok(())
    }

    fn state(&self) -> Result<State> {
        Ok(self.state.clone())
    }
}

fn trial(mistake: Mistake, seed: u64) -> Trial<Settings> {
    Trial { settings: (mistake, Pieces::default()), seed, operations: 25, crashes: 6 }
}

/// The first failure with a few seeds.
fn caught(mistake: Mistake) -> Option<String> {
    (0..30).find_map(|seed| run::<Toy>(&trial(mistake, seed)).err())
}

/// The first failure with a fault at each operation in turn.
fn caught_with_faults(mistake: Mistake, errno: Errno) -> Option<String> {
    for seed in 0..2 {
        for operation in 0.. {
            let fault = Fault { operation, errno, is_lasting: false, device: None };
            match run_with_fault::<Toy>(&trial(mistake, seed), fault, |_| false) {
                Err(cause) => return Some(cause),
                Ok(false) => break,
                Ok(true) => {}
            }
        }
    }
    None
}

#[test]
fn a_careful_store_passes() {
    let mut crashes = 0;
    for seed in 0..3 {
        crashes += run::<Toy>(&trial(Mistake::None, seed)).unwrap();
    }
    assert!(crashes > 500, "{crashes}");
    assert_eq!(caught_with_faults(Mistake::None, Errno::IO), None);
    assert_eq!(caught_with_faults(Mistake::None, Errno::NOSPC), None);
}

#[test]
fn every_mistake_is_caught() {
    for mistake in [
        Mistake::NoSync,
        Mistake::NoSyncOfName,
        Mistake::NoChecksum,
        Mistake::NoCut,
        Mistake::HalfBatches,
        Mistake::NoSyncOnOpening,
        Mistake::HidesErrors,
    ] {
        assert!(caught(mistake).is_some(), "{mistake:?}");
    }
    // A crash alone does not reveal this one.
    assert_eq!(run::<Toy>(&trial(Mistake::TrustsTheCache, 0)).err(), None);
    assert!(caught_with_faults(Mistake::TrustsTheCache, Errno::IO).is_some());
}

#[test]
fn a_failure_can_be_repeated_alone() {
    let cause = (0..30).find_map(|seed| Some((seed, run::<Toy>(&trial(Mistake::NoSync, seed)).err()?)));
    let (seed, cause) = cause.unwrap();
    let number = |after: &str| {
        let from = cause.find(after).unwrap() + after.len();
        let digits: String = cause[from..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap()
    };
    let again = repeat::<Toy>(&trial(Mistake::NoSync, seed), number("operation "), number("remains "));
    assert_eq!(again.unwrap_err(), cause);
    assert_eq!(repeat::<Toy>(&trial(Mistake::None, 1), 5, seed_of_remains(1, 5, 0)).unwrap(), 1);
}

#[test]
fn an_object_out_of_nowhere_is_seen() {
    let (mistake, pieces) = (Mistake::None, Pieces::default());
    let world = World::new(1, 0);
    let mut toy = Toy::create(&(mistake, pieces), &world).unwrap();
    let model = Mutex::new(Model::default());
    let body = Body::Symlink(vec![1]);
    let (attributes, shared, has_any_holes, moments) = (None, None, false, Moments::of(0));
    let ghost = Object { attributes, body, shared, incarnation: None, number: None, has_any_holes, moments };
    toy.state.insert(crate::Key::parse("ghost").unwrap(), ghost);
    let mut run = Run { subject: Some(toy), model: &model };
    assert!(run.look().unwrap_err().contains("ghost is there"));
}
