//! `granulo store ls`: the entries of a directory, as a stream: the first appear immediately, and memory does not grow
//! with their number.
//!
//! A plain listing reads the index alone. With `-l`, the records of symbolic links, devices and files with several
//! names are read too; a damaged one is reported, and its line shows what the index has.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde::Serialize;

use super::completeness::{ProgramRecord, program_record};
use super::record::{ObjectRecord, device_numbers};
use super::{
    Ended, StateToRead, Stop, emit_while_reading, find, is_damage, key, or_damage, output, write_while_reading,
};
use crate::cli::output::DocumentArguments;
use crate::error::Result;
use crate::report::store::ObjectType;
use crate::report::store::listing::{Columns, Line};
use crate::store::{Key, Listed, Store, Walk};
use crate::units::escape;

/// List a directory of a store, sorted by name
///
/// Names are escaped (\n, \xff), so a hostile name cannot control the terminal; -0 prints them unescaped. Times are
/// in UTC.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store ls /srv/s\n  granulo store ls /srv/s cats -l\n  granulo store ls /srv/s -R -0 | xargs -0 -n 1 echo"
)]
pub(super) struct ListArguments {
    #[command(flatten)]
    at: StateToRead,
    /// Directory or single object [default: the root]
    #[arg(value_name = "KEY", default_value = "/", hide_default_value = true)]
    key: OsString,
    /// Show mode, number of names, owner, group, size, modification time and name
    #[arg(short, long)]
    long: bool,
    /// List recursively, as paths relative to KEY
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print names unescaped, each followed by NUL
    #[arg(short = '0', long, conflicts_with_all = ["long", "json"])]
    null: bool,
    #[command(flatten)]
    document: DocumentArguments,
}

/// What the record of an object has and the index lacks.
#[derive(Debug, Default)]
struct Details {
    names: Option<u64>,
    target: Option<Vec<u8>>,
    device: Option<(u32, u32)>,
    /// The record could not be read.
    damaged: bool,
}

#[derive(Serialize)]
struct ListedRecord {
    name: String,
    #[serde(flatten)]
    object: ObjectRecord,
    #[serde(flatten)]
    details: Option<DetailsRecord>,
}

#[derive(Serialize)]
struct DetailsRecord {
    names: Option<u64>,
    target: Option<String>,
    device: Option<(u32, u32)>,
}

impl ListArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let key = key(&self.key)?;
        let store = self.at.open()?;
        or_damage(self.list(&store, &key))
    }

    fn list(&self, store: &Store, top: &Key) -> Result<Ended> {
        // The root exists even in a store without objects.
        let found = if top.is_root() { None } else { Some(find(store, top, "list")?) };
        let single = found.filter(|found| ObjectType::of(&found.entry) != ObjectType::Directory);
        // The name of a single object is the key as specified.
        let above = if single.is_some() { Key::root() } else { top.clone() };
        let what = Listing { store, top, above, single };
        // Damage is reported once.
        let mut damage = Damage::New;
        let written = emit_while_reading(&self.document, |out| {
            let ended = self.json(&what, what.entries(self.recursive)?, damage, out)?;
            damage = Damage::Known;
            Ok(ended)
        });
        // What became of the files does not matter to the list.
        let printed = self.print(&what, damage)?;
        Ok(printed.and(written? == Ended::Well))
    }

    fn print(&self, what: &Listing<'_>, damage: Damage) -> Result<Ended> {
        match (self.null, self.document.json, self.long) {
            (true, ..) => write_while_reading(io::stdout().lock(), |out| names(what, self.recursive, 0, out)),
            (_, true, _) => {
                let entries = what.entries(self.recursive)?;
                write_while_reading(io::stdout().lock(), |out| self.json(what, entries, damage, out))
            }
            (_, _, true) => {
                let entries = what.entries(self.recursive)?;
                write_while_reading(anstream::stdout().lock(), |out| long(what, entries, damage, out))
            }
            _ => write_while_reading(anstream::stdout().lock(), |out| names(what, self.recursive, b'\n', out)),
        }
    }

    fn json(
        &self,
        what: &Listing<'_>,
        entries: Entries<'_>,
        damage: Damage,
        out: &mut dyn Write,
    ) -> std::result::Result<Ended, Stop> {
        let mut ended = Ended::Well;
        let key = what.above.to_string();
        let head = Head { schema: "granulo/store-ls/1", program: program_record(), key };
        let head = serde_json::to_string(&head).map_err(io::Error::from)?;
        out.write_all(head.trim_end_matches('}').as_bytes())?;
        write!(out, ",\"entries\":[")?;
        for (index, listed) in entries.enumerate() {
            let listed = listed?;
            if index > 0 {
                out.write_all(b",")?;
            }
            let details = if self.long { Some(details(what.store, &listed, damage)?) } else { None };
            if details.as_ref().is_some_and(|details| details.damaged) {
                ended = Ended::Amiss;
            }
            let record = ListedRecord {
                name: escape(&name(&listed.key, &what.above)),
                object: ObjectRecord::new(listed.key.to_string(), &listed.entry, listed.shared),
                details: details.map(|details| DetailsRecord {
                    names: details.names,
                    target: details.target.map(|target| escape(&target)),
                    device: details.device,
                }),
            };
            serde_json::to_writer(&mut *out, &record).map_err(io::Error::from)?;
        }
        write!(out, "],\"completeness\":")?;
        serde_json::to_writer(&mut *out, &super::completeness::completeness_record()).map_err(io::Error::from)?;
        out.write_all(b"}\n")?;
        Ok(ended)
    }
}

/// What is listed.
struct Listing<'s> {
    store: &'s Store,
    top: &'s Key,
    /// Names are relative to it.
    above: Key,
    /// What `top` is, if it is no directory.
    single: Option<Listed>,
}

type Entries<'s> = Box<dyn Iterator<Item = Result<Listed>> + 's>;

impl Listing<'_> {
    /// The single object, or what is in the directory.
    fn entries(&self, is_recursive: bool) -> Result<Entries<'_>> {
        if let Some(found) = &self.single {
            let found: Result<Listed> = Ok(found.clone());
            return Ok(Box::new(std::iter::once(found)));
        }
        let (top, walk) = (self.top, self.walk(is_recursive)?);
        Ok(Box::new(walk.filter(move |listed| !listed.as_ref().is_ok_and(|listed| listed.key == *top))))
    }

    fn walk(&self, is_recursive: bool) -> Result<Walk> {
        if is_recursive { self.store.walk(self.top) } else { self.store.list(self.top) }
    }
}

/// Whether a record that cannot be read is to be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    New,
    /// It was reported when the same was listed before.
    Known,
}

/// What comes before the entries.
#[derive(Debug, Serialize)]
struct Head {
    schema: &'static str,
    #[serde(flatten)]
    program: ProgramRecord,
    key: String,
}

/// The path of `key` relative to `top`.
fn name(key: &Key, top: &Key) -> Vec<u8> {
    let below = key.below(top).unwrap_or_else(|| key.clone());
    below.to_path().as_os_str().as_bytes().to_vec()
}

/// Names only, of everything except `top` itself: escaped for a terminal if they end with a newline.
fn names(what: &Listing<'_>, is_recursive: bool, end: u8, out: &mut dyn Write) -> std::result::Result<Ended, Stop> {
    if let Some(found) = &what.single {
        write_name(&name(&found.key, &what.above), end, out)?;
        return Ok(Ended::Well);
    }
    let (top, mut walk) = (what.top, what.walk(is_recursive)?);
    let start = if top.is_root() { 0 } else { top.stored().len() + 1 };
    let mut name = Vec::new();
    while let Some(lent) = walk.lend()? {
        let Some(below) = lent.key.stored().get(start..).filter(|below| !below.is_empty()) else { continue };
        name.clear();
        name.extend(below.iter().map(|&byte| if byte == 0 { b'/' } else { byte }));
        write_name(&name, end, out)?;
    }
    Ok(Ended::Well)
}

fn write_name(name: &[u8], end: u8, out: &mut dyn Write) -> io::Result<()> {
    match end {
        0 => out.write_all(name)?,
        _ => out.write_all(escape(name).as_bytes())?,
    }
    out.write_all(&[end])
}

fn long(
    what: &Listing<'_>,
    entries: Entries<'_>,
    damage: Damage,
    out: &mut dyn Write,
) -> std::result::Result<Ended, Stop> {
    let mut columns = Columns::default();
    let mut ended = Ended::Well;
    for listed in entries {
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => {
                columns.finish(out)?;
                return Err(error.into());
            }
        };
        let details = details(what.store, &listed, damage)?;
        if details.damaged {
            ended = Ended::Amiss;
        }
        let line = Line {
            name: escape(&name(&listed.key, &what.above)),
            entry: &listed.entry,
            names: details.names.unwrap_or(1),
            device: details.device,
            target: details.target.map(|target| escape(&target)),
        };
        columns.add(line, out)?;
    }
    columns.finish(out)?;
    Ok(ended)
}

/// What the record of an object adds to the index; read only where it adds something.
fn details(store: &Store, listed: &Listed, damage: Damage) -> Result<Details> {
    match read_details(store, listed) {
        Err(error) if is_damage(&error) => {
            if damage == Damage::New {
                output::complain(&error);
            }
            Ok(Details { damaged: true, ..Details::default() })
        }
        other => other,
    }
}

fn read_details(store: &Store, listed: &Listed) -> Result<Details> {
    let object_type = ObjectType::of(&listed.entry);
    let mut details = Details { names: Some(1), ..Details::default() };
    if let Some(file) = listed.shared {
        // Removed since it was listed: the listing shows an earlier state, and the number of names is no longer known.
        details.names = Some(store.names_of(file)).filter(|&names| names > 0);
    }
    if object_type == ObjectType::Symlink {
        details.target = store.get(&listed.key)?;
    } else if object_type.is_device() {
        details.device = store.get(&listed.key)?.as_deref().and_then(device_numbers);
    }
    Ok(details)
}
