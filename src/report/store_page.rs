//! A page of stores: one self-contained HTML file, with the devices of each, what a rebuild of one would write, live
//! and dead bytes by age, and snapshots.
//!
//! Its data are documents that `granulo store status --json` prints (docs/SCHEMA.md); its scripts are in
//! `web/store*.js`.

use std::io;

use serde::Serialize;
use serde_json::Value;

use super::origin::told_apart;
use super::page::{Part, Scripts};
use crate::units::{format_counted, format_share, format_size, fraction};

const SCRIPTS: Scripts = Scripts {
    kind: "store",
    sections: include_str!("../../web/store-sections.js"),
    details: "",
    script: include_str!("../../web/store.js"),
};

#[derive(Serialize)]
struct Page<'a> {
    words: Vec<String>,
    stores: &'a [Value],
}

/// The part of stores on a page.
///
/// # Errors
/// When the data cannot be JSON.
pub(crate) fn part(stores: &[Value]) -> io::Result<Part> {
    let title = match stores {
        [only] => {
            let name = format!("Store {}", only["home"].as_str().unwrap_or_default());
            told_apart(&name, only["host"].as_str(), only["written_at"].as_str())
        }
        several => format!("{} stores", several.len()),
    };
    Part::new(title, &Page { words: stores.iter().flat_map(sentences).collect(), stores }, &SCRIPTS)
}

/// What matters most, in sentences: first what is wrong.
pub(crate) fn sentences(store: &Value) -> Vec<String> {
    let number = |field: &str| store[field].as_u64().unwrap_or(0);
    let (live, dead) = (number("live_bytes"), number("dead_bytes"));
    let first = match store["records_in_sight"].as_bool() {
        Some(true) => format!(
            "{} with {} are live; {} ({}) of what the log has is dead.",
            format_counted(number("records"), "record", "records"),
            format_size(live.into()),
            format_size(dead.into()),
            format_share(fraction(dead.into(), u128::from(live) + u128::from(dead))),
        ),
        _ => "No device with records is present, so what the devices have is unknown.".to_owned(),
    };
    let devices = store["devices"].as_array().map_or(&[][..], Vec::as_slice);
    let troubles = devices.iter().filter_map(|device| {
        device["trouble"].as_str().map(|trouble| format!("Device {} {trouble}.", device["number"]))
    });
    let redundancy = store["redundancy"].as_array().map_or(&[][..], Vec::as_slice);
    troubles.chain([first]).chain(redundancy.iter().filter_map(|it| it.as_str().map(str::to_owned))).collect()
}
