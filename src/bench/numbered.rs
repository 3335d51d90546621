//! Paths made of the digits of a number, formatted without allocation: file 12345 is `12/34/5`.

use std::ffi::CStr;

/// Space for 20 digits, a slash after each, and the NUL.
const ROOM: usize = 48;
const DIGITS: usize = 20;

/// A path, in a buffer that is reused.
#[derive(Debug, Clone)]
pub(super) struct NumberedPath {
    bytes: [u8; ROOM],
    length: usize,
    /// Digits per component.
    widths: Vec<usize>,
}

impl NumberedPath {
    /// Paths with these numbers of digits in their components.
    pub(super) fn new(widths: &[usize]) -> NumberedPath {
        NumberedPath { bytes: [0; ROOM], length: 0, widths: widths.to_vec() }
    }

    /// Paths with two digits in each component but the last, which has the rest of `digits`, one or two.
    pub(super) fn in_pairs(digits: usize) -> NumberedPath {
        let digits = digits.clamp(1, DIGITS);
        let last = if digits.is_multiple_of(2) { 2 } else { 1 };
        let mut widths = vec![2; (digits - last) / 2];
        widths.push(last);
        NumberedPath::new(&widths)
    }

    /// Directories above each file.
    pub(super) fn depth(&self) -> usize {
        self.widths.len() - 1
    }

    /// Number of files below one directory at `depth`, where 1 is the top.
    pub(super) fn below(&self, depth: usize) -> u64 {
        let digits: usize = self.widths[depth..].iter().sum();
        10u64.saturating_pow(digits as u32)
    }

    /// Sets the path of a number.
    pub(super) fn set(&mut self, number: u64) {
        self.set_directory(number, self.widths.len());
    }

    /// Sets the path of the directory at `depth` that contains a number.
    pub(super) fn set_directory(&mut self, number: u64, depth: usize) {
        let mut digits = [b'0'; DIGITS];
        let mut left = number;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        let mut from = DIGITS - self.widths.iter().sum::<usize>().min(DIGITS);
        self.length = 0;
        for (at, &width) in self.widths[..depth].iter().enumerate() {
            if at > 0 {
                self.bytes[self.length] = b'/';
                self.length += 1;
            }
            self.bytes[self.length..self.length + width].copy_from_slice(&digits[from..from + width]);
            self.length += width;
            from += width;
        }
        self.bytes[self.length] = 0;
    }

    /// Sets the path of a number among nested directories: the first below each top directory is that directory itself.
    pub(super) fn set_nested(&mut self, number: u64) {
        let depth = if number.is_multiple_of(self.below(1)) { 1 } else { self.widths.len() };
        self.set_directory(number, depth);
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.bytes[..=self.length]).unwrap_or_default()
    }
}

/// The number formed by the digits of a path, ignoring separators; `None` if there are no digits, or other characters.
pub(super) fn number_of(path: &[u8], separator: u8) -> Option<u64> {
    let mut number = None;
    for &byte in path.iter().filter(|&&byte| byte != separator) {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number = Some(number.unwrap_or(0u64).checked_mul(10)?.checked_add(digit)?);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_source() {
        for (digits, number, text) in [
            (5, 12_345, "12/34/5"),
            (5, 7, "00/00/7"),
            (3, 42, "04/2"),
            (2, 42, "42"),
            (1, 4, "4"),
            (8, 10_000_000, "10/00/00/00"),
            (20, u64::MAX, "18/44/67/44/07/37/09/55/16/15"),
        ] {
            let mut path = NumberedPath::in_pairs(digits);
            path.set(number);
            assert_eq!((path.as_bytes(), path.as_c_str().to_str()), (text.as_bytes(), Ok(text)));
            assert_eq!(number_of(text.as_bytes(), b'/'), Some(number));
        }
    }

    #[test]
    fn directories_are_beginnings_of_paths() {
        let mut path = NumberedPath::in_pairs(5);
        assert_eq!((path.depth(), path.below(1), path.below(2)), (2, 1000, 10));
        path.set_directory(12_340, 2);
        assert_eq!(path.as_bytes(), b"12/34");
        path.set_directory(12_340, 1);
        assert_eq!(path.as_bytes(), b"12");
        let mut path = NumberedPath::new(&[6, 3]);
        path.set(1_234_567);
        assert_eq!(path.as_bytes(), b"001234/567");
        path.set_nested(1_234_567);
        assert_eq!(path.as_bytes(), b"001234/567");
        path.set_nested(1_234_000);
        assert_eq!(path.as_bytes(), b"001234");
    }

    #[test]
    fn other_names_are_no_numbers() {
        for name in ["", "/", "12/a", "lost+found", "99999999999999999999999"] {
            assert_eq!(number_of(name.as_bytes(), b'/'), None, "{name}");
        }
    }
}
