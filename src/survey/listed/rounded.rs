//! Numbers as programs print them for people: a few digits, perhaps a fraction, and a unit.

use super::MOST_FILE_BYTES;

/// A number that was rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rounded {
    /// What it says.
    pub(super) value: u64,
    /// How far its neighbours are; 1 if it is exact.
    pub(super) step: u64,
}

/// Digits, perhaps with a point among them and commas between thousands, in `unit`; bounded.
pub(super) fn rounded(digits: &str, unit: u64) -> Option<Rounded> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.replace(',', "");
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !is_number(&whole) || !is_number(fraction) {
        return None;
    }
    let parts = 10_u128.pow(fraction.len() as u32);
    let number = whole.parse::<u64>().ok().map(u128::from)? * parts + fraction.parse::<u128>().unwrap_or(0);
    let value = u64::try_from(number.checked_mul(unit.into())? / parts).ok()?;
    let step = u64::try_from(u128::from(unit) / parts).ok()?.max(1);
    (value <= MOST_FILE_BYTES).then_some(Rounded { value, step })
}

/// The factor of a letter before bytes (`K`, `M`, …), in powers of `thousand`; an empty text is 1.
pub(super) fn factor(letter: &str, thousand: u64) -> Option<u64> {
    let power = match letter {
        "" => 0,
        _ => 1 + ["K", "M", "G", "T", "P", "E"].iter().position(|known| known.eq_ignore_ascii_case(letter))?,
    };
    Some(thousand.pow(power as u32))
}

/// A number with its letter directly after it: `1.23M`.
pub(super) fn with_letter(text: &str, thousand: u64) -> Option<Rounded> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    rounded(text.get(..end)?, factor(text.get(end..)?, thousand)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_say_how_exact_they_are() {
        let read = |text| with_letter(text, 1024).map(|number| (number.value, number.step));
        assert_eq!(read("0"), Some((0, 1)));
        assert_eq!(read("1,234,567"), Some((1_234_567, 1)));
        assert_eq!(read("833K"), Some((833 << 10, 1 << 10)));
        assert_eq!(read("1.5M"), Some((3 << 19, (1 << 20) / 10)));
        for wrong in ["", "K", "1.2.3", "-1", "1X", "1KK", "8E", "1e9", ".5", "99999999999999999999", "ü"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
