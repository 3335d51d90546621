//! Whether a store shows everything that it acknowledged: computed on each open and part of every answer
//! (docs/FORMAT.md, law 4).
//!
//! Once something was found missing, the catalog keeps that until it is accepted (`repair --accept`), or the index is
//! rebuilt from a log that contains it again: an index rebuilt from a damaged log must not look like that of a complete
//! one.

use std::fmt;

use crate::format::decode::Decoder;
use crate::format::ids::{DeviceNumber, SegmentNumber};
use crate::units::{format_count, format_time};

const NANOSECONDS: i64 = 1_000_000_000;

/// Why something may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// Bytes of the log are damaged on every copy, and a later mark shows that they were acknowledged.
    Damage = 1,
    /// The log ends before an acknowledged batch.
    EndsBeforeMark = 2,
    /// A segment is on no device, and was not released.
    SegmentMissing = 3,
    /// Too few devices are present to know.
    DevicesAway = 4,
    /// Segments continue the log beyond the newest epoch of all superblocks: these are old.
    SuperblocksOld = 5,
    /// Segments are of epochs that no superblock has, and do not continue the log.
    UnknownSegments = 6,
}

impl Cause {
    const ALL: [Cause; 6] = [
        Cause::Damage,
        Cause::EndsBeforeMark,
        Cause::SegmentMissing,
        Cause::DevicesAway,
        Cause::SuperblocksOld,
        Cause::UnknownSegments,
    ];

    /// A short, stable name.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Damage => "damage",
            Cause::EndsBeforeMark => "ends_before_mark",
            Cause::SegmentMissing => "segment_missing",
            Cause::DevicesAway => "devices_away",
            Cause::SuperblocksOld => "superblocks_old",
            Cause::UnknownSegments => "unknown_segments",
        }
    }
}

/// What may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Why.
    pub cause: Cause,
    /// The affected segments, first and last; `None` if unknown.
    pub segments: Option<(SegmentNumber, SegmentNumber)>,
    /// The affected batches, first and last.
    pub batches: Option<(u64, u64)>,
    /// When the last batch before what is missing was written, or at the earliest the first one in it: when its epoch
    /// began. In nanoseconds since 1970. Records that were moved since may be older.
    pub after_nanoseconds: Option<i64>,
    /// Devices that may have it.
    pub devices: Vec<DeviceNumber>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |span: Option<(u64, u64)>, one: &str, many: &str| match span {
            None => String::new(),
            Some((first, last)) if first == last => format!("{one} {first}"),
            Some((first, last)) => format!("{many} {first} to {last}"),
        };
        let segments = span(self.segments.map(|(first, last)| (first.0, last.0)), "segment", "segments");
        let batches = span(self.batches, "batch", "batches");
        let after = match self.after_nanoseconds {
            Some(after) => format!(" after {}", format_time(after.div_euclid(NANOSECONDS))),
            None => String::new(),
        };
        let written = if after.is_empty() { "" } else { ", written" };
        match self.cause {
            Cause::Damage if self.devices.is_empty() => {
                write!(f, "{segments} of the log: damaged on every copy{written}{after}")?;
            }
            Cause::Damage => {
                write!(f, "{segments} of the log: damaged on every copy that could be read{written}{after}")?;
            }
            Cause::EndsBeforeMark => {
                let verb = if self.batches.is_some_and(|(first, last)| first < last) { "were" } else { "was" };
                write!(f, "the log ends before {batches}, which {verb} acknowledged{after}")?;
            }
            Cause::SegmentMissing => write!(f, "{segments} of the log: on no device that is present{written}{after}")?,
            Cause::DevicesAway => write!(f, "too few devices are present to tell whether anything is missing")?,
            Cause::SuperblocksOld => write!(
                f,
                "the superblocks are older than {segments} of the log, as if they were restored from a copy: until \
                 granulo store repair has written them again, nothing is written"
            )?,
            Cause::UnknownSegments => {
                write!(
                    f,
                    "no superblock knows the writer of {segments}, and the log as it is known does not go on there"
                )?;
            }
        }
        if !self.devices.is_empty() {
            let devices: Vec<String> = self.devices.iter().map(DeviceNumber::to_string).collect();
            let word = if devices.len() == 1 { "device" } else { "devices" };
            let devices = devices.join(", ");
            match self.cause {
                Cause::Damage => write!(f, " ({word} {devices} could not)")?,
                _ => write!(f, " ({word} {devices})")?,
            }
        }
        Ok(())
    }
}

/// What a crash left at the end of the log without proof that it was acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tail {
    /// Batches that are complete and count.
    pub batches: u64,
    /// Bytes, on all copies, that are not part of the log: they stay in place, in quarantine.
    pub quarantined_bytes: u64,
}

impl fmt::Display for Tail {
    /// As the end of a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The mark that would show their acknowledgement is written after them.
        let batches = match self.batches {
            0 => None,
            1 => Some("1 batch that is not known to be acknowledged was recovered".to_owned()),
            many => {
                let many = format_count(many.into());
                Some(format!("{many} batches that are not known to be acknowledged were recovered"))
            }
        };
        let bytes = match self.quarantined_bytes {
            0 => None,
            1 => Some("1 byte is in quarantine".to_owned()),
            many => Some(format!("{} bytes are in quarantine", format_count(many.into()))),
        };
        let parts: Vec<String> = batches.into_iter().chain(bytes).collect();
        if parts.is_empty() { Ok(()) } else { write!(f, ": {}", parts.join(", ")) }
    }
}

/// Whether a store shows everything that it acknowledged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completeness {
    /// What a crash left, if anything.
    pub tail: Option<Tail>,
    /// What may be missing; empty if the store is complete.
    pub missing: Vec<Missing>,
}

impl Missing {
    /// Something, and nobody knows what: the note of it cannot be read.
    pub(crate) fn unknown() -> Missing {
        Missing { cause: Cause::Damage, segments: None, batches: None, after_nanoseconds: None, devices: Vec::new() }
    }
}

impl Completeness {
    /// Whether everything acknowledged is present.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// A short, stable name of the state.
    pub fn name(&self) -> &'static str {
        match (self.missing.is_empty(), &self.tail) {
            (false, _) => "incomplete",
            (true, Some(_)) => "unacknowledged_tail",
            (true, None) => "complete",
        }
    }

    /// The state in words, one line per item; empty if the store is complete.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.missing.is_empty() {
            let is_of_superblocks = self.missing.iter().all(|missing| missing.cause == Cause::SuperblocksOld);
            let advice = match is_of_superblocks {
                true => "put the newest superblocks back, or run granulo store repair",
                false => {
                    "bring its devices back, or restore what is missing from a backup; granulo store repair --accept clears this"
                }
            };
            lines.push(format!("the store is incomplete: acknowledged data may be missing ({advice})"));
            lines.extend(self.missing.iter().map(Missing::to_string));
        }
        if let Some(tail) = self.tail {
            let frees = if tail.quarantined_bytes > 0 { ", and with --accept frees the quarantine" } else { "" };
            lines.push(format!(
                "a writer did not end cleanly{tail} (said until a command writes to the store; granulo store repair does{frees})"
            ));
        }
        lines
    }

    /// Adds what may be missing, without duplicates: of the same with different times, the earlier one counts.
    pub(crate) fn add(&mut self, missing: Missing) {
        let timeless = |one: &Missing| Missing { after_nanoseconds: None, ..one.clone() };
        match self.missing.iter_mut().find(|known| timeless(known) == timeless(&missing)) {
            Some(known) => known.after_nanoseconds = known.after_nanoseconds.min(missing.after_nanoseconds),
            None => self.missing.push(missing),
        }
    }

    /// The form stored in the catalog. An absent value is encoded as 0 after its flag.
    pub(crate) fn encode_missing(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for Missing { cause, segments, batches, after_nanoseconds, devices } in &self.missing {
            bytes.push(*cause as u8);
            for span in [&segments.map(|(first, last)| (first.0, last.0)), batches] {
                let (is_present, (first, last)) = (span.is_some(), span.unwrap_or_default());
                bytes.push(is_present.into());
                bytes.extend_from_slice(&first.to_le_bytes());
                bytes.extend_from_slice(&last.to_le_bytes());
            }
            bytes.push(after_nanoseconds.is_some().into());
            bytes.extend_from_slice(&after_nanoseconds.unwrap_or_default().to_le_bytes());
            bytes.extend_from_slice(&(devices.len() as u16).to_le_bytes());
            devices.iter().for_each(|device| bytes.extend_from_slice(&device.0.to_le_bytes()));
        }
        bytes
    }

    /// `None` if it is malformed.
    pub(crate) fn decode_missing(bytes: &[u8]) -> Option<Vec<Missing>> {
        let mut decoder = Decoder::new(bytes);
        let mut all = Vec::new();
        while !decoder.rest().is_empty() {
            let code = decoder.u8()?;
            let cause = Cause::ALL.into_iter().find(|known| *known as u8 == code)?;
            let mut span = || {
                let (is_present, first, last) = (decoder.u8()?, decoder.u64()?, decoder.u64()?);
                Some((is_present != 0).then_some((first, last)))
            };
            let (segments, batches) = (span()?, span()?);
            let segments = segments.map(|(first, last)| (SegmentNumber(first), SegmentNumber(last)));
            let (is_present, after) = (decoder.u8()?, decoder.u64()? as i64);
            let devices = (0..decoder.u16()?).map(|_| decoder.u16().map(DeviceNumber)).collect::<Option<_>>()?;
            let after_nanoseconds = (is_present != 0).then_some(after);
            all.push(Missing { cause, segments, batches, after_nanoseconds, devices });
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_left_is_counted_in_words() {
        let said = |batches, quarantined_bytes| {
            let tail = Some(Tail { batches, quarantined_bytes });
            Completeness { tail, ..Completeness::default() }.lines().concat()
        };
        assert_eq!(
            [said(1, 0), said(2, 1), said(0, 1500), said(0, 0)],
            [
                "a writer did not end cleanly: 1 batch that is not known to be acknowledged was recovered \
                 (said until a command writes to the store; granulo store repair does)",
                "a writer did not end cleanly: 2 batches that are not known to be acknowledged were recovered, \
                 1 byte is in quarantine (said until a command writes to the store; granulo store repair does, and with \
                 --accept frees the quarantine)",
                "a writer did not end cleanly: 1,500 bytes are in quarantine (said until a command writes to the store; \
                 granulo store repair does, and with --accept frees the quarantine)",
                "a writer did not end cleanly (said until a command writes to the store; granulo store repair does)",
            ]
        );
    }

    #[test]
    fn what_is_missing_says_after_when() {
        let missing = |cause, after_nanoseconds| Missing {
            cause,
            segments: Some((SegmentNumber(1), SegmentNumber(1))),
            batches: Some((2, 3)),
            after_nanoseconds,
            devices: Vec::new(),
        };
        assert_eq!(
            missing(Cause::Damage, Some(NANOSECONDS * 60 + 1)).to_string(),
            "segment 1 of the log: damaged on every copy, written after 1970-01-01 00:01:00 UTC"
        );
        assert_eq!(
            missing(Cause::EndsBeforeMark, Some(0)).to_string(),
            "the log ends before batches 2 to 3, which were acknowledged after 1970-01-01 00:00:00 UTC"
        );
        assert_eq!(missing(Cause::Damage, None).to_string(), "segment 1 of the log: damaged on every copy");
        let in_part = Missing { devices: vec![DeviceNumber(1)], ..missing(Cause::Damage, None) };
        assert_eq!(
            in_part.to_string(),
            "segment 1 of the log: damaged on every copy that could be read (device 1 could not)"
        );
        let mut found = Completeness::default();
        [Some(9), Some(8)].into_iter().for_each(|after| found.add(missing(Cause::Damage, after)));
        assert_eq!(found.missing, [missing(Cause::Damage, Some(8))]);
    }

    #[test]
    fn what_is_kept_is_what_was_found() {
        let mut found = Completeness::default();
        assert_eq!((found.name(), found.lines()), ("complete", vec![]));
        for cause in Cause::ALL {
            let missing = Missing {
                cause,
                segments: (cause == Cause::Damage).then_some((SegmentNumber(1), SegmentNumber(2))),
                batches: Some((3, 3)),
                after_nanoseconds: Some(-1),
                devices: vec![DeviceNumber(4), DeviceNumber(5)],
            };
            found.add(missing.clone());
            found.add(missing);
        }
        assert_eq!(
            (found.missing.len(), found.name(), found.lines().len()),
            (Cause::ALL.len(), "incomplete", Cause::ALL.len() + 1)
        );
        let bytes = found.encode_missing();
        assert_eq!(Completeness::decode_missing(&bytes), Some(found.missing.clone()));
        assert_eq!(Completeness::decode_missing(&bytes[..bytes.len() - 1]), None);
    }
}
