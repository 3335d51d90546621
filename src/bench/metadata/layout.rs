//! The targets: file systems on slow and fast devices, and stores with the three layouts that the paper compares.
//!
//! | layout | the paper | here |
//! | --- | --- | --- |
//! | slow | blades with two disks | one or several slow devices, the index on the first |
//! | hybrid | blades with an SSD and two disks | home, index and small objects on a fast device, large objects on slow ones |
//! | fast | – | one fast device |

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::files::SPARE_FILES;
use super::{MetadataRequest, Part, check};
use crate::bench::emulate::Emulation;
use crate::bench::file_systems::{FileSystemKind, FileSystemSpec};
use crate::bench::place::{Besides, Place, Prepared, name_on};
use crate::bench::programs;
use crate::bench::result::SubjectKind;
use crate::bench::run::Run;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Plan;
use crate::units::{MIB, format_size};

/// Space of a file system beyond its content: journal, tables, open segments.
const SPARE_BYTES: u64 = 512 << 20;
/// Space of an object in a store beyond its content, on its devices and in its index, doubled while index tables are
/// merged.
const OBJECT_BYTES: u64 = 640;
/// Largest image size that is chosen automatically.
const LARGEST_IMAGE_BYTES: u64 = 1 << 44;

/// The devices of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreLayout {
    /// Slow devices only.
    Slow,
    /// A fast device, and slow ones for large objects.
    Hybrid,
    /// A fast device only.
    Fast,
}

impl StoreLayout {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            StoreLayout::Slow => "slow",
            StoreLayout::Hybrid => "hybrid",
            StoreLayout::Fast => "fast",
        }
    }
}

impl FromStr for StoreLayout {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<StoreLayout, String> {
        let all = [StoreLayout::Slow, StoreLayout::Hybrid, StoreLayout::Fast];
        all.into_iter()
            .find(|layout| layout.name() == text)
            .ok_or_else(|| format!("'{text}' is not a layout of a store; the layouts are slow, hybrid and fast"))
    }
}

/// Stores to create on file systems of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stores {
    /// Layouts to create.
    pub layouts: Vec<StoreLayout>,
    /// The file system of their devices.
    pub file_system: FileSystemSpec,
    /// Limits of the slow devices.
    pub emulation: Emulation,
    /// Number of slow devices per store.
    pub slow_devices: u64,
}

/// A place, and what to create there.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(super) place: Prepared,
    /// The plan of a store.
    pub(super) plan: Plan,
    /// Home of a store, or directory of the files.
    pub(super) directory: PathBuf,
}

impl MetadataRequest {
    /// Number of files and directories to create.
    pub(super) fn entries(&self) -> u64 {
        let directories = self.files.div_ceil(self.directory_files).saturating_mul(2);
        self.files.saturating_add(self.listed).saturating_add(directories).saturating_add(SPARE_FILES + 16)
    }

    /// Size of file systems of these kinds, also as the base of a store if `is_for_store`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the size is absurd.
    pub(crate) fn room_bytes(&self, kinds: &[FileSystemKind], is_for_store: bool) -> Result<u64> {
        let entry_bytes = kinds.iter().map(|&kind| entry_bytes(kind)).max().unwrap_or(0);
        let entry_bytes = entry_bytes.max(if is_for_store { OBJECT_BYTES } else { 0 });
        let content_bytes = self.file_set()?.totals(4096).1;
        let bytes = self.entries().saturating_mul(entry_bytes).saturating_add(content_bytes);
        let bytes = bytes.saturating_add(bytes / 6).saturating_add(SPARE_BYTES);
        if bytes > LARGEST_IMAGE_BYTES {
            let cause = format!("they would need an image of {}", format_size(bytes.into()));
            return Err(Error::new(ErrorKind::Usage, "create so many files", cause).advise("use fewer files"));
        }
        Ok(bytes.next_multiple_of(MIB))
    }
}

/// Approximate space of an empty file and its name.
fn entry_bytes(kind: FileSystemKind) -> u64 {
    match kind {
        FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4 => 384,
        FileSystemKind::Xfs => 1024,
        // Btrfs keeps its metadata twice.
        FileSystemKind::Btrfs => 2048,
        FileSystemKind::Ntfs => 1600,
        FileSystemKind::Fat | FileSystemKind::Exfat => 192,
    }
}

/// The same file system, with one inode per file where inodes are created in advance.
fn with_inodes(spec: &FileSystemSpec, entries: u64) -> FileSystemSpec {
    let decides = |option: &String| ["-N", "-i", "-T"].iter().any(|name| option.starts_with(name));
    let is_ext = matches!(spec.kind, FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4);
    let mut spec = spec.clone();
    if is_ext && !spec.make_options.iter().any(decides) {
        spec.make_options.extend(["-N".to_owned(), (entries + entries / 20 + 1024).to_string()]);
    }
    spec
}

/// Prepares all places: those that are named, what is asked for besides in each of them, and stores of several layouts,
/// also mounted if that is asked for.
///
/// # Errors
/// Same as [`Run::prepare`]; a missing program that checks a file system, with its package.
pub(crate) fn prepare(
    run: &mut Run,
    request: &MetadataRequest,
    places: &[Place],
    besides: Besides,
    stores: Option<&Stores>,
) -> Result<Vec<Subject>> {
    for place in places {
        if let Place::FileSystem(spec) = place
            && request.has(Part::Check)
            && let Some((program, _)) = check::program(spec.kind)
        {
            programs::find(program)?;
        }
    }
    let entries = request.entries();
    let more: Vec<Place> = places
        .iter()
        .map(|place| match place {
            Place::FileSystem(spec) => Place::FileSystem(with_inodes(spec, entries)),
            Place::Directory(_) => place.clone(),
        })
        .collect();
    let names = names(places);
    let mut prepared = run.prepare(&more, besides)?.into_iter();
    let mut subjects = Vec::new();
    for name in names {
        for kind in besides.kinds() {
            let Some(mut place) = prepared.next() else { continue };
            if let Some(name) = &name {
                place.rename(name_on(kind, name));
            }
            if let Some(cause) = place.cannot_grow_directories() {
                let error = Error::new(ErrorKind::Usage, "create the files on", cause).at(Path::new(place.name()));
                return Err(error.advise("omit fat, or use a kernel with vfat"));
            }
            let directory = place.directory().to_owned();
            subjects.push(Subject { place, plan: Plan::default(), directory });
        }
    }
    for &layout in stores.iter().flat_map(|stores| &stores.layouts) {
        if let Some(stores) = stores {
            subjects.push(prepare_store(run, layout, stores, entries)?);
            if besides.mount {
                let Subject { place, plan, directory: home } = prepare_store(run, layout, stores, entries)?;
                let mut place = place.mounted(&home, plan)?;
                place.rename(format!("mount {}", layout.name()));
                let directory = place.directory().to_owned();
                subjects.push(Subject { place, plan: Plan::default(), directory });
            }
        }
    }
    Ok(subjects)
}

/// Names of the file systems: without the options that are added here, and with their device only where names would be
/// equal otherwise.
fn names(places: &[Place]) -> Vec<Option<String>> {
    let name = |place: &Place| match place {
        Place::FileSystem(spec) => Some(spec.name()),
        Place::Directory(_) => None,
    };
    let shown = |place: &Place| {
        let alike = places.iter().filter(|other| name(other) == name(place)).count();
        match place {
            Place::FileSystem(spec) if alike > 1 => {
                Some(format!("{} {}", spec.name(), if spec.emulation.is_some() { "slow" } else { "fast" }))
            }
            place => name(place),
        }
    };
    places.iter().map(shown).collect()
}

fn prepare_store(run: &mut Run, layout: StoreLayout, stores: &Stores, entries: u64) -> Result<Subject> {
    let file_system = with_inodes(&stores.file_system, entries);
    let fast = FileSystemSpec { emulation: None, ..file_system.clone() };
    let slow = FileSystemSpec { emulation: Some(stores.emulation), ..file_system };
    let (first, further) = match layout {
        StoreLayout::Slow => (&slow, stores.slow_devices - 1),
        StoreLayout::Hybrid => (&fast, stores.slow_devices),
        StoreLayout::Fast => (&fast, 0),
    };
    let mut place = run.prepare_file_system(first.clone(), SubjectKind::Store)?;
    for _ in 0..further {
        place.join(run.prepare_file_system(slow.clone(), SubjectKind::Store)?);
    }
    place.rename(format!("granulo {}", layout.name()));
    let home = place.directory().join("home");
    let device = |directory: &Path| directory.join("device");
    let mine = device(place.directory());
    let others = place.further().iter().map(|further| device(further.directory()));
    let plan = match layout {
        StoreLayout::Hybrid => Plan { fast: vec![mine], slow: others.collect(), ..Plan::default() },
        // The home is the only device.
        _ if further == 0 => Plan::default(),
        _ => Plan { slow: std::iter::once(mine).chain(others).collect(), ..Plan::default() },
    };
    Ok(Subject { place, plan, directory: home })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ext4() -> FileSystemSpec {
        FileSystemSpec::new(FileSystemKind::Ext4, 1 << 30)
    }

    #[test]
    fn inodes_are_as_many_as_files_unless_said_otherwise() {
        let spec = with_inodes(&ext4(), 1_000_000);
        assert_eq!(spec.make_options, ["-N", "1051024"]);
        let own = ext4().with_options("-i 4096").unwrap();
        assert_eq!(with_inodes(&own, 1_000_000), own);
        let xfs = FileSystemSpec::new(FileSystemKind::Xfs, 1 << 30);
        assert_eq!(with_inodes(&xfs, 1_000_000), xfs);
    }

    #[test]
    fn devices_are_named_where_only_they_differ() {
        let slow = FileSystemSpec { emulation: Some(Emulation::default()), ..ext4() };
        let both = [Place::FileSystem(slow.clone()), Place::FileSystem(ext4()), Place::Directory("a".into())];
        assert_eq!(names(&both), [Some("ext4 slow".to_owned()), Some("ext4 fast".to_owned()), None]);
        assert_eq!(names(&[Place::FileSystem(slow)]), [Some("ext4".to_owned())]);
    }

    #[test]
    fn layouts_have_names() {
        for layout in [StoreLayout::Slow, StoreLayout::Hybrid, StoreLayout::Fast] {
            assert_eq!(layout.name().parse(), Ok(layout));
        }
        assert!("warm".parse::<StoreLayout>().is_err());
    }
}
