//! A read-only mount follows the process that writes: what that makes durable is seen here within a second.
//!
//! The kernel keeps names and attributes for half a second only. Content that it caches it checks against the
//! modification time; for the rest, it is told which nodes are out of date.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::device::Device;
use super::file_system::FileSystem;
use super::wire::reply::outdated;
use crate::locks::lock;

/// How long one wait for the writer lasts.
const WAIT: Duration = Duration::from_millis(500);
/// Of more nodes than these only the open ones are told: the attributes of the others are soon asked for again, and
/// their content when they are opened.
const MOST_TOLD: usize = 10_000;

/// Takes in what the writer commits, until the file system is unmounted.
pub(super) fn follow(device: &Device, system: &FileSystem) {
    while !system.has_ended.load(Ordering::Relaxed) {
        match system.store.wait_for_change(WAIT) {
            Ok(true) => {
                system.mark_changed();
                // What is open is looked at again.
                let mut told = Vec::new();
                for live in system.nodes.all_live() {
                    lock(&live.state).info = None;
                    told.push(live.number);
                }
                let known = system.nodes.known();
                if known.len() <= MOST_TOLD {
                    told = known;
                }
                told.into_iter().for_each(|node| device.send(&outdated(node.0)));
            }
            Ok(false) => {}
            Err(error) => {
                // Whatever it is: no program hears of it, and from here on the mount stays as it is.
                system.log.say(&format!("cannot follow the writer: {error}"));
                std::thread::sleep(WAIT);
            }
        }
    }
}
