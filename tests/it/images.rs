//! File systems made for a test: an image that is mounted, and removed after it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::{has_program, is_root, sandbox, skip};

/// A mounted image; unmounted and removed when dropped.
pub struct Image {
    directory: TempDir,
    mounted: bool,
}

/// How an image is mounted.
pub enum Mount<'a> {
    /// By the kernel, through a loop device, with these options (`""` for none).
    Kernel(&'a str),
    /// By a FUSE program that takes the image and the mount point after these arguments.
    Fuse(&'a [&'a str]),
    /// By a FUSE program that needs a block device: the same, with a loop device instead of the image.
    FuseOnLoop(&'a [&'a str]),
}

impl Image {
    /// A sparse image of `size_bytes`, formatted by `mkfs` (a program and its arguments; the image comes last) and
    /// mounted. `None`, with the reason reported, where that is not possible here.
    pub fn make(size_bytes: u64, mkfs: &[&str], mount: Mount) -> Option<Image> {
        let programs = match mount {
            Mount::Kernel(_) => vec![mkfs[0], "mount", "umount"],
            Mount::Fuse(program) | Mount::FuseOnLoop(program) => vec![mkfs[0], program[0], "umount", "losetup"],
        };
        if let Some(missing) = programs.iter().find(|program| !has_program(program)) {
            skip(&format!("there is no {missing}"));
            return None;
        }
        if !is_root() || !Path::new("/dev/loop-control").exists() {
            skip("it mounts an image, which needs root and loop devices");
            return None;
        }
        let directory = sandbox();
        let mut image = Image { directory, mounted: false };
        File::create(image.file()).unwrap().set_len(size_bytes).unwrap();
        fs::create_dir(image.root()).unwrap();
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(image.file()));
        match mount {
            Mount::Kernel(options) => {
                let options = if options.is_empty() { "loop".to_owned() } else { format!("loop,{options}") };
                run(Command::new("mount").args(["-o", &options]).arg(image.file()).arg(image.root()));
            }
            Mount::Fuse(program) => {
                run(Command::new(program[0]).args(&program[1..]).arg(image.file()).arg(image.root()));
            }
            Mount::FuseOnLoop(program) => {
                let device = run(Command::new("losetup").args(["--find", "--show"]).arg(image.file()));
                let device = device.trim().to_owned();
                let mounted = Command::new(program[0]).args(&program[1..]).arg(&device).arg(image.root()).output();
                // Detached when the last user closes it.
                run(Command::new("losetup").arg("--detach").arg(&device));
                assert!(mounted.unwrap().status.success(), "{program:?}");
            }
        }
        image.mounted = true;
        Some(image)
    }

    /// Unmounts it, so that the image is complete, even if a mount namespace of another test still holds the mount.
    pub fn unmount(&mut self) {
        // What is no file system of the kernel may refuse it, and is not held.
        let _ = Command::new("mount").args(["-o", "remount,ro"]).arg(self.root()).output();
        run(Command::new("umount").arg(self.root()));
        self.mounted = false;
    }

    /// Its mount point.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// The image itself.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("image")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.mounted {
            let done = Command::new("umount").arg(self.root()).status().is_ok_and(|status| status.success());
            if !done {
                let _ = Command::new("umount").arg("--lazy").arg(self.root()).status();
            }
        }
    }
}

/// Runs a command that must succeed; returns its output.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
