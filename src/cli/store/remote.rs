//! Stores on other machines: `ssh://[USER@]HOST[:PORT]/PATH`, through `granulo store serve` there.
//!
//! `GRANULO_SSH` names another program than `ssh`, which takes the same arguments; `GRANULO_REMOTE` another granulo
//! there.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::error::{Error, ErrorKind, Result};
use crate::store::Peer;

/// How the address of a store on another machine begins.
const SCHEME: &str = "ssh://";
const CONNECT: &str = "connect to";

/// A store, or the place of a copy, on another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    address: PathBuf,
    /// With the user, if one is named.
    host: String,
    port: Option<u16>,
    path: String,
}

/// A granulo that serves there.
pub(super) struct Connection {
    address: PathBuf,
    child: Child,
    from: ChildStdout,
    to: ChildStdin,
}

impl Remote {
    /// The place that an address names; `None` for a path.
    pub(super) fn of(address: &Path) -> Result<Option<Remote>> {
        if !address.as_os_str().as_bytes().starts_with(SCHEME.as_bytes()) {
            return Ok(None);
        }
        let refuse = |cause: &str| {
            let error = Error::new(ErrorKind::Usage, CONNECT, cause).at(address);
            Err(error.advise("write ssh://[USER@]HOST[:PORT]/PATH"))
        };
        let Some(rest) = address.to_str().and_then(|text| text.strip_prefix(SCHEME)) else {
            return refuse("it is not UTF-8");
        };
        let Some((place, path)) = rest.split_once('/') else { return refuse("it has no path") };
        let (host, port) = match place.rsplit_once(':').filter(|_| !place.ends_with(']')) {
            Some((host, port)) => match port.parse() {
                Ok(port) => (host, Some(port)),
                Err(_) => return refuse("its port is no number"),
            },
            None => (place, None),
        };
        // The address of an IPv6 host has brackets, for ssh it has none.
        let host = host.replace(['[', ']'], "");
        if host.is_empty() || path.is_empty() {
            return refuse("it has no host or no path");
        }
        // It would be an option of ssh.
        if host.starts_with('-') {
            return refuse("no host begins with '-'");
        }
        Ok(Some(Remote { address: address.to_owned(), host, port, path: format!("/{path}") }))
    }

    fn command(&self) -> Command {
        let program = |variable: &str, usual: &str| std::env::var_os(variable).unwrap_or_else(|| OsString::from(usual));
        let mut command = Command::new(program("GRANULO_SSH", "ssh"));
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        let granulo = program("GRANULO_REMOTE", "granulo");
        let there = format!("{} store serve {}", quoted(&granulo.to_string_lossy()), quoted(&self.path));
        command.arg(&self.host).arg(there);
        command
    }

    /// Starts a granulo there.
    ///
    /// # Errors
    /// There is no ssh here.
    pub(super) fn connect(&self) -> Result<Connection> {
        let mut command = self.command();
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| {
            let error = Error::io(CONNECT, &self.address, error);
            error.advise("install ssh, or name another program with GRANULO_SSH")
        })?;
        let (Some(from), Some(to)) = (child.stdout.take(), child.stdin.take()) else {
            unreachable!("both are piped");
        };
        Ok(Connection { address: self.address.clone(), child, from, to })
    }
}

impl Connection {
    /// Talks to it, and waits for its end.
    pub(super) fn talk<T>(mut self, work: impl FnOnce(Peer<'_>) -> Result<T>) -> Result<T> {
        let place = self.address.clone();
        let done = work(Peer { from: &mut self.from, to: &mut self.to, place });
        drop((self.from, self.to));
        // How it ended was said by it, or is in the error that the pipe has ended.
        let _ = self.child.wait();
        done
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(address: &str) -> Vec<String> {
        let remote = Remote::of(Path::new(address)).unwrap().unwrap();
        remote.command().get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn an_address_is_a_command_of_ssh() {
        assert_eq!(words("ssh://host/srv/s"), ["host", "'granulo' store serve '/srv/s'"]);
        assert_eq!(words("ssh://me@host:2222/s"), ["-p", "2222", "me@host", "'granulo' store serve '/s'"]);
        assert_eq!(words("ssh://[::1]/it's"), ["::1", r"'granulo' store serve '/it'\''s'"]);
        assert_eq!(words("ssh://[fe80::1]:22/s")[..3], ["-p", "22", "fe80::1"]);
        assert_eq!(Remote::of(Path::new("/srv/ssh://x")).unwrap(), None);
        for wrong in ["ssh://", "ssh://host", "ssh:///s", "ssh://host/", "ssh://host:x/s", "ssh://-oProxyCommand=x/s"] {
            assert_eq!(Remote::of(Path::new(wrong)).unwrap_err().kind(), ErrorKind::Usage, "{wrong}");
        }
    }
}
