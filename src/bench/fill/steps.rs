//! One step: every place is filled to a level, then tested there in turns.

use std::time::Instant;

use super::level::{Fill, Filled};
use super::{FillRequest, FillTarget, GROUPS, Sampled, Test, add};
use crate::bench::caches::{drop_caches, touch_memory};
use crate::bench::place::Prepared;
use crate::bench::result::{FillLeftOut, FillLevel};
use crate::bench::run::{stage, turns};
use crate::bench::volume::Room;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::units::{MIB, format_share, format_size};

/// Sample size for counting extents.
const SAMPLED_FILES: u64 = 500;
/// Space for tests beyond the blocks of their content.
const MARGIN_BYTES: u64 = 4 * MIB;
/// A store reserves one part in this many of a device for removals.
const STORE_RESERVE: u64 = 100;
/// Space for a small entry where the file system packs several together.
const PACKED_BYTES: u64 = 1024;
/// Kernel memory per cached file or directory, in bytes.
const MEMORY_AN_ENTRY_BYTES: u64 = 1536;

/// A place while it is filled and tested.
pub(super) struct Tested<'p> {
    pub at: usize,
    pub place: &'p mut Prepared,
    pub target: Box<dyn FillTarget + 'p>,
    pub fill: Fill,
    /// Groups of tests for which space no longer suffices.
    pub without: [bool; GROUPS.len()],
    /// It cannot be filled to a higher level.
    pub is_over: bool,
}

/// All steps of a run.
pub(super) struct Steps<'r> {
    pub request: &'r FillRequest,
    pub progress: &'r Progress,
    pub samples: Vec<Sampled>,
    pub reached: Vec<FillLevel>,
    pub left_out: Vec<FillLeftOut>,
}

impl Steps<'_> {
    /// Fills all places to a level and tests them; returns whether it finished.
    pub(super) fn level(&mut self, level: f64, subjects: &mut [Tested<'_>]) -> Result<bool> {
        let mut there = Vec::new();
        for (index, subject) in subjects.iter_mut().enumerate() {
            if subject.is_over {
                continue;
            }
            let Some(is_there) = self.fill(level, subject)? else { return Ok(false) };
            if is_there {
                there.push(index);
            }
        }
        for (repeat, turn) in turns(self.request.repeats, there.len()) {
            let subject = &mut subjects[there[turn]];
            if !self.tests(level, repeat, subject)? {
                return Ok(false);
            }
        }
        for index in there {
            let Tested { at, place, .. } = &subjects[index];
            place.sync()?;
            let after = place.room()?.fill;
            let row = self.reached.iter_mut().find(|row| row.subject == *at && row.level == level);
            row.into_iter().for_each(|row| row.after = after);
        }
        Ok(!self.progress.should_stop())
    }

    fn leave_out(&mut self, subject: usize, level: f64, tests: &[Test], cause: String) {
        let tests = tests.iter().map(|test| test.name().to_owned()).collect();
        self.left_out.push(FillLeftOut { subject, level, tests, cause });
    }

    /// Fills one place; returns whether it is to be tested, or `None` if it was asked to stop.
    fn fill(&mut self, level: f64, subject: &mut Tested<'_>) -> Result<Option<bool>> {
        let Tested { at, place, target, fill, .. } = subject;
        let name = place.name().to_owned();
        let phase = format!("fill to {}", format_share(level));
        let progress = self.progress;
        // In units of 0.1 %.
        progress.begin(stage(&name, &phase, 0), (level * 1000.0) as u64);
        let mut show = |reached: f64| progress.set_operations((reached * 1000.0) as u64);
        match fill.to(level, &self.request.filling, place, &mut **target, progress, &mut show)? {
            Filled::Reached => {}
            Filled::Stopped => return Ok(None),
            Filled::Beyond(now) => {
                let cause = format!("it is already {} full", format_share(now));
                self.leave_out(*at, level, &[], cause);
                return Ok(Some(false));
            }
            Filled::Full(cause) => {
                subject.is_over = true;
                self.leave_out(*at, level, &[], cause);
                return Ok(Some(false));
            }
        }
        let extents_per_file = fill.extents(SAMPLED_FILES, &mut **target)?;
        let room = place.room()?;
        self.reached.push(FillLevel {
            subject: *at,
            level,
            reached: room.fill,
            after: room.fill,
            files: fill.files,
            bytes: fill.bytes,
            deleted: fill.deleted,
            extents_per_file,
        });
        for (group, tests) in GROUPS.iter().enumerate() {
            let needed = self.needed(group, subject.place, room);
            if !subject.without[group] && needed > room.available_bytes {
                subject.without[group] = true;
                let cause = format!(
                    "it needs {}, but {} are available",
                    format_size(needed.into()),
                    format_size(room.available_bytes.into())
                );
                self.leave_out(subject.at, level, tests, cause);
            }
        }
        if subject.without.iter().all(|without| *without) {
            subject.is_over = true;
        }
        Ok(Some(!subject.is_over))
    }

    /// Peak space for a group of tests.
    fn needed(&self, group: usize, place: &Prepared, room: Room) -> u64 {
        let file_system = &place.subject().file_system;
        let request = self.request;
        let block_bytes = file_system.block_bytes.max(1);
        // Others keep small directories in their inodes, or in trees.
        let has_blocks = ["ext", "fat", "msdos"].iter().any(|kind| file_system.kind.contains(kind));
        let of_directories = if has_blocks && !place.is_store() { block_bytes } else { PACKED_BYTES };
        let content = match group {
            0 => request.directories.saturating_mul(of_directories),
            1 => request.file_bytes,
            _ => {
                let each = request.small_bytes.next_multiple_of(if place.is_store() { 1 } else { block_bytes });
                request.small_files.saturating_mul(each.saturating_add(PACKED_BYTES / 2))
            }
        };
        let reserve = if place.is_store() { room.total_bytes / STORE_RESERVE } else { 0 };
        content.saturating_add(content / 50).saturating_add(MARGIN_BYTES).saturating_add(reserve)
    }

    /// Runs all tests on one place; returns whether it finished.
    fn tests(&mut self, level: f64, repeat: u64, subject: &mut Tested<'_>) -> Result<bool> {
        for (group, tests) in GROUPS.iter().enumerate() {
            if subject.without[group] {
                continue;
            }
            for &test in *tests {
                match self.test(test, level, repeat, subject) {
                    Ok(true) => {}
                    Ok(false) => return Ok(false),
                    Err(error) if error.kind() == ErrorKind::NoSpace => {
                        subject.without[group] = true;
                        self.leave_out(subject.at, level, tests, error.to_string());
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            subject.target.clear()?;
        }
        Ok(true)
    }

    /// Runs and times one test; returns whether it finished.
    fn test(&mut self, test: Test, level: f64, repeat: u64, subject: &mut Tested<'_>) -> Result<bool> {
        let Tested { at, place, target, .. } = subject;
        let FillRequest { directories, file_bytes, small_files, small_bytes, .. } = *self.request;
        let name = place.name().to_owned();
        let phase = format!("{}, {}", format_share(level), test.name());
        let progress = self.progress;
        progress.begin(stage(&name, &phase, repeat), 0);
        let mut go_on = || !progress.should_stop();
        if test == Test::CreateFiles {
            target.prepare_files(small_files)?;
        }
        touch_memory(match test {
            Test::CreateDirectories | Test::FindDirectories | Test::RemoveDirectories => {
                directories.saturating_mul(MEMORY_AN_ENTRY_BYTES)
            }
            Test::Write | Test::Read => file_bytes,
            Test::CreateFiles | Test::DeleteFiles => {
                small_files.saturating_mul(small_bytes.saturating_add(MEMORY_AN_ENTRY_BYTES))
            }
        });
        target.sync()?;
        target.close();
        let dropped = drop_caches();
        if let Some(note) = dropped.note {
            place.note(note);
        }
        let started = Instant::now();
        let counted = match test {
            Test::CreateDirectories => target.make_directories(directories, &mut go_on).map(|_| None)?,
            Test::FindDirectories => Some((target.find_directories(&mut go_on)?, directories)),
            Test::RemoveDirectories => Some((target.remove_directories(&mut go_on)?, directories)),
            Test::Write => target.write(file_bytes, &mut go_on).map(|_| None)?,
            Test::Read => target.read(file_bytes, &mut go_on).map(|_| None)?,
            Test::CreateFiles => target.make_files(small_files, small_bytes, &mut go_on).map(|_| None)?,
            Test::DeleteFiles => Some((target.remove_files(&mut go_on)?, small_files)),
        };
        if !matches!(test, Test::FindDirectories | Test::Read) {
            target.sync()?;
            place.sync()?;
        }
        let seconds = started.elapsed().as_secs_f64();
        if progress.should_stop() {
            return Ok(false);
        }
        if let Some((found, made)) = counted.filter(|(found, made)| found != made) {
            let cause = format!("{made} were created, but {found} were found");
            return Err(Error::new(ErrorKind::Corrupt, test.name(), cause).at(place.directory()));
        }
        add(&mut self.samples, (*at, test.name(), Some(level)), dropped.state, seconds);
        Ok(true)
    }
}
