//! Names of the n-th file and its directory, formatted without allocation: `file-7`, `d1/file-7`.

use std::ffi::CStr;

/// Space for `d18446744073709551615/file-18446744073709551615` and the NUL.
const ROOM: usize = 64;

/// The name of a file, in a buffer that is reused.
#[derive(Debug)]
pub(super) struct Name {
    bytes: [u8; ROOM],
    length: usize,
}

impl Name {
    pub(super) fn new() -> Name {
        Name { bytes: [0; ROOM], length: 0 }
    }

    /// Sets the name of a file; the directory is numbered from 1, 0 for none.
    pub(super) fn set_file(&mut self, directory: u64, number: u64) {
        self.length = 0;
        if directory > 0 {
            self.push(b"d");
            self.push_number(directory);
            self.push(b"/");
        }
        self.push(b"file-");
        self.push_number(number);
        self.bytes[self.length] = 0;
    }

    /// Sets the name of a directory.
    pub(super) fn set_directory(&mut self, directory: u64) {
        self.length = 0;
        self.push(b"d");
        self.push_number(directory);
        self.bytes[self.length] = 0;
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.bytes[..=self.length]).unwrap_or_default()
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text);
        self.length += text.len();
    }

    fn push_number(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        let mut name = Name::new();
        for (directory, number, text) in [
            (0, 1, "file-1"),
            (0, 327_800, "file-327800"),
            (12, 1, "d12/file-1"),
            (u64::MAX, u64::MAX, "d18446744073709551615/file-18446744073709551615"),
            (0, 2, "file-2"),
        ] {
            name.set_file(directory, number);
            assert_eq!((name.as_bytes(), name.as_c_str().to_str()), (text.as_bytes(), Ok(text)));
        }
        name.set_directory(40);
        assert_eq!(name.as_c_str().to_bytes(), b"d40");
    }
}
