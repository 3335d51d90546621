//! Readers that stay open beside writers: they see what was committed, soon.
//!
//! Such a reader is this binary again, which [`READER`] in its environment tells to run [`the_reader_that_watches`]. It
//! prints the number of each commit when it sees it. How soon is printed, too, and judged only by patience: a test
//! must not fail because a machine is slow.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use granulo::store::{Key, Store};

use crate::on_each_server;
use crate::place::{PATIENCE, Place};
use crate::servers::Server;

/// The address of the store for the reader.
const READER: &str = "GRANULO_BUCKET_READER";
const COMMITS: u64 = 5;

fn key(number: u64) -> String {
    format!("commit{number}")
}

/// Prints the numbers of commits as it sees them, until all are seen. Without [`READER`], only a test that passes.
#[test]
fn the_reader_that_watches() {
    let Some(address) = std::env::var_os(READER) else { return };
    granulo_bucket::register();
    let store = Store::open_read_only(Path::new(&address)).unwrap();
    end_with_standard_input();
    for number in 0..=COMMITS {
        while store.get(&Key::parse(key(number)).unwrap()).unwrap().is_none() {
            thread::sleep(Duration::from_millis(5));
            store.refresh().unwrap();
        }
        println!("\nseen {number}");
    }
}

/// Ends this process when the test that started it is over, however it ended.
fn end_with_standard_input() {
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
}

/// A reader that runs.
struct Reader {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Reader {
    fn start(place: &Place<'_>) -> Reader {
        let command = Command::new(std::env::current_exe().unwrap());
        let mut process = place
            .with_server(command)
            .args(["--exact", "readers::the_reader_that_watches", "--nocapture", "--test-threads=1"])
            .env(READER, place.address())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        Reader { process, said }
    }

    /// Returns when it has seen a commit.
    #[track_caller]
    fn sees(&mut self, number: u64) {
        let mut line = String::new();
        while line.trim() != format!("seen {number}") {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "the reader ended before it saw commit {number}");
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn a_reader_sees_commits_soon(server: &Server) {
    let place = Place::new(server);
    place.put(&key(0), b"0").ended(0);
    let mut reader = Reader::start(&place);
    reader.sees(0);
    let mut longest = Duration::ZERO;
    for number in 1..=COMMITS {
        // A commit each of which has to be noticed.
        place.put(&key(number), number.to_string().as_bytes()).ended(0);
        let began = Instant::now();
        reader.sees(number);
        longest = longest.max(began.elapsed());
    }
    let _ = writeln!(std::io::stderr(), "a reader saw each of {COMMITS} commits within {longest:?}");
    assert!(longest < PATIENCE);
}

on_each_server!(a_reader_sees_commits_soon);
