//! Sizes one a line, in bytes, perhaps with allocated bytes and a name after it, as `find -printf '%s\n'` and scripts
//! write them.
//!
//! find has no directive for allocated bytes: its `%b` counts blocks of 512 bytes. A second column that can only be
//! such blocks is read as them. It can where the blocks would hold the file with little to spare, and the number is no
//! multiple of 512, as allocated bytes are.

use super::{Listed, MOST_FILE_BYTES, lines, number};
use crate::units::escape;

/// Bytes of a block that `find -printf %b` counts.
const BLOCK_BYTES: u64 = 512;
/// What blocks may have beyond twice the size of their file: a large block of a file system.
const SPARE_BYTES: u64 = 64 << 10;
/// Lines that decide whether a text is a list.
const LOOKED_AT: usize = 3;

/// Whether the first lines begin with a number.
pub(super) fn looks_like(text: &[u8]) -> bool {
    let mut first = lines(text).take(LOOKED_AT).peekable();
    first.peek().is_some() && first.all(|(_, line)| fields(line).0.is_some())
}

/// Size, allocated bytes and name of a line.
fn fields(line: &[u8]) -> (Option<u64>, Option<u64>, Option<&[u8]>) {
    let is_gap = |byte: &u8| matches!(byte, b' ' | b'\t' | b',');
    let split = |text: &[u8]| text.iter().position(is_gap);
    let cut = |text| -> (&[u8], &[u8]) {
        let text: &[u8] = text;
        split(text).map_or((text, &[]), |at| (&text[..at], text[at + 1..].trim_ascii_start()))
    };
    let (size, rest) = cut(line);
    let (second, name) = cut(rest);
    match number(second) {
        Some(allocated) => (number(size), Some(allocated), (!name.is_empty()).then_some(name)),
        // A name without allocated bytes before it may have gaps.
        None => (number(size), None, (!rest.is_empty()).then_some(rest)),
    }
}

/// What the second numbers of a text are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Second {
    Bytes,
    Blocks,
    /// Bytes, which no file system has allocated so.
    OddBytes,
}

impl Second {
    fn of(text: &[u8]) -> Second {
        let (mut bytes, mut blocks, mut odd) = (0_u64, 0_u64, 0_u64);
        let pairs = lines(text).filter_map(|(_, line)| match fields(line) {
            (Some(size), Some(second), _) if size > 0 && second > 0 => Some((size, second)),
            _ => None,
        });
        for (size, second) in pairs {
            let held = second.saturating_mul(BLOCK_BYTES);
            match () {
                () if second.is_multiple_of(BLOCK_BYTES) => bytes += 1,
                () if (size..=size.saturating_mul(2).saturating_add(SPARE_BYTES)).contains(&held) => blocks += 1,
                () => odd += 1,
            }
        }
        match () {
            () if blocks > bytes + odd => Second::Blocks,
            () if blocks + odd > 0 => Second::OddBytes,
            () => Second::Bytes,
        }
    }

    fn warning(self) -> Option<&'static str> {
        match self {
            Second::Bytes => None,
            Second::Blocks => Some(
                "its second column is read as blocks of 512 bytes, as find -printf %b prints them: allocated bytes \
                 would be multiples of 512",
            ),
            Second::OddBytes => Some(
                "its second column is read as allocated bytes, but not all are multiples of 512: give names without a \
                 number before them if they are no such bytes",
            ),
        }
    }
}

pub(super) fn read(text: &[u8]) -> Result<Listed, String> {
    let mut listed = Listed::new();
    let second = Second::of(text);
    listed.warnings.extend(second.warning().map(str::to_owned));
    let unit_bytes = if second == Second::Blocks { BLOCK_BYTES } else { 1 };
    for (line_number, line) in lines(text) {
        match fields(line) {
            (Some(size_bytes), second, name) => {
                let allocated = second.map(|number| number.saturating_mul(unit_bytes).min(MOST_FILE_BYTES));
                listed.add(size_bytes, allocated, name);
            }
            _ => {
                let shown = escape(line.get(..40).unwrap_or(line));
                return Err(format!("line {line_number} does not begin with a size in bytes: '{shown}'"));
            }
        }
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::measure::Measure;

    #[test]
    fn sizes_may_have_allocated_bytes_and_names() {
        let text = b"10\n 0 \n\n5000 8192\n7\ta name.TXT\n70000,73728,dir/b.txt\n";
        assert!(looks_like(text));
        let (survey, _) = read(text).unwrap().survey();
        assert_eq!((survey.counts.files, survey.counts.empty_files), (5, 1));
        assert_eq!(survey.size_bytes(), 10 + 5000 + 7 + 70_000);
        assert_eq!(survey.distributions.of(Measure::Allocated).total(), 8192 + 73_728);
        assert_eq!(survey.places.unwrap().extensions.ranked()[0].1.files, 2);
        for wrong in [&b""[..], b"-1\n", b"x 1\n", b"99999999999999999999\n"] {
            assert!(!looks_like(wrong));
        }
        assert!(read(b"1\n2\n3\nfour\n").err().unwrap().contains("line 4"));
    }

    #[test]
    fn blocks_of_find_are_no_bytes() {
        let allocated = |text: &[u8]| {
            let (survey, warnings) = read(text).unwrap().survey();
            (survey.allocated_bytes(), warnings.join(" "))
        };
        // A small file, one within its inode, a sparse one, and one of many blocks.
        let (bytes, warning) = allocated(b"10 8 a\n60 0 b\n1000000 8 c\n3000000 5864 d\n4096 8 e e\n");
        assert_eq!(bytes, 512 * (8 + 8 + 5864 + 8));
        assert!(warning.contains("blocks of 512"), "{warning}");
        let (bytes, warning) = allocated(b"10 4096 a\n60 0 b\n1000000 4096 c\n3000000 3002368 d\n");
        assert_eq!((bytes, warning.as_str()), (4096 + 4096 + 3_002_368, ""));
        // Packed sizes of an archive: neither.
        let (bytes, warning) = allocated(b"100000 30001 a\n500000 100003 b\n");
        assert_eq!(bytes, 130_004);
        assert!(warning.contains("not all are multiples"), "{warning}");
        assert_eq!(allocated(b"7 2024\n12\n").0, 2024);
    }
}
