//! Mount options, as after `-o` and in `/etc/fstab`.

use std::path::PathBuf;
use std::time::Duration;

use rustix::mount::MountFlags;

use crate::cli::usage_error;
use crate::error::Result;
use crate::store::OpenOptions;
use crate::store::bucket::BucketOptions;

/// Options that mount(8) or others act on, or that change nothing here.
const IGNORED: [&str; 23] = [
    "defaults",
    "auto",
    "noauto",
    "_netdev",
    "nofail",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "async",
    "silent",
    "loud",
    "default_permissions",
    "norelatime",
    "nostrictatime",
    "symfollow",
    // Times of files that are written are always kept in memory first.
    "lazytime",
    "nolazytime",
    // There is no change counter to turn on, and no mandatory locking in Linux since 5.15.
    "iversion",
    "noiversion",
    "mand",
    "nomand",
];

/// Options of the kernel: name, flags that it sets, flags that it clears.
const FLAGS: [(&str, MountFlags, MountFlags); 16] = {
    const NONE: MountFlags = MountFlags::empty();
    [
        ("ro", MountFlags::RDONLY, NONE),
        ("suid", NONE, MountFlags::NOSUID),
        ("nosuid", MountFlags::NOSUID, NONE),
        ("dev", NONE, MountFlags::NODEV),
        ("nodev", MountFlags::NODEV, NONE),
        ("exec", NONE, MountFlags::NOEXEC),
        ("noexec", MountFlags::NOEXEC, NONE),
        ("atime", NONE, MountFlags::NOATIME),
        ("noatime", MountFlags::NOATIME, NONE),
        ("relatime", MountFlags::RELATIME, NONE),
        ("strictatime", MountFlags::STRICTATIME, NONE),
        ("diratime", NONE, MountFlags::NODIRATIME),
        ("nodiratime", MountFlags::NODIRATIME, NONE),
        ("sync", MountFlags::SYNCHRONOUS, NONE),
        ("dirsync", MountFlags::DIRSYNC, NONE),
        ("nosymfollow", MountFlags::NOSYMFOLLOW, NONE),
    ]
};

/// What mount options say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) flags: MountFlags,
    /// Writing was asked for by name.
    pub(super) is_rw_asked: bool,
    pub(super) allow_other: bool,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) commit_every: Option<Duration>,
    pub(super) free_every: Option<Duration>,
    pub(super) devices: Vec<PathBuf>,
    pub(super) is_degraded: bool,
    pub(super) log: Option<PathBuf>,
    /// The snapshot to mount.
    pub(super) at: Option<String>,
    /// How its bucket is used.
    pub(super) bucket: BucketOptions,
}

impl Default for Options {
    /// Set-id bits and devices in a store may come from anybody, so they have no effect unless that is asked for.
    fn default() -> Options {
        Options {
            flags: MountFlags::NOSUID | MountFlags::NODEV,
            is_rw_asked: false,
            allow_other: false,
            uid: None,
            gid: None,
            commit_every: None,
            free_every: None,
            devices: Vec::new(),
            is_degraded: false,
            log: None,
            at: None,
            bucket: BucketOptions::default(),
        }
    }
}

impl Options {
    pub(super) fn is_read_only(&self) -> bool {
        self.flags.contains(MountFlags::RDONLY)
    }

    /// How the store is opened.
    pub(super) fn to_open(&self) -> OpenOptions {
        OpenOptions {
            devices: self.devices.clone(),
            degraded: self.is_degraded,
            bucket: self.bucket.clone(),
            ..OpenOptions::default()
        }
    }

    /// Mounts a snapshot, which is read-only.
    pub(super) fn set_at(&mut self, snapshot: &str) {
        self.at = Some(snapshot.to_owned());
        self.flags |= MountFlags::RDONLY;
    }

    /// Takes options in, separated by commas; later ones count.
    ///
    /// # Errors
    /// [`Usage`](crate::error::ErrorKind::Usage) for one that is unknown or has an impossible value.
    pub(super) fn take(&mut self, list: &str) -> Result<()> {
        list.split(',').map(str::trim).filter(|option| !option.is_empty()).try_for_each(|option| self.take_one(option))
    }

    fn take_one(&mut self, option: &str) -> Result<()> {
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        if let (Some((_, set, clear)), None) = (FLAGS.iter().find(|(known, ..)| *known == name), value) {
            self.flags = (self.flags - *clear) | *set;
            return Ok(());
        }
        match (name, value) {
            ("rw", None) => {
                // A snapshot is read-only, wherever it is named.
                self.flags.set(MountFlags::RDONLY, self.at.is_some());
                self.is_rw_asked = true;
            }
            ("allow_other", None) => self.allow_other = true,
            ("degraded", None) => self.is_degraded = true,
            ("uid", Some(value)) => self.uid = Some(number(option, value)?),
            ("gid", Some(value)) => self.gid = Some(number(option, value)?),
            ("commit", Some(value)) => self.commit_every = Some(duration(option, value)?),
            ("free", Some(value)) => self.free_every = Some(duration(option, value)?),
            ("device", Some(value)) => self.devices.push(value.into()),
            ("log", Some(value)) => self.log = Some(value.into()),
            ("at", Some(value)) => self.set_at(value),
            #[cfg(feature = "bucket")]
            ("endpoint", Some(value)) => self.bucket.endpoint = Some(value.into()),
            #[cfg(feature = "bucket")]
            ("region", Some(value)) => self.bucket.region = Some(value.into()),
            #[cfg(feature = "bucket")]
            ("slow_class", Some(value)) => self.bucket.slow_class = Some(value.into()),
            #[cfg(feature = "bucket")]
            ("fast_class", Some(value)) => self.bucket.fast_class = Some(value.into()),
            #[cfg(feature = "bucket")]
            ("bucket_cache", Some(value)) => self.bucket.cache = Some(value.into()),
            #[cfg(feature = "bucket")]
            ("bucket_poll", Some(value)) => self.bucket.poll = duration(option, value)?,
            ("remount", None) => {
                return Err(usage_error("a mounted store cannot be remounted: unmount it, and mount it again"));
            }
            (name, None) if IGNORED.contains(&name) => {}
            ("comment" | "helper" | "uhelper" | "user", Some(_)) => {}
            (name, _) if name.starts_with("x-") || name.starts_with("X-") => {}
            _ => return Err(unknown(option)),
        }
        Ok(())
    }
}

fn number(option: &str, value: &str) -> Result<u32> {
    value.parse().map_err(|_| usage_error(format!("the mount option {option} needs a number")))
}

/// Seconds, or a duration with its unit.
fn duration(option: &str, value: &str) -> Result<Duration> {
    let seconds = || value.parse::<u32>().ok().map(|seconds| Duration::from_secs(seconds.into()));
    seconds().or_else(|| humantime::parse_duration(value).ok()).ok_or_else(|| {
        usage_error(format!("the mount option {option} needs a number of seconds, or a duration such as 500ms or 1m"))
    })
}

fn unknown(option: &str) -> crate::error::Error {
    let flags: Vec<&str> = FLAGS.iter().map(|(name, ..)| *name).collect();
    usage_error(format!("the mount option {option:?} is unknown")).advise(format!(
        "known are {}, rw, allow_other, uid=ID, gid=ID, commit=DURATION, free=DURATION, device=DIR, degraded, log=FILE, at=SNAPSHOT, and \
         those of mount(8)",
        flags.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(list: &str) -> Options {
        let mut options = Options::default();
        options.take(list).unwrap();
        options
    }

    #[test]
    fn options_are_as_people_know_them() {
        let some = options("ro,allow_other,default_permissions,uid=7,gid=8,noatime,commit=1,dev,x-systemd.automount");
        assert_eq!((some.uid, some.gid, some.commit_every), (Some(7), Some(8), Some(Duration::from_secs(1))));
        assert!(some.is_read_only() && some.allow_other);
        assert_eq!(some.flags, MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOATIME);
        assert!(!options("ro,rw").is_read_only());
        let some = options("defaults,noauto,_netdev,nofail,user,user=anna,,comment=a,lazytime,nomand,iversion");
        assert_eq!(some, Options::default());
        assert_eq!(options("rw"), Options { is_rw_asked: true, ..Options::default() });
        assert_eq!(options("nosymfollow").flags, Options::default().flags | MountFlags::NOSYMFOLLOW);
        let durations = options("commit=500ms,free=2m");
        assert_eq!(
            durations.commit_every.zip(durations.free_every),
            Some((Duration::from_millis(500), Duration::from_secs(120)))
        );
    }

    #[cfg(feature = "bucket")]
    #[test]
    fn a_line_of_fstab_has_all_that_a_bucket_needs() {
        let bucket = options("_netdev,endpoint=http://127.0.0.1:9000,region=eu-west-3,slow_class=COLD").bucket;
        assert_eq!(bucket.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!((bucket.region.as_deref(), bucket.slow_class.as_deref()), (Some("eu-west-3"), Some("COLD")));
    }

    #[test]
    fn unknown_ones_are_refused() {
        for wrong in ["rdonly", "uid", "uid=root", "ro=1", "commit=soon", "remount"] {
            assert_eq!(Options::default().take(wrong).unwrap_err().kind(), crate::error::ErrorKind::Usage, "{wrong}");
        }
        let error = Options::default().take("nosuch").unwrap_err().to_string();
        assert!(error.contains("nosuch") && error.contains("allow_other"), "{error}");
    }
}
