//! Parses a call as strace prints it, `name(argument, …) = result <time>`, and its arguments.

use super::line::seconds;
use crate::trace::input::decimal;

/// A completed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call<'a> {
    pub name: &'a [u8],
    pub arguments: Vec<&'a [u8]>,
    /// `None` for `?`: the call did not return.
    pub result: Option<i64>,
    /// Text after the number of the result: the path of a descriptor, the name of an error.
    pub remark: &'a [u8],
    pub duration_ns: Option<u64>,
}

/// The number of the working directory in place of a descriptor.
pub(super) const AT_FDCWD: i64 = -100;

/// Longest name of a call.
const LONGEST_NAME: usize = 40;
/// Largest number of arguments that are parsed.
const MOST_ARGUMENTS: usize = 12;

/// Target of a descriptor, as printed by `-y`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Described {
    /// A file or directory, and whether its name was removed.
    Path(Vec<u8>, bool),
    /// A pipe, socket, terminal …
    NotFile,
}

/// The name of a call, if the text begins with one and a parenthesis.
pub(super) fn name(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().take(LONGEST_NAME).position(|&byte| byte == b'(')?;
    let name = &text[..end];
    let sound = name.first().is_some_and(|byte| byte.is_ascii_lowercase() || *byte == b'_')
        && name.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_');
    sound.then_some(name)
}

/// Parses a call; `None` if the text is not one, or is incomplete.
pub(super) fn parse(text: &[u8]) -> Option<Call<'_>> {
    let name = name(text)?;
    let (arguments, behind) = split(text, name.len() + 1)?;
    let rest = text[behind..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
    let (rest, duration_ns) = match rest.strip_suffix(b">").and_then(|text| Some((text, last(text, b" <")?))) {
        Some((text, at)) => match seconds(&text[at + 2..]) {
            Some(ns) => (&rest[..at], Some(ns)),
            None => (rest, None),
        },
        None => (rest, None),
    };
    if rest.first() == Some(&b'?') {
        return Some(Call { name, arguments, result: None, remark: rest[1..].trim_ascii(), duration_ns });
    }
    let digits = rest.iter().skip(1).position(|byte| !byte.is_ascii_alphanumeric()).map_or(rest.len(), |at| at + 1);
    let result = number(&rest[..digits])?;
    Some(Call { name, arguments, result: Some(result), remark: rest[digits..].trim_ascii(), duration_ns })
}

fn last(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).rposition(|window| window == what)
}

/// The arguments from `at` on, and the position after the closing parenthesis.
fn split(text: &[u8], mut at: usize) -> Option<(Vec<&[u8]>, usize)> {
    let mut arguments = Vec::with_capacity(6);
    let (mut start, mut depth) = (at, 0usize);
    loop {
        match *text.get(at)? {
            b'"' => at = string_end(text, at)?,
            b'/' if text.get(at + 1) == Some(&b'*') => {
                at += 2 + text[at + 2..].windows(2).position(|window| window == b"*/")? + 1;
            }
            b'<' if at > start && (text[at - 1].is_ascii_digit() || text[..at].ends_with(b"AT_FDCWD")) => {
                if text.get(at + 1) == Some(&b'<') {
                    at += 1;
                } else {
                    at = description_end(text, at)?;
                }
            }
            b'(' | b'[' | b'{' => depth += 1,
            closing @ (b')' | b']' | b'}') => match depth {
                0 if closing == b')' => {
                    let argument = text[start..at].trim_ascii();
                    if !argument.is_empty() || !arguments.is_empty() {
                        arguments.push(argument);
                    }
                    return Some((arguments, at + 1));
                }
                0 => return None,
                _ => depth -= 1,
            },
            b',' if depth == 0 => {
                if arguments.len() == MOST_ARGUMENTS {
                    return None;
                }
                arguments.push(text[start..at].trim_ascii());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
}

/// Position of the closing quote of the string that begins at `at`.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Position of the `>` that ends the description of a descriptor that begins with `<` at `at`. In a path, `<` and `>`
/// are escaped; a socket has arrows between addresses.
fn description_end(text: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0usize;
    let is_path = text.get(at + 1) == Some(&b'/');
    for (index, &byte) in text.iter().enumerate().skip(at) {
        match byte {
            b'<' => depth += 1,
            b'>' if !is_path && text[index - 1] == b'-' => {}
            b'>' => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

/// A signed number: decimal, octal (leading 0) or hexadecimal (`0x`). Addresses above the largest number wrap.
pub(super) fn number(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let value = if let Some(hex) = digits.strip_prefix(b"0x") {
        u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?
    } else if digits.len() > 1 && digits[0] == b'0' {
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?
    } else {
        decimal(digits)?
    };
    Some(if negative { (value as i64).wrapping_neg() } else { value as i64 })
}

/// A number that is not negative.
pub(super) fn count(text: &[u8]) -> Option<u64> {
    u64::try_from(number(text)?).ok()
}

/// A number behind a pointer: `[5]`, or `[5] => [9]` and `[5 => 9]`, of which the first counts.
pub(super) fn pointed(text: &[u8]) -> Option<u64> {
    let inside = text.strip_prefix(b"[")?;
    let end = inside.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(inside.len());
    count(&inside[..end])
}

/// The descriptor in an argument or a result, with its description from `-y`.
pub(super) fn descriptor(text: &[u8]) -> Option<(i64, Option<Described>)> {
    let end = text.iter().position(|&byte| byte == b'<').unwrap_or(text.len());
    let number = match &text[..end] {
        b"AT_FDCWD" => AT_FDCWD,
        digits => number(digits)?,
    };
    Some((number, described(&text[end..])))
}

/// Parses `<…>` and the text after it.
pub(super) fn described(text: &[u8]) -> Option<Described> {
    if text.first() != Some(&b'<') {
        return None;
    }
    let end = description_end(text, 0)?;
    let inside = &text[1..end];
    let path = unescape(inside);
    if path.first() != Some(&b'/') {
        return Some(Described::NotFile);
    }
    // `-yy` adds details of devices; a `<` in the name itself is escaped.
    if let Some(device) = inside.iter().position(|&byte| byte == b'<') {
        return match &inside[device..] {
            device if device.starts_with(b"<char ") => Some(Described::NotFile),
            _ => Some(Described::Path(unescape(&inside[..device]), false)),
        };
    }
    if text[end + 1..].starts_with(b"(deleted)") {
        return Some(Described::Path(path, true));
    }
    match path.strip_suffix(b" (deleted)") {
        Some(path) => Some(Described::Path(path.to_vec(), true)),
        None => Some(Described::Path(path, false)),
    }
}

/// The string in an argument; `None` for `NULL`, an address, or a truncated string.
pub(super) fn string(argument: &[u8]) -> Option<Vec<u8>> {
    let inside = argument.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    Some(unescape(inside))
}

/// Resolves the C escapes of strace.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some(&escaped) = text.get(at) else { break };
        at += 1;
        match escaped {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'v' => bytes.push(0x0b),
            b'f' => bytes.push(0x0c),
            b'a' => bytes.push(0x07),
            b'b' => bytes.push(0x08),
            b'x' => {
                let digits = text[at..].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
                bytes.push(radix(&text[at..at + digits], 16));
                at += digits;
            }
            b'0'..=b'7' => {
                let digits = text[at - 1..].iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                bytes.push(radix(&text[at - 1..at - 1 + digits], 8));
                at += digits - 1;
            }
            other => bytes.push(other),
        }
    }
    bytes
}

fn radix(digits: &[u8], radix: u32) -> u8 {
    digits.iter().fold(0u32, |value, &digit| value * radix + char::from(digit).to_digit(radix).unwrap_or(0)) as u8
}

/// The value of a field `name=123` in an argument that is a structure.
pub(super) fn field(structure: &[u8], name: &[u8]) -> Option<u64> {
    let at = structure.windows(name.len()).position(|window| window == name)?;
    let value = &structure[at + name.len()..];
    let end = value.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(value.len());
    count(&value[..end])
}

/// Whether flags, as names joined by `|` or as a number, contain one of them.
pub(super) fn has_flag(flags: &[u8], name: &[u8], bit: u64) -> bool {
    if flags.first().is_some_and(u8::is_ascii_digit) {
        // With `-X verbose`, the names follow in a comment.
        let end = flags.iter().position(|&byte| byte == b' ').unwrap_or(flags.len());
        return count(&flags[..end]).is_some_and(|flags| flags & bit != 0);
    }
    flags.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').any(|flag| flag == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments, result, text after it, time.
    type Parsed = (Vec<String>, Option<i64>, String, Option<u64>);

    fn parsed(text: &str) -> Option<Parsed> {
        let call = parse(text.as_bytes())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let arguments = call.arguments.iter().map(|argument| text(argument)).collect();
        Some((arguments, call.result, text(call.remark), call.duration_ns))
    }

    #[test]
    fn calls_are_taken_apart() {
        let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (text, arguments, result, remark, duration) in [
            ("getpid()                = 7", &[][..], Some(7), "", None),
            (
                "read(3</a, b>, \"x, \\\")\"..., 9) = 9 <0.000012>",
                &["3</a, b>", "\"x, \\\")\"...", "9"],
                Some(9),
                "",
                Some(12_000),
            ),
            ("close(3</dev/null<char 1:3>>) = 0", &["3</dev/null<char 1:3>>"], Some(0), "", None),
            ("close(3</etc/passwd->) = 0", &["3</etc/passwd->"], Some(0), "", None),
            (
                "openat(AT_FDCWD</d->, \"x\", O_RDONLY) = 3</d-/x>",
                &["AT_FDCWD</d->", "\"x\"", "O_RDONLY"],
                Some(3),
                "</d-/x>",
                None,
            ),
            (
                "write(3<TCP:[[::1]:5->[::1]:6]>, \"\", 0) = 0",
                &["3<TCP:[[::1]:5->[::1]:6]>", "\"\"", "0"],
                Some(0),
                "",
                None,
            ),
            (
                "open(\"x\", O_RDONLY) = -1 ENOENT (No such file) <0.1>",
                &["\"x\"", "O_RDONLY"],
                Some(-1),
                "ENOENT (No such file)",
                Some(100_000_000),
            ),
            (
                "openat(AT_FDCWD</a>, \"x\", O_RDONLY) = 3</a/x> <0.000001>",
                &["AT_FDCWD</a>", "\"x\"", "O_RDONLY"],
                Some(3),
                "</a/x>",
                Some(1_000),
            ),
            ("mmap(NULL, 1<<12, PROT_READ) = 0x7fff", &["NULL", "1<<12", "PROT_READ"], Some(0x7fff), "", None),
            (
                "f({a=[1, 2], b=\"}\"}, 0x5 /* 3 (or \" */) = ? <unavailable>",
                &["{a=[1, 2], b=\"}\"}", "0x5 /* 3 (or \" */"],
                None,
                "<unavailable>",
                None,
            ),
            ("read(3</x>(deleted), 0x1, 2) = 0", &["3</x>(deleted)", "0x1", "2"], Some(0), "", None),
        ] {
            let expected = (strings(arguments), result, remark.to_owned(), duration);
            assert_eq!(parsed(text), Some(expected), "{text}");
        }
        for text in
            ["read(3, \"abc", "read(3, 4", "read 3", "x = 3", "read(3) 4", "Read(3) = 4", "(3) = 4", "f(]) = 0", ""]
        {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_unescaped() {
        assert_eq!(string(br#""a\tb\"\\\303\2441""#), Some(b"a\tb\"\\\xc3\xa41".to_vec()));
        assert_eq!(string(br#""\x2f\x61""#), Some(b"/a".to_vec()));
        assert_eq!(string(br#""cut"..."#), None);
        assert_eq!(string(b"NULL"), None);
        let path = |path: &[u8], deleted| Some(Described::Path(path.to_vec(), deleted));
        for (text, expected) in [
            (&b"</a\\74b\\76 c>"[..], path(b"/a<b> c", false)),
            (b"</a>(deleted)", path(b"/a", true)),
            (b"</a (deleted)>", path(b"/a", true)),
            (b"<\\x2f\\x61>", path(b"/a", false)),
            (b"</dev/sda<block 8:0>>", path(b"/dev/sda", false)),
            (b"</dev/tty<char 5:0>>", Some(Described::NotFile)),
            (b"<pipe:[55]>", Some(Described::NotFile)),
            (b"", None),
        ] {
            assert_eq!(described(text), expected, "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(descriptor(b"AT_FDCWD"), Some((AT_FDCWD, None)));
        assert_eq!(descriptor(b"5"), Some((5, None)));
    }

    #[test]
    fn numbers_and_flags_are_read_in_every_spelling() {
        assert_eq!(
            (number(b"-1"), number(b"0644"), number(b"0x1f"), number(b"x")),
            (Some(-1), Some(0o644), Some(31), None)
        );
        assert_eq!((pointed(b"[5] => [9]"), pointed(b"[5 => 9]"), pointed(b"NULL")), (Some(5), Some(5), None));
        assert_eq!(field(b"{st_mode=S_IFREG|0644, st_size=123, ...}", b"st_size="), Some(123));
        assert!(has_flag(b"O_RDWR|O_CREAT", b"O_CREAT", 0o100) && has_flag(b"0x42", b"O_CREAT", 0o100));
        assert!(has_flag(b"0x42 /* O_RDWR|O_CREAT */", b"O_CREAT", 0o100));
        assert!(!has_flag(b"O_CREATX", b"O_CREAT", 0o100) && !has_flag(b"0", b"O_CREAT", 0o100));
    }
}
