//! The servers: started by `tests/servers/ceph.sh` and `minio.sh` when a test first needs them, one of each. A script
//! stops its server when this process ends, however it ends: then its standard input does.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::harness::{finish, skip, source_tree};

/// A server that runs.
pub struct Server {
    script: PathBuf,
    directory: PathBuf,
    settings: BTreeMap<String, String>,
    _running: Child,
}

/// A server for one test at a time.
pub type Turn = MutexGuard<'static, Server>;

static CEPH: OnceLock<Result<Mutex<Server>, String>> = OnceLock::new();
static MINIO: OnceLock<Result<Mutex<Server>, String>> = OnceLock::new();

/// Ceph: three OSDs and the gateway. `None`, with the reason reported, if it cannot be started.
pub fn ceph() -> Option<Turn> {
    turn(&CEPH, "ceph.sh")
}

/// MinIO. `None`, with the reason reported, if it cannot be started.
pub fn minio() -> Option<Turn> {
    turn(&MINIO, "minio.sh")
}

fn turn(server: &'static OnceLock<Result<Mutex<Server>, String>>, script: &str) -> Option<Turn> {
    match server.get_or_init(|| Server::start(script).map(Mutex::new)) {
        Ok(server) => Some(server.lock().unwrap_or_else(PoisonError::into_inner)),
        Err(why) => {
            skip(why);
            None
        }
    }
}

/// The assignments that a script prints until it is ready, or ends.
fn settings(printed: ChildStdout) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    for line in BufReader::new(printed).lines().map_while(Result::ok) {
        if let Some((name, value)) = line.split_once('=') {
            settings.insert(name.to_owned(), value.to_owned());
        }
        if settings.contains_key("READY") {
            break;
        }
    }
    settings
}

impl Server {
    fn start(script: &str) -> Result<Server, String> {
        let script = source_tree().join("tests/servers").join(script);
        let parent = tempfile::Builder::new().prefix("granulo-server-").tempdir().unwrap();
        let mut running = Command::new(&script)
            .arg("run")
            .arg(parent.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", script.display()))?;
        let settings = settings(running.stdout.take().unwrap());
        if !settings.contains_key("READY") {
            let ended = running.wait_with_output().unwrap();
            return Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned());
        }
        // The script removes it.
        let directory = parent.keep();
        Ok(Server { script, directory, settings, _running: running })
    }

    /// A value that the script printed.
    pub fn setting(&self, name: &str) -> &str {
        self.settings.get(name).unwrap_or_else(|| panic!("{} does not print {name}", self.script.display()))
    }

    /// What AWS tools read from the environment.
    pub fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        let of_aws = self.settings.iter().filter(|(name, _)| name.starts_with("AWS_"));
        of_aws.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn kill_gateway(&self) {
        self.tell(&["kill-gateway"]);
    }

    pub fn start_gateway(&self) {
        self.tell(&["start-gateway"]);
    }

    pub fn kill_osd(&self, number: u64) {
        self.tell(&["kill-osd", &number.to_string()]);
    }

    /// Starts a killed OSD again, and waits until all are up.
    pub fn start_osd(&self, number: u64) {
        self.tell(&["start-osd", &number.to_string()]);
        self.tell(&["healthy"]);
    }

    fn tell(&self, words: &[&str]) {
        let mut command = Command::new(&self.script);
        finish(command.arg(words[0]).arg(&self.directory).args(&words[1..])).ended(0);
    }
}

/// The same test on each server.
#[macro_export]
macro_rules! on_each_server {
    ($($name:ident),* $(,)?) => {
        mod ceph {
            $(#[test]
            fn $name() {
                let Some(server) = $crate::servers::ceph() else { return };
                super::$name(&server);
            })*
        }

        mod minio {
            $(#[test]
            fn $name() {
                let Some(server) = $crate::servers::minio() else { return };
                super::$name(&server);
            })*
        }
    };
}
