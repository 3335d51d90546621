//! A geometry in sentences: where objects are placed, and which losses of devices it survives.

use super::{Class, Compression, Geometry, Survived};
use crate::layout::granulo::DEFAULT_PACKED_BYTES;
use crate::units::{format_count, format_size};

impl Geometry {
    /// What the geometry is and what it survives, one sentence each.
    pub fn explain(&self) -> Vec<String> {
        let mut sentences = vec![self.records(), self.stripes()];
        sentences.extend(self.packed());
        sentences.extend(self.compressed());
        sentences.extend(self.aligned());
        if self.has(Class::Fast) && self.has(Class::Slow) {
            let (high, low) = (self.high_watermark_percent, self.low_watermark_percent);
            sentences.push(format!(
                "When the fast devices are {high} % full, records go to slow ones, until they are down to {low} %."
            ));
        }
        sentences.extend(self.losses());
        sentences
    }

    fn records(&self) -> String {
        let largest = format_size(self.largest_record_bytes().into());
        let devices = self.record_devices().count();
        let copies = usize::from(self.copies);
        let each = match (copies, devices) {
            (1, 1) => "",
            (2, 2) => ", each on both",
            (3, 3) => ", each on all three",
            (1, _) => ", each on one of them",
            (2, _) => ", each on two of them",
            _ => ", each on three of them",
        };
        let on = if devices == 1 && self.devices.len() == 1 {
            "one device".to_owned()
        } else {
            self.counted(Class::Fast, devices)
        };
        format!("Records up to {largest} on {on}{each}.")
    }

    fn stripes(&self) -> String {
        let devices = self.stripe_devices().count();
        let over = if self.has(Class::Slow) && self.has(Class::Fast) {
            self.counted(Class::Slow, devices)
        } else if devices == 1 {
            "the same device".to_owned()
        } else {
            format!("the same {devices} devices")
        };
        match (self.data, self.parity) {
            (1, 0) if devices == 1 => format!("Larger files on {over}."),
            (1, 0) => format!("Larger files over {over}, each on one of them."),
            (data, 0) => format!("Larger files in stripes of {data} over {over}, without parity."),
            (data, parity) => format!("Larger files in stripes of {data} + {parity} over {over}."),
        }
    }

    fn packed(&self) -> Option<String> {
        let packed = format_size(self.packed_bytes.into());
        (self.packed_bytes != DEFAULT_PACKED_BYTES)
            .then(|| format!("The first {packed} of each of these are in a record, with the places of its stripes."))
    }

    fn compressed(&self) -> Option<String> {
        match self.compression {
            Compression::None => None,
            Compression::Zstd(level) => {
                Some(format!("Records are compressed with zstd, level {level}, where that makes them shorter."))
            }
        }
    }

    fn aligned(&self) -> Option<String> {
        let bytes = self.alignment.bytes()?;
        Some(format!("The content of files begins at multiples of {} bytes.", format_count(bytes.into())))
    }

    /// Which devices may be lost, which may not, and with what consequence.
    fn losses(&self) -> Vec<String> {
        let Survived { any, fast, slow } = self.survives();
        let mut sentences = Vec::new();
        if any > 0 {
            sentences.push(format!("{} may be lost.", any_devices(any, "")));
        }
        if fast > any {
            sentences.push(format!("{} may be lost if all slow ones stay.", any_devices(fast, "fast ")));
        }
        if slow > any {
            let if_only = "if all fast ones stay and no record has overflowed to them";
            sentences.push(format!("{} may be lost {if_only}.", any_devices(slow, "slow ")));
        }
        sentences.extend(self.lost_with_a_device());
        if self.parity > 0 {
            let width = usize::from(self.data + self.parity);
            let spare = self.stripe_devices().count() > width;
            let class = if self.has(Class::Fast) && self.has(Class::Slow) { "slow " } else { "" };
            sentences.push(if spare {
                format!("What a lost {class}device had can be rebuilt into spare space on the others.")
            } else {
                format!("What a lost {class}device had can be rebuilt onto a new one.")
            });
        }
        sentences
    }

    /// What has no redundancy and is lost with its device.
    fn lost_with_a_device(&self) -> Option<String> {
        let one_class = !self.has(Class::Fast) || !self.has(Class::Slow);
        let sentence = match (self.copies, self.parity) {
            (1, 0) if self.devices.len() == 1 => "Nothing is kept twice: damage is found, and cannot be repaired.",
            (1, 0) => {
                "Nothing is kept twice: damage is found, and cannot be repaired; what is on a lost device is lost."
            }
            (1, _) if one_class => {
                "Records are not kept twice: those on a lost device are lost, and the larger files they describe."
            }
            (1, _) => {
                "Records are not kept twice: those on a lost fast device are lost, and the larger files they describe."
            }
            (_, 0) if one_class => "Larger files have no parity: those with a part on a lost device are lost.",
            (_, 0) => "Larger files have no parity: those with a part on a lost slow device are lost.",
            _ => return None,
        };
        Some(sentence.to_owned())
    }

    /// `2 fast devices`, with the class that takes the role of `class` if it has no devices.
    fn counted(&self, class: Class, devices: usize) -> String {
        let other = if class == Class::Fast { Class::Slow } else { Class::Fast };
        let class = if self.has(class) { class } else { other };
        format!("{devices} {class} device{}", if devices == 1 { "" } else { "s" })
    }
}

fn any_devices(count: u8, class: &str) -> String {
    if count == 1 { format!("Any one {class}device") } else { format!("Any two {class}devices") }
}
