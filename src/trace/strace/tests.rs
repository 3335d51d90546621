//! Handwritten strace output for every difficult case, and the expected operations.

use std::collections::BTreeMap;

use super::*;
use crate::trace::{Format, Kind, detect};

/// The operations of a text, as `kind file offset+length/size`, and the reader.
fn read(text: &str) -> (Vec<String>, Reader) {
    let mut reader = Reader::new(Input::of_bytes(text.as_bytes().to_vec()).unwrap());
    let mut operations = Vec::new();
    while let Some(operation) = reader.next().unwrap() {
        operations.push(operation);
    }
    let words = operations.iter().map(|operation| words(operation, &reader)).collect();
    (words, reader)
}

fn words(operation: &Operation, reader: &Reader) -> String {
    let mut text = operation.kind.name().to_owned();
    if let Some(file) = operation.file {
        text += &format!(" {}", String::from_utf8_lossy(reader.files().get(file).unwrap()));
    }
    if operation.failed {
        text += " failed";
    }
    if operation.kind.moves_bytes() && !operation.failed {
        let offset = operation.offset_bytes.map_or("?".to_owned(), |offset| offset.to_string());
        text += &format!(" {offset}+{}", operation.length_bytes);
    }
    if let Some(size) = operation.file_size_bytes {
        text += &format!("/{size}");
    }
    text
}

fn operations(text: &str) -> Vec<String> {
    let (operations, reader) = read(text);
    assert_eq!(reader.problems().list(), Vec::<&crate::trace::Problem>::new(), "{text}");
    operations
}

fn troubles(text: &str) -> BTreeMap<Trouble, u64> {
    read(text).1.problems().list().iter().map(|problem| (problem.kind, problem.count)).collect()
}

#[test]
fn reads_and_writes_have_offsets() {
    let text = r#"
7 1700000000.000001 execve("/bin/cp", ["cp", "a", "b"], 0x7ffc /* 9 vars */) = 0 <0.0005>
7 1700000000.000100 openat(AT_FDCWD</w>, "a", O_RDONLY) = 3</w/a> <0.000010>
7 1700000000.000110 newfstatat(3</w/a>, "", {st_mode=S_IFREG|0644, st_size=100, ...}, AT_EMPTY_PATH) = 0 <0.000001>
7 1700000000.000120 openat(AT_FDCWD</w>, "b", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 4</w/b> <0.000010>
7 1700000000.000130 read(3</w/a>, ""..., 64) = 64 <0.000002>
7 1700000000.000140 write(4</w/b>, ""..., 64) = 64 <0.000002>
7 1700000000.000150 read(3</w/a>, ""..., 64) = 36 <0.000002>
7 1700000000.000160 pwrite64(4</w/b>, ""..., 36, 64) = 36 <0.000002>
7 1700000000.000170 read(3</w/a>, "", 64) = 0 <0.000002>
7 1700000000.000180 lseek(3</w/a>, 10, SEEK_SET) = 10 <0.000002>
7 1700000000.000190 pread64(3</w/a>, ""..., 5, 20) = 5 <0.000002>
7 1700000000.000200 readv(3</w/a>, [{iov_base=""..., iov_len=2}, {iov_base=""..., iov_len=8}], 2) = 10 <0.000002>
7 1700000000.000210 close(3</w/a>) = 0 <0.000001>
7 1700000000.000220 fsync(4</w/b>) = 0 <0.1>
7 1700000000.000230 ftruncate(4</w/b>, 50) = 0 <0.1>
7 1700000000.000240 exit_group(0) = ?
7 1700000000.000250 +++ exited with 0 +++
"#;
    let (_, reader) = read(text);
    assert_eq!(
        operations(text),
        [
            "execute /bin/cp",
            "open /w/a",
            "stat /w/a/100",
            "create /w/b/0",
            "read /w/a 0+64/100",
            "write /w/b 0+64/64",
            "read /w/a 64+36/100",
            "write /w/b 64+36/100",
            "read /w/a 100+0/100",
            "read /w/a 20+5/100",
            "read /w/a 10+10/100",
            "close /w/a/100",
            "sync /w/b/100",
            "truncate /w/b/50",
            "close /w/b/50",
        ]
    );
    assert_eq!(reader.processes().get(0), Some(&b"7 cp"[..]));
    let mut again = Reader::new(Input::of_bytes(text.as_bytes().to_vec()).unwrap());
    let first = again.next().unwrap().unwrap();
    assert_eq!((first.time_ns, first.duration_ns), (1_700_000_000_000_001_000, Some(500_000)));
    assert_eq!(detect(text.as_bytes()), Some(Format::Strace));
}

#[test]
fn calls_that_others_interrupt_are_put_together() {
    let text = r#"
1 10.0 open("/a", O_RDONLY) = 3
1 10.1 read(3,  <unfinished ...>
2 10.2 open("/b", O_RDONLY <unfinished ...>
1 10.3 <... read resumed>"x"..., 10) = 10
2 10.4 <... open resumed>) = 3
2 10.5 read(3, <unfinished ...>
1 10.6 close(3) = 0
2 10.7 <... read resumed> "x"..., 5) = 5
"#;
    assert_eq!(operations(text), ["open /a", "read /a 0+10", "open /b", "close /a", "read /b 0+5"]);
    // The time is that of the beginning.
    let mut reader = Reader::new(Input::of_bytes("1 200000000.5 read(3</a>,  <unfinished ...>\n2 200000001.0 sync() = 0\n1 200000002.5 <... read resumed>\"\"..., 1) = 1 <2.0>\n").unwrap());
    let (sync, late) = (reader.next().unwrap().unwrap(), reader.next().unwrap().unwrap());
    assert_eq!((sync.kind, late.kind), (Kind::Sync, Kind::Read));
    assert_eq!((late.time_ns, late.duration_ns), (200_000_000_500_000_000, Some(2_000_000_000)));
}

#[test]
fn a_file_without_a_name_is_not_its_directory() {
    let text = r#"
1 openat(AT_FDCWD, "/tmp", O_RDWR|O_TMPFILE|O_CLOEXEC, 0600) = 3
1 write(3, ""..., 10) = 10
1 openat(AT_FDCWD, "/tmp", O_RDWR|O_TMPFILE, 0600) = 4</tmp/#12 (deleted)>
1 openat(AT_FDCWD, "/tmp", O_RDWR|O_TMPFILE, 0600) = -1 ENOSPC (No space left on device)
1 open("/tmp", O_RDONLY) = 5
"#;
    let found = operations(text);
    let nameless = ["create /tmp/(O_TMPFILE)/0", "write /tmp/(O_TMPFILE) 0+10/10"];
    assert_eq!(found[..2], nameless);
    assert!(found[2].starts_with("create /tmp/#12") && found[3].contains("O_TMPFILE"), "{found:?}");
    assert_eq!(found[4], "open /tmp");
    assert_eq!(operations(r#"1 openat(AT_FDCWD, "/a", O_WRONLY|O_TRUNC) = 3"#), ["create /a/0"]);
    let in_root = operations(r#"1 openat(AT_FDCWD, "/", O_RDWR|O_TMPFILE, 0600) = 3"#);
    assert_eq!(in_root, ["create /(O_TMPFILE)/0"]);
    // A name by its descriptor, and one by what /proc has of it, are names of the same file.
    let named = r#"
1 openat(AT_FDCWD, "/tmp", O_RDWR|O_TMPFILE, 0600) = 3
1 write(3, ""..., 10) = 10
1 linkat(3, "", AT_FDCWD, "/tmp/x", AT_EMPTY_PATH) = 0
1 linkat(AT_FDCWD, "/proc/self/fd/3", AT_FDCWD, "/tmp/y", AT_SYMLINK_FOLLOW) = 0
1 open("/tmp/x", O_RDONLY) = 4
1 open("/tmp/y", O_RDONLY) = 5
"#;
    let of_it = |kind: &str| format!("{kind} /tmp/(O_TMPFILE)/10");
    assert_eq!(operations(named)[2..], ["link", "link", "open", "open"].map(of_it));
}

#[test]
fn descriptors_are_inherited_shared_and_closed() {
    // A fork copies the table: both processes close before the open ends. They share the offset.
    let forked = r#"
1 open("/a", O_RDONLY) = 3
1 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7) = 2
1 read(3, ""..., 10) = 10
2 read(3, ""..., 10) = 10
1 close(3) = 0
2 open("/b", O_RDONLY) = 4
1 read(4, ""..., 10) = 10
2 +++ exited with 0 +++
"#;
    let (found, reader) = read(forked);
    assert_eq!(found, ["open /a", "read /a 0+10", "read /a 10+10", "open /b", "close /a", "close /b"]);
    // Process 1 has no descriptor 4.
    assert_eq!(reader.problems().of(Trouble::UnknownFile), 1);
    // Threads share the table, and the child may appear before its parent's call has ended.
    let threads = r#"
1 open("/a", O_RDONLY) = 3
1 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD, exit_signal=0}, 88 <unfinished ...>
2 close(3) = 0
2 open("/b", O_RDONLY) = 3
1 <... clone3 resumed>) = 2
1 read(3, ""..., 10) = 10
2 +++ exited with 0 +++
1 read(3, ""..., 10) = 10
1 +++ exited with 0 +++
"#;
    assert_eq!(operations(threads), ["open /a", "close /a", "open /b", "read /b 0+10", "read /b 10+10", "close /b"]);
}

#[test]
fn descriptors_are_duplicated_and_closed_by_running_a_program() {
    let text = r#"
1 open("/a", O_RDONLY|O_CLOEXEC) = 3
1 open("/b", O_WRONLY) = 4
1 dup2(4, 1) = 1
1 fcntl(4, F_DUPFD_CLOEXEC, 10) = 10
1 close(4) = 0
1 execve("/bin/x", ["x"], 0x1 /* 0 vars */) = 0
1 write(1, ""..., 7) = 7
1 dup2(1, 1) = 1
1 open("/c", O_RDONLY) = 3
1 dup3(3, 1, O_CLOEXEC) = 1
1 close_range(3, 4294967295, 0) = 0
1 close(1) = 0
"#;
    assert_eq!(
        operations(text),
        ["open /a", "open /b", "close /a", "execute /bin/x", "write /b 0+7", "open /c", "close /b", "close /c"]
    );
}

#[test]
fn appending_and_copying_in_the_kernel_have_offsets() {
    let text = r#"
1 openat(AT_FDCWD, "/a", O_RDWR|O_CREAT|O_EXCL, 0600) = 3
1 write(3, ""..., 100) = 100
1 openat(AT_FDCWD, "/a", O_WRONLY|O_APPEND) = 4
1 write(4, ""..., 5) = 5
1 lseek(3, 0, SEEK_SET) = 0
1 openat(AT_FDCWD, "/b", O_RDWR|O_CREAT|O_TRUNC, 0600) = 5
1 sendfile(5, 3, NULL, 50) = 50
1 sendfile(5, 3, [10] => [20], 10) = 10
1 copy_file_range(3, [20 => 30], 5, NULL, 10, 0) = 10
1 copy_file_range(3, NULL, 5, [0], 10, 0) = 10
1 pipe2([6, 7], O_CLOEXEC) = 0
1 splice(3, [0], 7, NULL, 8, 0) = 8
1 splice(6, NULL, 5, [80], 8, 0) = 8
1 lseek(5, 0, SEEK_END) = 88
1 fallocate(5, 0, 0, 200) = 0
1 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 5, 0) = 0x7f0000000000
1 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000
"#;
    assert_eq!(
        operations(text),
        [
            "create /a/0",
            "write /a 0+100/100",
            "open /a/100",
            "write /a 100+5/105",
            "create /b/0",
            "read /a 0+50/105",
            "write /b 0+50/50",
            "read /a 10+10/105",
            "write /b 50+10/60",
            "read /a 20+10/105",
            "write /b 60+10/70",
            "read /a 50+10/105",
            "write /b 0+10/70",
            "read /a 0+8/105",
            "write /b 80+8/88",
            "allocate /b/200",
            "map /b 0+200/200",
        ]
    );
}

#[test]
fn the_time_of_a_copy_counts_once() {
    let times = |text: &str| {
        let mut reader = Reader::new(Input::of_bytes(text.as_bytes().to_vec()).unwrap());
        let operations = std::iter::from_fn(|| reader.next().unwrap());
        operations.map(|operation| (operation.kind, operation.duration_ns)).collect::<Vec<_>>()
    };
    let half = Some(500_000_000);
    assert_eq!(times("1 splice(3<pipe:[5]>, NULL, 4</a>, NULL, 9, 0) = 9 <0.5>\n"), [(Kind::Write, half)]);
    assert_eq!(times("1 sendfile(4<socket:[5]>, 3</a>, NULL, 9) = 9 <0.5>\n"), [(Kind::Read, half)]);
    assert_eq!(
        times("1 copy_file_range(3</a>, NULL, 4</b>, NULL, 9, 0) = 9 <0.5>\n"),
        [(Kind::Read, half), (Kind::Write, None)]
    );
}

#[test]
fn a_seek_to_an_unknown_place_makes_the_offset_unknown() {
    let text = r#"
1 open("/a", O_RDONLY) = 3
1 read(3, ""..., 10) = 10
1 _llseek(3, 0, 0x7ffd00, SEEK_SET) = 0
1 read(3, ""..., 10) = 10
1 _llseek(3, 0, [80], 0x2 /* SEEK_END */) = 0
1 lseek(3, 0, 0x2) = 80
1 read(3, ""..., 10) = 0
"#;
    assert_eq!(operations(text), ["open /a", "read /a 0+10", "read /a ?+10", "read /a 80+0/80"]);
}

#[test]
fn names_change_and_files_stay() {
    let text = r#"
1 open("/w/tmp", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3
1 write(3, ""..., 9) = 9
1 close(3) = 0
1 rename("/w/tmp", "/w/final") = 0
1 open("/w/final", O_RDONLY) = 3
1 unlink("/w/final") = 0
1 read(3, ""..., 9) = 9
1 open("/w/final", O_WRONLY|O_CREAT|O_EXCL, 0600) = 4
1 unlink("/w/none") = -1 ENOENT (No such file or directory)
"#;
    let (found, reader) = read(text);
    assert_eq!(
        found,
        [
            "create /w/tmp/0",
            "write /w/tmp 0+9/9",
            "close /w/tmp/9",
            "rename /w/tmp/9",
            "open /w/tmp/9",
            "remove /w/tmp/9",
            "read /w/tmp 0+9/9",
            "create /w/final/0",
            "remove /w/none failed",
        ]
    );
    assert_eq!(reader.files().len(), 3);
}

#[test]
fn a_call_with_an_absolute_name_shows_the_working_directory_too() {
    let text = r#"
1 openat(AT_FDCWD</w>, "/etc/ld.so.cache", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)
1 access("x", F_OK) = -1 ENOENT (No such file or directory)
"#;
    assert_eq!(operations(text), ["open /etc/ld.so.cache failed", "look up /w/x failed"]);
}

#[test]
fn relative_names_are_seen_from_where_they_are() {
    let text = r#"
1 chdir("/w") = 0
1 open("a", O_RDONLY) = -1 ENOENT (No such file or directory)
1 open("d", O_RDONLY|O_DIRECTORY) = 3
1 openat(3, "x", O_RDONLY) = 4
1 getdents64(3, 0x5 /* 3 entries */, 32768) = 88
1 fchdir(3) = 0
1 stat("../a", {st_mode=S_IFREG|0644, st_size=77, ...}) = 0
1 openat(AT_FDCWD</else>, "y", O_RDONLY) = 5
1 access("z", F_OK) = -1 ENOENT (No such file or directory)
1 fork() = 2
2 chdir("/") = 0
2 mkdir("m", 0777) = 0
1 mkdir("m", 0777) = 0
1 statx(AT_FDCWD, "m", AT_STATX_SYNC_AS_STAT, STATX_ALL, {stx_mask=STATX_ALL, stx_mode=S_IFREG|0644, stx_size=3}) = 0
"#;
    assert_eq!(
        operations(text),
        [
            "open /w/a failed",
            "open /w/d",
            "open /w/d/x",
            "list directory /w/d",
            "stat /w/a/77",
            "open /else/y",
            "look up /else/z failed",
            "make directory /m",
            "make directory /else/m",
            "stat /else/m/3",
        ]
    );
}

#[test]
fn names_that_are_hard_to_print_are_understood() {
    let text = "1 open(\"/a b\\n\\303\\244\\\"<1>\", O_RDONLY) = 3</a b\\n\\303\\244\"\\74\\61\\76>\n\
        1 open(\"\\x2f\\x78\", O_RDONLY) = 4<\\x2f\\x78>\n1 read(4</x>, \"), (\", 9) = 4\n1 read(3</a b\\n\\303\\244\"\\74\\61\\76>, \"\\\"\", 1) = 1\n\
        1 unlink(\"/x\") = 0\n1 read(4</x>(deleted), \"\", 9) = 0\n";
    assert_eq!(
        operations(text),
        ["open /a b\nä\"<1>", "open /x", "read /x 0+4", "read /a b\nä\"<1> 0+1", "remove /x", "read /x 4+0/4"]
    );
}

#[test]
fn only_what_is_stored_counts() {
    let text = r#"
1 read(0</dev/pts/0<char 136:0>>, ""..., 1024) = 5
1 write(1<pipe:[123]>, ""..., 5) = 5
1 open("/proc/self/maps", O_RDONLY) = 3</proc/7/maps>
1 read(3</proc/7/maps>, ""..., 1024) = 900
1 openat(AT_FDCWD, "/dev/null", O_WRONLY) = 4</dev/null<char 1:3>>
1 write(4</dev/null<char 1:3>>, ""..., 9) = 9
1 socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, IPPROTO_TCP) = 5
1 write(5, ""..., 9) = 9
1 stat("/sys/x", 0x1) = -1 ENOENT (No such file or directory)
1 ioctl(4</a>, TCGETS, 0x7) = -1 ENOTTY (Inappropriate ioctl for device)
1 openat(AT_FDCWD, "/dev/shm/x", O_RDWR|O_CREAT|O_EXCL, 0600) = 6</dev/shm/x>
"#;
    assert_eq!(operations(text), ["create /dev/shm/x/0"]);
}

#[test]
fn what_was_opened_unseen_is_known_by_its_name() {
    let text = "1 read(3</a>, \"\"..., 10) = 10\n1 lseek(3</a>, 0, SEEK_CUR) = 10\n1 read(3</a>, \"\"..., 10) = 10\n1 close(3</a>) = 0\n1 read(3</b>, \"\"..., 1) = 1\n";
    assert_eq!(operations(text), ["read /a ?+10", "read /a 10+10", "close /a", "read /b ?+1"]);
    // Without -y, its file is unknown.
    let (found, reader) = read("1 read(7, \"\"..., 10) = 10\n1 read(0, \"\"..., 10) = 10\n");
    assert_eq!((found.len(), reader.problems().of(Trouble::UnknownFile)), (0, 1));
}

#[test]
fn the_first_process_gets_its_number_late() {
    let text = r#"open("/a", O_RDONLY) = 3
fork() = 12
strace: Process 12 attached
[pid 11] read(3, ""..., 4) = 4
[pid 12] read(3, ""..., 4) = 4
[pid 12] +++ exited with 0 +++
close(3) = 0
"#;
    assert_eq!(operations(text), ["open /a", "read /a 0+4", "read /a 4+4", "close /a"]);
}

#[test]
fn every_kind_of_time_is_understood() {
    let times = |text: &str| {
        let mut reader = Reader::new(Input::of_bytes(text.as_bytes().to_vec()).unwrap());
        let times: Vec<u64> =
            std::iter::from_fn(|| reader.next().unwrap()).map(|operation| operation.time_ns).collect();
        (reader.origin().clock, times, reader.problems().of(Trouble::ClockBackwards))
    };
    let second = 1_000_000_000;
    assert_eq!(times("sync() = 0\nsync() = 0\n"), (Clock::None, vec![1, 2], 0));
    assert_eq!(
        times("     0.000000 sync() = 0\n     0.500000 sync() = 0\n     0.500000 sync() = 0\n").1,
        [0, second / 2, second]
    );
    // A wait may be in the time of a signal alone.
    let signal = "     0.500000 sync() = 0\n     2.000000 --- SIGCHLD {} ---\n     0.500000 sync() = 0\n";
    assert_eq!(times(signal).1, [second / 2, 3 * second]);
    let midnight = times("23:59:59.5 sync() = 0\n00:00:00.5 sync() = 0\n");
    assert_eq!((midnight.0, midnight.1[1] - midnight.1[0], midnight.2), (Clock::Start, second, 0));
    let back = times("1700000001.0 sync() = 0\n1700000000.0 sync() = 0\n1700000002.0 sync() = 0\n");
    assert_eq!((back.0, back.1.len(), back.2), (Clock::Wall, 3, 1));
}

#[test]
fn what_is_wrong_is_counted_and_the_rest_stands() {
    let count = |kind, count| BTreeMap::from([(kind, count)]);
    assert_eq!(troubles("some garbage\nsync() = 0\nmake: *** [all] Error 1\n"), count(Trouble::Unreadable, 2));
    assert_eq!(troubles("1 read(3</a>, \"\"..., 1) = 1\n1 read(3</a>, \"ab"), count(Trouble::Truncated, 1));
    assert_eq!(
        troubles("1 frobnicate(3</a>, 5) = 0\n1 frobnicate(\"/x\") = 0\n1 getpid() = 1\n"),
        count(Trouble::UnknownCall, 2)
    );
    assert_eq!(troubles("1 read(3</a>,  <unfinished ...>\n"), count(Trouble::Unfinished, 1));
    assert_eq!(
        troubles("1 read(3</a>,  <unfinished ...>\n1 sync( <unfinished ...>\n1 <... sync resumed>) = 0\n"),
        count(Trouble::Unfinished, 1)
    );
    assert_eq!(troubles("1 <... read resumed>\"\", 1) = 0\n"), count(Trouble::Unmatched, 1));
    assert_eq!(troubles("1 read(3</a>,  <unfinished ...>\n1 <... write resumed>) = 0\n"), count(Trouble::Unmatched, 1));
    assert_eq!(
        troubles("1 io_uring_setup(8, {flags=0}) = 4\n1 io_uring_enter(4, 3, 1, 0, NULL, 8) = 3\n"),
        count(Trouble::NotTraced, 3)
    );
    let refused = "1 io_uring_setup(8, {flags=0}) = -1 EPERM (Operation not permitted)\n1 sync() = 0\n";
    assert_eq!(troubles(refused), BTreeMap::new());
    assert_eq!(troubles(&format!("1 {}\n1 sync() = 0\n", "x".repeat(2 << 20))), count(Trouble::Unreadable, 1));
    assert_eq!(read(&format!("1 {}\n1 sync() = 0\n", "x".repeat(2 << 20))).0, ["sync"]);
    assert_eq!(
        troubles("1 --- SIGCHLD {si_signo=SIGCHLD} ---\n[ Process PID=7 runs in 32 bit mode. ]\n\n"),
        BTreeMap::new()
    );
}

#[test]
fn other_texts_are_not_taken_for_it() {
    for text in [
        "",
        "time,op,offset,size\n1,read,0,4096\n",
        "fn main() {\n    f(x);\n}\n",
        "\x7fELF\0\0\0\n",
        "hello\nworld = 5\n",
    ] {
        assert!(!is_strace(text.as_bytes()), "{text}");
    }
    assert!(is_strace(b"garbage\nread(3, \"\", 5) = 0\n12 write(1, \"x\""));
}

proptest::proptest! {
    #[test]
    fn nothing_makes_it_stop(pieces in proptest::collection::vec(0usize..28, 0..60)) {
        const PIECES: [&str; 28] = [
            "1 ", "2 ", "[pid 3] ", "1700000000.1 ", "open(", "read(", "\"/a\"", "\"", "3", "</a>", "<", ">", ", ", ")", "(", " = 3\n", " = ?\n",
            "\n", " <unfinished ...>\n", "<... read resumed>", "fork(", "clone(", "close(", "execve(", "+++ exited +++\n", "[", "\\", "O_CREAT|O_TRUNC",
        ];
        let text: String = pieces.iter().map(|&piece| PIECES[piece]).collect();
        read(&text);
    }
}
