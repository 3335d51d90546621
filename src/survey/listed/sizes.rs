//! Sizes one a line, in bytes, perhaps with allocated bytes and a name after it, as `find -printf '%s\n'` and scripts
//! write them. (`%b` of find is not the allocated bytes: it counts blocks of 512.)

use super::{Listed, lines, number};
use crate::units::escape;

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

pub(super) fn read(text: &[u8]) -> Result<Listed, String> {
    let mut listed = Listed::new();
    for (line_number, line) in lines(text) {
        match fields(line) {
            (Some(size_bytes), allocated_bytes, name) => listed.add(size_bytes, allocated_bytes, name),
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
}
