//! `mount.granulo STORE DIR [-sfnv] [-o OPTIONS]`: what mount(8) calls for a file system of type granulo.
//!
//! mount(8) says only what differs from its own defaults, to which set-id bits and device files belong: it passes on
//! `nosuid` and `nodev`, also where a line of fstab lets users mount, but never `suid` and `dev`. So here they have an
//! effect unless it says otherwise, as for any other file system (and as mount.fuse has it), if the caller is root.

use std::ffi::OsString;
use std::path::Path;

use crate::cli::usage_error;
use crate::error::Result;

/// The name by which this is called.
const NAME: &str = "mount.granulo";

/// What mount(8) asks for.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) enum Request {
    /// These arguments of `granulo`.
    Run(Vec<OsString>),
    /// Nothing but a check of the arguments.
    Nothing,
}

/// Whether the first argument of a process says that mount(8) has called it.
pub(in crate::cli) fn is_called_by(program: &OsString) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == NAME)
}

/// The request in the arguments of mount(8), without the name of the program.
///
/// # Errors
/// [`Usage`](crate::error::ErrorKind::Usage) if they are not those of mount(8).
pub(in crate::cli) fn request(arguments: impl IntoIterator<Item = OsString>, is_root: bool) -> Result<Request> {
    let (mut places, mut options, mut is_nothing) = (Vec::new(), Vec::new(), false);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        match &text[..] {
            "-h" | "--help" => return Ok(Request::Run(["granulo", "mount", "--help"].map(OsString::from).to_vec())),
            "-V" | "--version" => return Ok(Request::Run(["granulo", "--version"].map(OsString::from).to_vec())),
            _ => {}
        }
        let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            places.push(argument);
            continue;
        };
        let value = |arguments: &mut dyn Iterator<Item = OsString>, rest: &str| match rest.is_empty() {
            true => arguments.next().ok_or_else(|| usage_error(format!("{argument:?} needs a value"))),
            false => Ok(OsString::from(rest)),
        };
        for (at, letter) in letters.char_indices() {
            let rest = letters.get(at + letter.len_utf8()..).unwrap_or_default();
            match letter {
                'o' => {
                    options.push(value(&mut arguments, rest)?);
                    break;
                }
                't' | 'N' => {
                    value(&mut arguments, rest)?;
                    break;
                }
                'f' => is_nothing = true,
                's' | 'n' | 'v' | 'w' => {}
                'r' => options.push("ro".into()),
                _ => return Err(usage_error(format!("{argument:?} is unknown"))),
            }
        }
    }
    if places.len() != 2 {
        return Err(usage_error(format!("usage: {NAME} STORE DIR [-sfnv] [-o OPTIONS]")));
    }
    if is_nothing {
        return Ok(Request::Nothing);
    }
    let mut command: Vec<OsString> = ["granulo", "mount", "--background"].map(OsString::from).to_vec();
    if is_root {
        command.extend(["-o", "suid,dev"].map(OsString::from));
    }
    for options in options {
        command.extend(["-o".into(), options]);
    }
    command.push("--".into());
    command.extend(places);
    Ok(Request::Run(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str]) -> Result<Request> {
        request(arguments.iter().map(OsString::from), false)
    }

    fn run(arguments: &[&str]) -> Request {
        Request::Run(arguments.iter().map(OsString::from).collect())
    }

    #[test]
    fn it_takes_what_mount_gives() {
        let expected = run(&["granulo", "mount", "--background", "-o", "rw,noatime", "--", "/s", "/m"]);
        assert_eq!(of(&["/s", "/m", "-sv", "-o", "rw,noatime", "-t", "granulo"]).unwrap(), expected);
        assert_eq!(of(&["/s", "/m", "-orw,noatime"]).unwrap(), expected);
        assert_eq!(of(&["/s", "/m", "-f"]).unwrap(), Request::Nothing);
        assert_eq!(of(&["--help"]).unwrap(), run(&["granulo", "mount", "--help"]));
        for wrong in [&["/s"][..], &["/s", "/m", "-o"], &["/s", "/m", "-q"], &["/s", "/m", "/x"]] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
        assert!(is_called_by(&"/sbin/mount.granulo".into()) && !is_called_by(&"/usr/bin/granulo".into()));
    }

    #[test]
    fn what_root_mounts_by_mount_has_set_id_bits_unless_it_says_otherwise() {
        let arguments = ["/s", "/m", "-o", "nosuid"].map(OsString::from);
        let expected = run(&["granulo", "mount", "--background", "-o", "suid,dev", "-o", "nosuid", "--", "/s", "/m"]);
        assert_eq!(request(arguments, true).unwrap(), expected);
    }
}
