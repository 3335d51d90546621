//! Whoever is killed while they work, with SIGKILL at random moments (the writer, a reader, the gateway, an OSD):
//! what was acknowledged is there, what was not is there as a whole or not at all, and the next writer writes.

use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use granulo_core::random::Random;

use crate::args;
use crate::model::Model;
use crate::on_each_server;
use crate::place::{Place, bytes};
use crate::servers::{self, Server};

/// Kills of each test.
fn kills() -> u64 {
    std::env::var("GRANULO_BUCKET_KILLS").map_or(3, |value| value.parse().unwrap())
}

/// Chance for the moments of a test, from a seed that is printed.
fn chance() -> Random {
    let from_clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("GRANULO_BUCKET_SEED").map_or_else(|_| from_clock(), |value| value.parse().unwrap());
    println!("GRANULO_BUCKET_SEED={seed}");
    Random::new(seed)
}

/// A store, what it may show, and chance.
struct Work<'a> {
    place: Place<'a>,
    model: Model,
    chance: Random,
    /// How long a put took, which is about how long it will take before it is killed.
    usual: Duration,
    puts: u64,
}

impl<'a> Work<'a> {
    fn new(server: &'a Server) -> Work<'a> {
        let place = Place::new(server);
        let mut work = Work { place, model: Model::default(), chance: chance(), usual: Duration::ZERO, puts: 0 };
        let began = Instant::now();
        work.put();
        work.usual = began.elapsed();
        work
    }

    /// A key, sometimes one that is there, and content for it: inline, an object of its own, or several.
    fn next(&mut self) -> (String, Vec<u8>) {
        self.puts += 1;
        let length = [100, 20_000, 300_000, 3_000_000][self.chance.index(4)];
        (format!("d{}/{}", self.puts % 3, self.chance.below(20)), bytes(self.chance.any(), length))
    }

    /// Puts an object, which has to succeed.
    #[track_caller]
    fn put(&mut self) {
        let (key, content) = self.next();
        self.place.put(&key, &content).ended(0);
        self.model.acknowledged(&key, &content);
    }

    /// Starts to put an object; somebody or something will be killed meanwhile.
    fn start(&mut self) -> (Child, String, Vec<u8>) {
        let (key, content) = self.next();
        (self.place.start("put", self.place.put_arguments(&key, &content)), key, content)
    }

    /// A moment in the life of a process.
    fn pause(&mut self) {
        thread::sleep(self.usual * self.chance.below(1200) as u32 / 1000);
    }

    /// A tree of files to import, all of which may be there afterwards.
    fn make_tree(&mut self, name: &str) -> (PathBuf, Vec<(String, Vec<u8>)>) {
        let root = self.place.new_path("tree");
        let files: Vec<(String, Vec<u8>)> = (0..200)
            .map(|number| {
                (format!("{name}/{number:03}"), bytes(self.chance.any(), if number < 2 { 2_000_000 } else { 5000 }))
            })
            .collect();
        std::fs::create_dir_all(root.join(name)).unwrap();
        files.iter().for_each(|(key, content)| std::fs::write(root.join(key), content).unwrap());
        (root, files)
    }
}

fn kill(mut child: Child) -> bool {
    child.kill().unwrap();
    child.wait().unwrap().success()
}

fn a_killed_writer_loses_nothing(server: &Server) {
    let mut work = Work::new(server);
    for number in 0..kills() {
        let (writer, key, content) = work.start();
        work.pause();
        let is_acknowledged = kill(writer);
        work.model.ended(is_acknowledged, &key, &content);
        // The next one follows at once, or is killed as well.
        if number % 3 != 2 {
            work.put();
        }
        if number % 10 == 9 {
            work.model.compare(&work.place);
        }
    }
    work.put();
    work.model.compare(&work.place);
}

fn a_killed_import_can_be_repeated(server: &Server) {
    let mut work = Work::new(server);
    for number in 0..kills() {
        let (root, files) = work.make_tree(&format!("tree{}", number % 4));
        let import = work.place.start("import", args!["--quiet", "--wait=300s", &root]);
        work.pause();
        let is_acknowledged = kill(import);
        files.iter().for_each(|(key, content)| work.model.ended(is_acknowledged, key, content));
        if number % 5 == 4 {
            work.model.compare(&work.place);
        }
        work.place.run_on("import", args!["--quiet", "--wait=300s", &root]).ended(0);
        files.iter().for_each(|(key, content)| work.model.acknowledged(key, content));
        std::fs::remove_dir_all(root).unwrap();
    }
    work.model.compare(&work.place);
}

/// Readers share a cache on this machine, which a killed one may leave in any state.
fn a_killed_reader_harms_nobody(server: &Server) {
    let mut work = Work::new(server);
    for _ in 0..kills() {
        let target = work.place.new_path("killed");
        let export = work.place.start("export", args!["--quiet", &target]);
        let check = work.place.start("check", ["--deep"]);
        work.pause();
        kill(export);
        kill(check);
        work.put();
    }
    work.model.compare(&work.place);
}

fn a_killed_gateway_loses_nothing(server: &Server) {
    let mut work = Work::new(server);
    for _ in 0..kills() {
        let (mut writer, key, content) = work.start();
        work.pause();
        server.kill_gateway();
        server.start_gateway();
        let is_acknowledged = writer.wait().unwrap().success();
        work.model.ended(is_acknowledged, &key, &content);
        work.put();
    }
    work.model.compare(&work.place);
}

#[test]
fn an_osd_of_ceph_that_is_killed_loses_nothing() {
    let Some(server) = servers::ceph() else { return };
    let osds: u64 = server.setting("CEPH_OSDS").parse().unwrap();
    let mut work = Work::new(&server);
    for number in 0..kills() {
        let (mut writer, key, content) = work.start();
        work.pause();
        server.kill_osd(number % osds);
        let is_acknowledged = writer.wait().unwrap().success();
        work.model.ended(is_acknowledged, &key, &content);
        // Two of three are enough.
        work.put();
        server.start_osd(number % osds);
        work.put();
    }
    work.model.compare(&work.place);
}

on_each_server!(
    a_killed_writer_loses_nothing,
    a_killed_import_can_be_repeated,
    a_killed_reader_harms_nobody,
    a_killed_gateway_loses_nothing,
);
