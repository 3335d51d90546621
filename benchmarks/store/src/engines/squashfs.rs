//! One squashfs image without compression, made by sqfstar from a tar stream and read through the kernel's mount.
//!
//! Small files share fragments, the default; the search for duplicates is off, because there are none. Mounting through
//! a loop device is part of opening.

use super::files::Tree;
use super::tape::append;
use super::{Engine, Piece, Reader, Result, Session, Writer};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

pub struct Squashfs;

impl Engine for Squashfs {
    fn create(&self, place: &Path, _objects: u64, _total_bytes: u64) -> Result<Box<dyn Writer>> {
        let image = place.join("objects.squashfs");
        let mut child = Command::new("sqfstar")
            .args(["-quiet", "-no-progress", "-noI", "-noD", "-noF", "-noX", "-no-duplicates", "-mem", "256M"])
            .arg(&image)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("sqfstar (package squashfs-tools): {error}"))?;
        let input = child.stdin.take().ok_or("no pipe")?;
        Ok(Box::new(Piping { archive: tar::Builder::new(BufWriter::with_capacity(1 << 20, input)), child, image }))
    }

    fn open(&self, place: &Path) -> Result<Box<dyn Reader>> {
        let point = place.join("mount");
        std::fs::create_dir_all(&point)?;
        run(Command::new("mount")
            .args(["-t", "squashfs", "-o", "loop,ro"])
            .arg(place.join("objects.squashfs"))
            .arg(&point))?;
        let mount = Mount(point);
        Ok(Box::new(Mounted { tree: Tree::open(&mount.0)?, _mount: mount }))
    }

    fn delete(&self, _place: &Path, _keys: &[String]) -> Result<bool> {
        Ok(false)
    }
}

fn run(command: &mut Command) -> Result<()> {
    let done = command.output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr).trim()).into()),
    }
}

struct Piping {
    archive: tar::Builder<BufWriter<ChildStdin>>,
    child: Child,
    image: PathBuf,
}

impl Writer for Piping {
    fn put(&mut self, key: &str, content: &[u8]) -> Result<()> {
        append(&mut self.archive, key, content)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        drop(self.archive.into_inner()?.into_inner()?);
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("sqfstar: {status}").into());
        }
        File::open(&self.image)?.sync_all()?;
        Ok(File::open(self.image.parent().unwrap_or(Path::new("/")))?.sync_all()?)
    }
}

/// Unmounts when dropped.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg(&self.0)) {
            eprintln!("{error}");
        }
    }
}

/// Field order matters: an open directory would keep the mount busy.
struct Mounted {
    tree: Tree,
    _mount: Mount,
}

impl Reader for Mounted {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        self.tree.session()
    }

    fn load(&self, visit: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        self.tree.load(visit)
    }

    fn list(&self, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.tree.list(visit)
    }

    fn list_attributes(&self, visit: &mut dyn FnMut(&[u8], u64)) -> Result<bool> {
        self.tree.list_attributes(visit)
    }
}
