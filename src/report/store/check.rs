//! The result of `granulo store check`, in words.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::chart::{columns, wrap};
use crate::report::origin::told_apart;
use crate::report::paragraphs::{HEADING, prose};
use crate::units::{format_count, format_counted, format_size};

/// What a check looked at, and how many problems there are.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Checked {
    pub(crate) deep: bool,
    pub(crate) complete: bool,
    pub(crate) index_rebuilt: bool,
    pub(crate) keys: u64,
    pub(crate) segments: u64,
    pub(crate) tables: u64,
    pub(crate) large_objects: u64,
    pub(crate) verified_bytes: u64,
    pub(crate) quarantined_bytes: u64,
    /// Number of all problems, including those that are not listed.
    pub(crate) problem_count: u64,
    pub(crate) repairable: u64,
    pub(crate) rebuildable: u64,
    pub(crate) of_index: u64,
    pub(crate) harmless: u64,
    pub(crate) lost: u64,
}

impl Checked {
    /// The result in a sentence; `store_is_complete`: nothing acknowledged is missing. Whether the check ran to its end
    /// is `complete`.
    pub(crate) fn sentence(&self, store_is_complete: bool) -> String {
        let looked = format!(
            "{}, {}, {}{}",
            format_counted(self.keys, "key", "keys"),
            format_counted(self.segments, "segment", "segments"),
            format_counted(self.tables, "table", "tables"),
            match self.deep {
                true => format!(", every byte of {}", format_size(self.verified_bytes.into())),
                false => ", metadata".to_owned(),
            }
        );
        let parts = [
            (self.repairable, "repairable"),
            (self.rebuildable, "of devices"),
            (self.of_index, "of the index"),
            (self.harmless, "harmless"),
            (self.lost, "lost"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{} {what}", format_count((*count).into())))
            .collect();
        let quarantine = match self.quarantined_bytes {
            0 => String::new(),
            bytes => format!("; {} in quarantine, to be freed by compact", format_size(bytes.into())),
        };
        let end = if self.complete { quarantine } else { "; interrupted".to_owned() };
        match parts.is_empty() {
            true if store_is_complete => format!("{looked}: no problems{end}"),
            true => format!("{looked}: no problems in what is present, but the store is incomplete{end}"),
            false => {
                let problems = format_counted(self.problem_count, "problem", "problems");
                format!("{looked}: {problems}: {}{end}", parts.join(", "))
            }
        }
    }
}

/// The sentence of a document.
///
/// # Errors
/// It is none of a check.
pub(crate) fn sentence(check: &Value) -> io::Result<String> {
    let checked = Checked::deserialize(check)?;
    Ok(format!("{}.", checked.sentence(check["completeness"]["state"] != "incomplete")))
}

/// Of which store it is, on which machine, and when.
pub(crate) fn title(check: &Value) -> String {
    let text = |field: &str| check[field].as_str();
    let name = text("home").map_or_else(|| "Store check".to_owned(), |home| format!("Check of {home}"));
    told_apart(&name, text("host"), text("written_at"))
}

/// The document: title, sentence, and the problems that it lists as the command printed them, without its advice.
///
/// # Errors
/// It is none of a check, and any error of `out`.
pub(crate) fn write_check(check: &Value, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{HEADING}{}{HEADING:#}", title(check))?;
    prose(&sentence(check)?, out)?;
    let problems = check["problems"].as_array().map_or(&[][..], Vec::as_slice);
    for problem in problems {
        let text = |field: &str| problem[field].as_str().unwrap_or_default();
        let range = match (problem["range"][0].as_u64(), problem["range"][1].as_u64()) {
            (Some(from), Some(to)) => format!(", bytes {from} to {to}"),
            _ => String::new(),
        };
        let object = problem["object"].as_str().map_or_else(String::new, |object| format!("; it affects {object}"));
        let line = format!("{}: {}{range}: {}{object}", remedy_word(text("remedy")), text("path"), text("cause"));
        wrap(&line, columns()).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    let count = check["problem_count"].as_u64().unwrap_or_default();
    if count > problems.len() as u64 {
        let listed = format_count(problems.len() as u128);
        writeln!(out, "These are the first {listed} of {}.", format_count(count.into()))?;
    }
    Ok(())
}

/// The severity of a problem with this remedy.
fn remedy_word(remedy: &str) -> &str {
    match remedy {
        "repair" => "repairable",
        "rebuild" | "return" => "device",
        "rebuild_index" => "index",
        other => other,
    }
}
