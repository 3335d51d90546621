//! A store on devices that can disappear and return, decay and be examined, from outside: the command makes it, fills
//! it and reads it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use granulo_core::random::Random;
use tempfile::TempDir;

use crate::args;
use crate::harness::{Ran, binary, finish, granulo, has_program, sandbox, skip, without_wishes};

/// A file above every cutoff here: striped.
const LARGE_BYTES: usize = 300_000;

/// A store.
pub struct Place {
    pub sandbox: TempDir,
    pub home: PathBuf,
    pub devices: Vec<PathBuf>,
    /// The expected contents.
    pub objects: BTreeMap<String, Vec<u8>>,
    made: u64,
}

/// Bytes that distinguish each object from the others.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    Random::new(seed).bytes(length)
}

/// Files below a directory.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Files and their bytes.
pub fn snapshot(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files(directory).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Flips a bit in place: the same file as before, as real decay would leave it.
pub fn flip(path: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

/// Position of `needle` in a file below `directory`.
pub fn find(directory: &Path, needle: &[u8]) -> Option<(PathBuf, u64)> {
    files(directory).into_iter().find_map(|path| {
        let content = fs::read(&path).unwrap();
        let at = content.windows(needle.len()).position(|window| window == needle)?;
        Some((path, at as u64))
    })
}

pub fn copy_all(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "cp -a");
}

impl Place {
    /// A store with this many devices of each class; with none, in one directory.
    pub fn new(fast: usize, slow: usize, options: &[&str]) -> Place {
        let sandbox = sandbox();
        let directory = |name: String| sandbox.path().join(name);
        let mut devices: Vec<PathBuf> = (0..fast).map(|number| directory(format!("fast{number}"))).collect();
        devices.extend((0..slow).map(|number| directory(format!("slow{number}"))));
        let home = directory("home".to_owned());
        let mut place = Place { sandbox, home, devices, objects: BTreeMap::new(), made: 0 };
        // On a full disk records would go to the slow devices.
        let mut arguments = args!["init", &place.home, "--high-watermark", "100%"];
        for (number, device) in place.devices.iter().enumerate() {
            arguments.extend(args![if number < fast { "--fast" } else { "--slow" }, device]);
        }
        arguments.extend(options.iter().map(OsString::from));
        place.run(arguments).ended(0);
        if place.devices.is_empty() {
            place.devices.push(place.home.clone());
        }
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path().join(name)
    }

    pub fn command(&self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Command {
        let mut command = granulo();
        command.arg("store").args(arguments.into_iter().map(Into::into));
        command
    }

    #[track_caller]
    pub fn run(&self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Ran {
        let ran = finish(&mut self.command(arguments));
        assert!(!ran.said().contains("panicked at") && ran.code.is_some(), "{ran:?}: {}", ran.said());
        ran
    }

    /// Runs a command on the store: `run_on("rm", ["KEY"])`.
    #[track_caller]
    pub fn run_on<S: AsRef<OsStr>>(&self, command: &str, rest: impl IntoIterator<Item = S>) -> Ran {
        let mut arguments = args![command, &self.home];
        arguments.extend(rest.into_iter().map(|argument| argument.as_ref().to_owned()));
        self.run(arguments)
    }

    /// Imports a tree of `small` small files, and after them in key order `large` large ones.
    #[track_caller]
    pub fn import(&mut self, small: usize, large: usize) {
        let (made, seed) = (self.made + 1, (self.made + 1) << 32);
        let small = (0..small).map(|number| {
            (format!("i{made}/d{}/{number:04}", number % 7), bytes(seed + number as u64, 200 + number % 900))
        });
        let large = (0..large).map(|number| {
            let content = bytes(seed + (1 << 20) + number as u64, LARGE_BYTES + 4096 * number);
            (format!("i{made}/z-large/{number:04}"), content)
        });
        self.import_files(small.chain(large));
    }

    /// Imports a tree of these files.
    #[track_caller]
    pub fn import_files(&mut self, files: impl IntoIterator<Item = (String, Vec<u8>)>) {
        self.made += 1;
        let source = self.path(&format!("source{}", self.made));
        for (name, content) in files {
            let path = source.join(&name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &content).unwrap();
            self.objects.insert(name, content);
        }
        self.run_on("import", args!["--quiet", &source]).ended(0);
    }

    /// Puts one object.
    #[track_caller]
    pub fn put(&mut self, key: &str, content: &[u8]) -> Ran {
        let file = self.path("put");
        fs::write(&file, content).unwrap();
        let ran = self.run_on("put", args![key, &file]);
        if ran.code == Some(0) {
            self.objects.insert(key.to_owned(), content.to_vec());
        }
        ran
    }

    /// The files of an export, and how the command ended.
    #[track_caller]
    pub fn export(&self) -> (BTreeMap<String, Vec<u8>>, Ran) {
        let target = tempfile::Builder::new().prefix("export").tempdir_in(self.sandbox.path()).unwrap();
        let ran = self.run_on("export", args!["--quiet", target.path()]);
        let exported = files(target.path()).into_iter().map(|path| {
            let name = path.strip_prefix(target.path()).unwrap().to_str().unwrap().to_owned();
            (name, fs::read(path).unwrap())
        });
        (exported.collect(), ran)
    }

    /// Keys of listed files, and how the command ended.
    #[track_caller]
    pub fn list(&self) -> (Vec<String>, Ran) {
        let ran = self.run_on("ls", ["-R", "-0"]);
        let names = ran.stdout.split(|&byte| byte == 0).map(|name| String::from_utf8_lossy(name).into_owned());
        let listed = names.filter(|name| !name.is_empty() && !name.ends_with('/')).collect();
        (listed, ran)
    }

    /// Asserts that everything exists, by every way to see it, and nothing else.
    #[track_caller]
    pub fn is_whole(&self) {
        let (exported, ran) = self.export();
        ran.ended(0);
        let keys = |objects: &BTreeMap<String, Vec<u8>>| objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&exported), keys(&self.objects));
        assert!(exported == self.objects, "an object has other bytes");
        let (listed, ran) = self.list();
        ran.ended(0);
        let missing: Vec<_> = self.objects.keys().filter(|key| !listed.contains(key)).collect();
        assert!(missing.is_empty(), "not listed: {missing:?}");
        self.run_on("load", [""; 0]).ended(0);
    }

    /// Asserts that no command hides a loss: each shows everything, or reports first what may be missing and ends with
    /// status 1, or refuses with status 2. And no byte is wrong. Returns the number of objects in an export.
    #[track_caller]
    pub fn is_honest(&self) -> usize {
        let (exported, ran) = self.export();
        self.is_honest_about("export", exported.len() >= self.objects.len(), &ran);
        for (key, content) in &exported {
            assert!(self.objects.get(key) == Some(content), "{key} has other bytes");
        }
        let (listed, ran) = self.list();
        self.is_honest_about("ls", self.objects.keys().all(|key| listed.contains(key)), &ran);
        let load = self.run_on("load", ["--json"]);
        let loaded = serde_json::from_slice::<serde_json::Value>(&load.stdout).ok();
        let loaded = loaded.and_then(|document| document["objects"].as_u64()).unwrap_or(0);
        self.is_honest_about("load", loaded >= self.objects.len() as u64, &load);
        exported.len()
    }

    #[track_caller]
    pub fn is_honest_about(&self, command: &str, is_all: bool, ran: &Ran) {
        let said = ran.said();
        match ran.code {
            Some(0) => assert!(is_all, "{command} shows less than there is and ends with 0: {said}"),
            Some(1) => assert!(!said.trim().is_empty(), "{command} ends with 1 and says nothing"),
            Some(2) => assert!(!said.trim().is_empty(), "{command} ends with 2 and says nothing"),
            code => panic!("{command} ended with {code:?}: {said}"),
        }
    }

    /// Asserts that something is missing, which is reported before everything else, to people and to programs.
    #[track_caller]
    pub fn says_incomplete_first(&self) {
        let ran = self.run_on("ls", ["-R"]).ended(1);
        let said = ran.said();
        let first = said.lines().next().unwrap_or_default();
        assert!(first.contains("incomplete") || first.contains("missing"), "the first line: {said}");
        let document = self.run_on("ls", ["-R", "--json"]).json();
        assert!(document.get("completeness").is_some_and(|it| !it.is_null()), "{document}");
    }

    /// A device disappears; with `mount_point` its directory exists, and is empty.
    pub fn take_away(&self, device: usize, mount_point: bool) {
        let path = &self.devices[device];
        fs::rename(path, away(path)).unwrap();
        if mount_point {
            fs::create_dir(path).unwrap();
        }
    }

    /// It returns unchanged. What somebody wrote to its mount point meanwhile is removed.
    pub fn bring_back(&self, device: usize) {
        let path = &self.devices[device];
        if path.exists() {
            let beside = tempfile::Builder::new().prefix("meanwhile").tempdir_in(self.sandbox.path()).unwrap();
            fs::rename(path, beside.path().join("it")).unwrap();
        }
        fs::rename(away(path), path).unwrap();
    }

    /// The segments of a device, the log.
    pub fn segments(&self, device: usize) -> Vec<PathBuf> {
        files(&self.devices[device].join("segments"))
    }

    /// Directories with an index.
    pub fn index_directories(&self) -> Vec<PathBuf> {
        let places = self.devices.iter().chain([&self.home]).map(|place| place.join("index"));
        let mut found: Vec<PathBuf> = places.filter(|path| path.is_dir()).collect();
        found.sort();
        found.dedup();
        found
    }

    pub fn lose_index(&self) {
        for directory in self.index_directories() {
            fs::remove_dir_all(directory).unwrap();
        }
    }

    /// A position in the middle of a unit of data of a striped object, where nothing else lies: device, file and
    /// offset.
    pub fn a_unit(&self, key: &str) -> (usize, PathBuf, u64) {
        let content = &self.objects[key];
        let needle = &content[100_000..100_064];
        let found = self.devices.iter().enumerate().find_map(|(number, device)| {
            let extents = device.join("extents");
            let (path, at) = extents.is_dir().then(|| find(&extents, needle)).flatten()?;
            Some((number, path, at))
        });
        found.unwrap_or_else(|| panic!("{key} is in no extent"))
    }

    /// Runs the command under strace with these options; `None`, with the reason reported, without strace. The output
    /// of strace goes to the file `trace`.
    #[track_caller]
    pub fn strace(&self, options: &[&str], arguments: Vec<OsString>) -> Option<Ran> {
        if !can_trace() {
            return None;
        }
        let mut command = without_wishes(Command::new("strace"));
        command.args(["-f", "-q", "-y", "-s", "0", "-o"]).arg(self.path("trace")).args(options);
        command.arg(binary()).arg("store").args(arguments);
        let ran = finish(&mut command);
        assert!(!ran.said().contains("panicked at"), "{options:?}: {}", ran.said());
        Some(ran)
    }

    pub fn trace(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("trace")).unwrap()).into_owned()
    }
}

pub fn away(path: &Path) -> PathBuf {
    path.with_extension("away")
}

/// Whether a process can be traced here; reports why not.
pub fn can_trace() -> bool {
    let works = has_program("strace")
        && Command::new("strace")
            .args(["-o", "/dev/null", "true"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    if !works {
        skip("it traces system calls, which needs the program strace and the right to trace");
    }
    works
}

/// How often calls with these names occur in a trace.
pub fn calls(trace: &str, names: &[&str]) -> usize {
    let is_call = |line: &&str| {
        let call = line.split_once(' ').map_or(*line, |(_, call)| call.trim_start());
        names.iter().any(|name| call.strip_prefix(name).is_some_and(|rest| rest.starts_with('(')))
    };
    trace.lines().filter(is_call).count()
}

/// The path of the file whose call was made to fail.
pub fn injected(trace: &str) -> Option<&str> {
    let (before, line) = trace.lines().enumerate().find(|(_, line)| line.contains("(INJECTED)"))?;
    let process = line.split(' ').next()?;
    // A call that another thread interrupted is on two lines.
    let began = |line: &&str| line.starts_with(process) && line.contains("unfinished");
    let whole = if line.contains("resumed") { trace.lines().take(before).filter(began).last()? } else { line };
    whole.split(['<', '>']).nth(1)
}
