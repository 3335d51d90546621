//! Several writers: they wait for each other, none commits behind the back of another, and readers see what was
//! committed.

use std::io::Write;
use std::process::{Child, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::args;
use crate::model::Model;
use crate::on_each_server;
use crate::place::{Place, bytes, wait_until};
use crate::servers::Server;

const THREADS: u64 = 3;
const PUTS: u64 = 4;

/// Writers that want to write at the same time do so one after the other, and all of it is there.
fn writers_take_turns(server: &Server) {
    let place = Place::new(server);
    let content = |thread: u64, number: u64| bytes(thread << 32 | number, 3000 + 100_000 * (number % 2) as usize);
    let key = |thread: u64, number: u64| format!("t{thread}/{number}");
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let place = &place;
            scope.spawn(move || {
                for number in 0..PUTS {
                    place.put(&key(thread, number), &content(thread, number)).ended(0);
                    // Whoever looks after a commit sees it.
                    let got = place.run_on("get", [key(thread, number)]).ended(0);
                    assert!(got.stdout == content(thread, number));
                }
            });
        }
    });
    let mut model = Model::default();
    for (thread, number) in (0..THREADS).flat_map(|thread| (0..PUTS).map(move |number| (thread, number))) {
        model.acknowledged(&key(thread, number), &content(thread, number));
    }
    model.compare(&place);
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A writer that sleeps through its lease cannot commit when it wakes.
fn a_writer_that_overslept_is_fenced(server: &Server) {
    let place = Place::new(server);
    let mut model = Model::default();
    place.put("before", b"before").ended(0);
    model.acknowledged("before", b"before");
    // It waits for its content, as the writer of the store.
    let mut sleeper = place.command("put", args!["--quiet", "late", "-"]);
    let mut sleeper = sleeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut tries = 0..;
    wait_until("another writer refused", || {
        let key = format!("try{}", tries.next().unwrap());
        let file = place.new_path("content");
        std::fs::write(&file, "try").unwrap();
        let is_acknowledged = place.run_on("put", args!["--quiet", &key, file]).code == Some(0);
        model.ended(is_acknowledged, &key, b"try");
        !is_acknowledged
    });
    signal(&sleeper, Signal::STOP);
    place.put("meanwhile", b"meanwhile").ended(0);
    model.acknowledged("meanwhile", b"meanwhile");
    signal(&sleeper, Signal::CONT);
    // It may have noticed already, and be gone.
    let _ = sleeper.stdin.take().unwrap().write_all(b"late");
    let ended = sleeper.wait_with_output().unwrap();
    assert!(!ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(place.run_on("get", ["late"]).code != Some(0));
    model.compare(&place);
}

on_each_server!(writers_take_turns, a_writer_that_overslept_is_fenced);
