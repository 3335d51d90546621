//! `granulo store load`: read everything, or a group, in the order of the disk, verify it, and report the speed.

use std::ffi::OsString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::progress::{transfer_words, with_total};
use super::{Ended, StateToRead, key, or_damage, output};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::{ErrorKind, Result};
use crate::locks::lock;
use crate::store::{Kind, LoadedObject};
use crate::units::{format_count, format_counted, format_size};

/// Damaged objects that are named; further ones are only counted.
const NAMED: u64 = 20;

/// Read all objects of a store or a group in disk order, and print the rate
///
/// Every byte is verified. A file with several names is read once. The exit status is 1 if anything is damaged; the
/// rest is read nevertheless.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo store load /srv/s\n  granulo store load /srv/s --group cats --json")]
pub(super) struct LoadArguments {
    #[command(flatten)]
    at: StateToRead,
    /// Only objects at or below this key
    #[arg(long, value_name = "KEY", default_value = "/", hide_default_value = true)]
    group: OsString,
    /// Number of threads [default: number of processors, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8))]
    threads: Option<u16>,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct LoadDocument {
    schema: &'static str,
    group: String,
    objects: u64,
    content_bytes: u64,
    seconds: f64,
    megabytes_per_second: f64,
    damaged: u64,
    interrupted: bool,
}

impl LoadArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let group = key(&self.group)?;
        let store = self.at.open()?;
        let progress = signals::progress()?;
        let damaged = AtomicU64::new(0);
        // The error that a writer freed what was still to be read, which this user could not pin: it ends the load.
        let overtaken = Mutex::new(None);
        // One thread at a time counts an error and prints it.
        let complaining = Mutex::new(());
        let started = Instant::now();
        let count_object = |object: Result<LoadedObject<'_>>| {
            match object {
                Ok(object) => {
                    // The first part of a large object counts; a second name of a file is not another object.
                    let is_counted = object.offset() == 0 && object.kind() != Kind::Link;
                    progress.add(u64::from(is_counted), 0, object.content().len() as u128);
                }
                Err(error) if error.kind() == ErrorKind::Busy => {
                    *lock(&overtaken) = Some(error);
                    return false;
                }
                Err(error) => {
                    let _alone = complaining.lock();
                    if damaged.fetch_add(1, Ordering::Relaxed) < NAMED {
                        output::complain(&error);
                    }
                }
            }
            !progress.should_stop()
        };
        // 0: the default of the store.
        let threads = self.threads.map_or(0, usize::from);
        let loaded = during(self.document.json, &progress, transfer_words, || {
            let tops = std::slice::from_ref(&group);
            with_total(self.document.json, &store, tops, &progress, || store.load_with(&group, threads, count_object))
        });
        let seconds = started.elapsed().as_secs_f64();
        if let Err(error) = loaded {
            return or_damage(Err(error));
        }
        if let Some(error) = lock(&overtaken).take() {
            return Err(error);
        }
        let done = progress.snapshot();
        let content_bytes = done.bytes as u64;
        let document = LoadDocument {
            schema: "granulo/store-load/1",
            group: group.to_string(),
            objects: done.objects,
            content_bytes,
            seconds,
            megabytes_per_second: content_bytes as f64 / 1e6 / seconds.max(1e-9),
            damaged: damaged.into_inner(),
            interrupted: progress.should_stop(),
        };
        emit(&self.document, || &document)?;
        if !self.document.json {
            output::print(|out| writeln!(out, "{}", document.words()))?;
        }
        if document.damaged > NAMED {
            output::warn(&format!(
                "{} damaged objects in total; see granulo store check --deep",
                format_count(document.damaged.into())
            ));
        }
        Ok(if document.damaged > 0 || document.interrupted { Ended::Amiss } else { Ended::Well })
    }
}

impl LoadDocument {
    fn words(&self) -> String {
        let verified = match (self.damaged, self.interrupted) {
            (_, true) => "interrupted".to_owned(),
            (0, false) => "all verified".to_owned(),
            (damaged, false) => format!("{} damaged", format_count(damaged.into())),
        };
        format!(
            "{}, {} in {:.2} s, {} MB/s, {verified}",
            format_counted(self.objects, "object", "objects"),
            format_size(self.content_bytes.into()),
            self.seconds,
            format_count(self.megabytes_per_second.round() as u128),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_one_line() {
        let mut document = LoadDocument {
            schema: "granulo/store-load/1",
            group: "/".to_owned(),
            objects: 50_000,
            content_bytes: 1_000_000_000,
            seconds: 0.25,
            megabytes_per_second: 4000.0,
            damaged: 0,
            interrupted: false,
        };
        assert_eq!(document.words(), "50,000 objects, 954 MiB in 0.25 s, 4,000 MB/s, all verified");
        document.damaged = 2;
        assert!(document.words().ends_with("MB/s, 2 damaged"));
    }
}
