//! Traces of other programs: captures of NFS, logs of Darshan, tables; and live recording of a mount.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::args;
use crate::harness::{
    Ran, finish, granulo, has_program, in_mount_namespace, is_root, run, sandbox, skip, source_tree, without_wishes,
};
use crate::nfs_packets::{Capture, Version3, xdr};

/// `trace read --json` of a file with these bytes.
#[track_caller]
fn read(name: &str, bytes: &[u8], arguments: &[&str]) -> Value {
    let sandbox = sandbox();
    let path = sandbox.path().join(name);
    fs::write(&path, bytes).unwrap();
    let ran = finish(granulo().args(["trace", "read", "--json"]).arg(&path).args(arguments));
    let was_wrong = ran.json()["problems"].as_array().is_some_and(|problems| !problems.is_empty());
    let ran = ran.ended(i32::from(was_wrong));
    assert_eq!(ran.said(), "");
    ran.json()
}

/// The error of `trace read`.
#[track_caller]
fn refused(bytes: &[u8], arguments: &[&str]) -> String {
    let sandbox = sandbox();
    let path = sandbox.path().join("trace");
    fs::write(&path, bytes).unwrap();
    finish(granulo().args(["trace", "read"]).arg(&path).args(arguments)).ended(2).said()
}

fn kind(trace: &Value, kind: &str) -> (u64, u64) {
    let rows = trace["kinds"].as_array().unwrap();
    let row = rows.iter().find(|row| row["kind"] == kind);
    row.map_or((0, 0), |row| (row["count"].as_u64().unwrap(), row["bytes"].as_u64().unwrap()))
}

fn problem(trace: &Value, kind: &str) -> u64 {
    let rows = trace["problems"].as_array().unwrap();
    rows.iter().find(|row| row["kind"] == kind).map_or(0, |row| row["count"].as_u64().unwrap())
}

fn needs(programs: &[&str]) -> bool {
    match programs.iter().find(|program| !has_program(program)) {
        Some(missing) => {
            skip(&format!("there is no {missing}"));
            false
        }
        None => true,
    }
}

const MSR: &str = "128166372003061629,hm,0,Read,383496192,32768,41286\n\
    128166372016382155,hm,0,Write,2822144,4096,223\n\
    128166372026382245,hm,0,Write,2826240,4096,223\n";

#[test]
fn a_block_trace_is_recognised_packed_or_not() {
    let packed = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(MSR.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    for (name, bytes) in [
        ("hm.csv", MSR.as_bytes().to_vec()),
        ("hm.csv.gz", packed.clone()),
        ("hm.zst", zstd::encode_all(MSR.as_bytes(), 1).unwrap()),
    ] {
        let trace = read(name, &bytes, &[]);
        assert_eq!((&trace["recorder"], &trace["clock"]), (&"csv".into(), &"wall".into()));
        assert_eq!((kind(&trace, "read"), kind(&trace, "write")), ((1, 32_768), (2, 8192)));
        assert_eq!(trace["writes"]["patterns"][1]["count"], 1, "{}", trace["writes"]["patterns"]);
        assert_eq!(trace["problems"], Value::Array(Vec::new()));
    }
    let cut = read("cut.csv.gz", &packed[..packed.len() - 6], &[]);
    assert_eq!((cut["operations"].as_u64(), problem(&cut, "truncated")), (Some(3), 1));
}

#[test]
fn a_table_is_read_by_its_columns() {
    let table = "when;what;name;at;much\n0,5;read;/a;0;8\n1.5;write;/b;1;8\n2.5;frobnicate;/b;1;8\n3.5;stat;/b;;\n4.5;read;/b;0;-1\n";
    let trace = read(
        "ops.csv",
        table.as_bytes(),
        &["--columns", "time=when:ms,op=what,file=3,offset=at:4KiB,size=much:sectors"],
    );
    assert_eq!((kind(&trace, "read"), kind(&trace, "write"), kind(&trace, "stat")), ((0, 0), (1, 4096), (1, 0)));
    assert_eq!((problem(&trace, "unreadable"), problem(&trace, "unknown_call"), problem(&trace, "absurd")), (1, 1, 1));
    assert_eq!(trace["clock"], "start");
    for (arguments, says) in [
        (&["--columns", "time=1"][..], "no column has the size"),
        (&["--columns", "size=Length"], "no column 'Length'"),
        (&["--columns", "msx"], "snia-systor17"),
        (&["--columns", "size=1", "--format", "strace"], "--columns is for tables"),
        (&["--format", "csv"], "--columns time=1"),
        (&[], "--format"),
    ] {
        let said = refused(b"1,2,3\n4,5,6\n", arguments);
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}

/// A directory with programs that print what Darshan's tools print.
fn darshan_programs(directory: &Path, text: &str) -> PathBuf {
    let programs = directory.join("programs");
    fs::create_dir(&programs).unwrap();
    let (traced, counted) = text.split_once("\n# darshan log version: 3.41\n").unwrap();
    for (program, text) in [("darshan-dxt-parser", traced), ("darshan-parser", counted)] {
        fs::write(programs.join(format!("{program}.txt")), text).unwrap();
        let script = "#!/bin/sh\n[ \"$1\" = --show-incomplete ] && [ -f \"$2\" ] && exec cat \"$0.txt\"\necho no such log >&2; exit 255\n";
        fs::write(programs.join(program), script).unwrap();
        fs::set_permissions(programs.join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    programs
}

#[test]
fn a_log_of_darshan_is_read_by_its_own_parsers() {
    let text = fs::read_to_string(source_tree().join("tests/data/traces/darshan-small.txt")).unwrap();
    let whole = read("darshan.txt", format!("# darshan log version: 3.41\n{text}").as_bytes(), &[]);
    assert_eq!((kind(&whole, "write"), kind(&whole, "read")), ((4 + 3, (4 << 20) + 100), (10, 9 * 65_536 + 500)));
    assert_eq!((&whole["command"], &whole["problems"]), (&"./model --steps 4".into(), &Value::Array(Vec::new())));
    assert_eq!(whole["reads"]["whole"]["max"], 9 * 65_536 + 500, "one opening is one read");

    let sandbox = sandbox();
    let log = sandbox.path().join("job.darshan");
    fs::write(&log, [&b"3.41\0\0\0\0"[..], &6_567_223u64.to_le_bytes(), &[7; 500]].concat()).unwrap();
    let programs = darshan_programs(sandbox.path(), &text);
    let path = std::env::join_paths([programs.clone(), "/usr/bin".into(), "/bin".into()]).unwrap();
    let by_parsers = |path: &OsString| finish(granulo().env("PATH", path).args(["trace", "read", "--json"]).arg(&log));
    let mut trace = by_parsers(&path).ended(0).json();
    trace["name"] = whole["name"].clone();
    assert_eq!(trace, whole);
    // Without the second program: counts instead of single requests.
    fs::remove_file(programs.join("darshan-dxt-parser")).unwrap();
    let counted = by_parsers(&path).ended(0).json();
    assert_eq!(kind(&counted, "write"), kind(&whole, "write"));
    assert!(counted["notes"].to_string().contains("darshan-dxt-parser is missing"), "{}", counted["notes"]);
    // A log that they refuse, and no programs.
    fs::write(programs.join("darshan-parser"), "#!/bin/sh\necho 'Error: bad magic' >&2\nexit 255\n").unwrap();
    let said = by_parsers(&path).ended(2).said();
    assert!(said.contains("bad magic"), "{said}");
    let said = by_parsers(&sandbox.path().as_os_str().to_owned()).ended(2).said();
    assert!(said.contains("darshan-parser") && said.contains("darshan-util"), "{said}");
}

/// A copy of 10 MB there and back, some small files, and failing calls.
fn work_of_version_3() -> Version3 {
    let mut server = Version3::default();
    let size = 10_000_000;
    server.look_up("big", size);
    for offset in (0..size).step_by(1 << 20) {
        server.read("big", offset, 1 << 20, size);
    }
    for offset in (0..size).step_by(1 << 20) {
        server.write("copy", offset, (size - offset).min(1 << 20) as u32);
    }
    for small in 0..5u64 {
        server.look_up(&format!("small{small}"), 100 * small);
        server.read(&format!("small{small}"), 0, 65_536, 100 * (small + 1));
    }
    server.remove("nothing", 2);
    server
}

#[test]
fn captured_calls_of_nfs_are_operations_and_a_copy_is_one() {
    if !needs(&["tshark"]) {
        return;
    }
    let server = work_of_version_3();
    for (name, bytes) in [("a.pcap", server.capture.pcap()), ("a.pcapng", server.capture.pcapng())] {
        let trace = read(name, &bytes, &[]);
        assert_eq!(trace["recorder"], "pcap");
        assert_eq!(
            (kind(&trace, "read"), kind(&trace, "write")),
            ((10 + 5, 10_000_000 + 1500), (10, 10_000_000)),
            "{name}"
        );
        assert_eq!((kind(&trace, "lookup").0, kind(&trace, "unlink").0), (6, 1));
        let wholes = |side: &str| {
            (trace[side]["whole"]["count"].as_u64().unwrap(), trace[side]["whole"]["max"].as_u64().unwrap())
        };
        assert_eq!((wholes("reads"), wholes("writes")), ((6, 10_000_000), (1, 10_000_000)));
        assert_eq!(trace["reads"]["requests"]["max"], 1 << 20);
        assert_eq!(trace["problems"], Value::Array(Vec::new()), "{name}");
        let failed: u64 = trace["kinds"].as_array().unwrap().iter().map(|row| row["failed"].as_u64().unwrap()).sum();
        assert_eq!(failed, 1);
    }
}

#[test]
fn a_compound_of_version_4_has_what_it_is_for() {
    if !needs(&["tshark"]) {
        return;
    }
    let mut capture = Capture::default();
    let head = |operations: u32| xdr().opaque(b"").words(&[0, operations]);
    let state = [1, 0x11, 0x22, 0x33];
    // PUTFH, READ, READ; the second finds the end of the file.
    let read = |offset: u64| xdr().word(25).words(&state).long(offset).word(4096);
    let call = [head(3), xdr().word(22).opaque(b"file-handle"), read(0), read(3000)];
    capture.call(
        1,
        4,
        1,
        call.into_iter().reduce(|all, part| crate::nfs_packets::Xdr([all.0, part.0].concat())).unwrap(),
    );
    let results =
        xdr().word(0).opaque(b"").word(3).words(&[22, 0, 25, 0, 1]).opaque(&[7; 3000]).words(&[25, 0, 1]).opaque(b"");
    capture.reply(1, results);
    // PUTFH, WRITE.
    let write = head(2).word(22).opaque(b"file-handle").word(38).words(&state).long(3000).word(2).opaque(&[9; 500]);
    capture.call(2, 4, 1, write);
    capture.reply(2, xdr().word(0).opaque(b"").word(2).words(&[22, 0, 38, 0, 500, 2, 1, 2]));
    // PUTROOTFH, LOOKUP of a name that does not exist.
    capture.call(3, 4, 1, head(2).words(&[24, 15]).opaque(b"nothing"));
    capture.reply(3, xdr().word(2).opaque(b"").word(2).words(&[24, 0, 15, 2]));
    let trace = self::read("four.pcap", &capture.pcap(), &[]);
    assert_eq!((kind(&trace, "read"), kind(&trace, "write"), kind(&trace, "lookup")), ((2, 3000), (1, 500), (1, 0)));
    assert_eq!((&trace["reads"]["empty_requests"], &trace["problems"]), (&1.into(), &Value::Array(Vec::new())));
}

#[test]
fn what_is_missing_of_a_capture_is_said_and_the_rest_stands() {
    if !needs(&["tshark"]) {
        return;
    }
    let mut server = work_of_version_3();
    let whole = server.capture.pcap();
    // Truncated in the middle of a packet.
    let cut = read("cut.pcap", &whole[..whole.len() / 2 + 7], &[]);
    let (reads, _) = kind(&cut, "read");
    assert!((5..=10).contains(&reads), "{reads}");
    assert_eq!(problem(&cut, "truncated"), 1, "{}", cut["problems"]);
    // A lost reply, and a clock that goes back.
    server.read("small1", 0, 512, 200);
    server.capture.lose_last();
    server.capture.wait(-3600.0);
    server.read("small2", 0, 512, 300);
    let lost = read("lost.pcap", &server.capture.pcap(), &[]);
    assert_eq!(
        (problem(&lost, "unfinished"), problem(&lost, "clock_backwards").min(1)),
        (1, 1),
        "{}",
        lost["problems"]
    );
    assert_eq!(kind(&lost, "read"), (17, 10_000_000 + 1500 + 512 + 300));
    // Only the headers of packets.
    let mut heads = work_of_version_3();
    heads.capture.snapshot_bytes = 200;
    let heads = read("heads.pcap", &heads.capture.pcap(), &[]);
    assert_eq!(kind(&heads, "lookup").0, 6);
    assert!(kind(&heads, "read").0 >= 10, "{}", heads["kinds"]);
    // No NFS, an empty file, no program.
    let said = refused(&Capture::default().pcap(), &[]);
    assert!(said.contains("no NFS calls"), "{said}");
    let said = refused(&[&whole[..24], &[0xff; 500]].concat(), &[]);
    assert!(said.contains("tshark:") || said.contains("no NFS calls"), "{said}");
    let sandbox = sandbox();
    let path = sandbox.path().join("a.pcap");
    fs::write(&path, &whole).unwrap();
    let said = finish(granulo().env("PATH", sandbox.path()).args(["trace", "read"]).arg(&path)).ended(2).said();
    assert!(said.contains("install the package tshark"), "{said}");
}

/// A real server and clients, in a separate network. `$1` is the sandbox, `$2` the work.
const SERVER: &str = r#"
set -eu
# All on one processor: what several send over the loopback device is captured in any order, and a segment out of order is one that was lost.
taskset -cp "$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')" $$ > /dev/null
cd "$1"
ip link set lo up
mkdir export state
mount -t tmpfs none /run
mkdir -p /run/rpcbind /run/ganesha /run/dbus
mount -t tmpfs none /srv
mkdir /srv/export
mount --bind export /srv/export
cat > ganesha.conf <<CONF
NFS_CORE_PARAM { Protocols = 3,4; NFS_Port = 2049; MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
NFSV4 { Graceless = true; RecoveryBackend = fs; Minor_Versions = 0,1,2; }
NFS_KRB5 { Active_krb5 = false; }
EXPORT_DEFAULTS { SecType = sys; Squash = No_Root_Squash; }
EXPORT { Export_Id = 1; Path = /srv/export; Pseudo = /srv/export; Access_Type = RW; PrivilegedPort = false; Transports = TCP; FSAL { Name = VFS; } }
CONF
rpcbind -f & binder=$!
ganesha.nfsd -F -f ganesha.conf -L ganesha.log -p ganesha.pid & server=$!
capture=
end() {
  # What was captured is complete when nothing comes any more: on a busy machine that takes its time.
  seen=
  [ -z "$capture" ] || { while [ "$(stat -c %s nfs.pcap)" != "$seen" ]; do seen=$(stat -c %s nfs.pcap); sleep 1.5; done; kill -INT $capture; wait $capture || true; }
  kill $server $binder 2> /dev/null || true
  wait || true
}
trap end EXIT
tries=0
until nfs-ls nfs://127.0.0.1/srv/export > /dev/null 2>&1; do
  tries=$((tries + 1)); [ $tries -lt 300 ] || { tail -n 5 ganesha.log >&2; exit 1; }
  sleep 0.1
done
tcpdump -i lo -s 0 -U --immediate-mode -B 131072 -Z root -w nfs.pcap 'tcp port 2049 or tcp port 20048' > tcpdump.log 2>&1 & capture=$!
until grep -q 'listening on' tcpdump.log; do sleep 0.1; done
eval "$2"
"#;

const WORK: &str = r#"
head -c 10485760 /dev/urandom > ten
head -c 5000 ten > five
nfs-cp ten nfs://127.0.0.1/srv/export/ten
nfs-cp nfs://127.0.0.1/srv/export/ten back
cmp ten back
nfs-cp five nfs://127.0.0.1/srv/export/five
nfs-cat 'nfs://127.0.0.1/srv/export/ten?version=4' > back4
cmp ten back4
nfs-ls 'nfs://127.0.0.1/srv/export?version=4' > listed
grep -q five listed
"#;

#[test]
fn a_real_server_and_its_clients_are_seen() {
    let programs = ["tshark", "tcpdump", "ganesha.nfsd", "rpcbind", "nfs-cp", "nfs-cat", "nfs-ls", "ip", "unshare"];
    if !is_root() {
        return skip("it runs a file server in a network of its own, which needs root");
    }
    if !needs(&programs) {
        return;
    }
    let sandbox = sandbox();
    let mut server = without_wishes(std::process::Command::new("unshare"));
    server
        .args(["--net", "--mount", "--propagation", "private", "sh", "-c", SERVER, "sh"])
        .arg(sandbox.path())
        .arg(WORK);
    finish(&mut server).ended(0);
    let ran = run(args!["trace", "read", "--json", sandbox.path().join("nfs.pcap")]).ended(0);
    let trace = ran.json();
    let ten = 10_485_760;
    // One copy by version 3 and one by version 4, and both are one read.
    assert_eq!((kind(&trace, "read").1, kind(&trace, "write").1), (2 * ten, ten + 5000), "{}", trace["kinds"]);
    assert_eq!((&trace["reads"]["whole"]["count"], &trace["reads"]["whole"]["min"]), (&2.into(), &ten.into()));
    assert_eq!((&trace["writes"]["whole"]["count"], &trace["writes"]["whole"]["max"]), (&2.into(), &ten.into()));
    assert!(kind(&trace, "read").0 > 10 && kind(&trace, "write").0 > 10, "{}", trace["kinds"]);
    assert!(kind(&trace, "create").0 == 2 && kind(&trace, "read_directory").0 >= 1, "{}", trace["kinds"]);
    assert_eq!(trace["problems"], Value::Array(Vec::new()));
}

#[test]
fn what_is_done_on_a_mount_is_seen_as_whole_files() {
    if !is_root() {
        return skip("fanotify needs root");
    }
    let script = r#"
        mount -t tmpfs tmpfs "$1"
        mkdir "$1/in" "$1/out"
        head -c 70000 /dev/zero > "$1/in/old"
        head -c 10 /dev/zero > "$1/out/of-sight"
        printf 12345 > "$1/in/log"
        "$GRANULO" trace record --json --mount "$1/in" -o "$2" > "$3" -- sh -c '
            sleep 0.3; cat "$1/in/old" > "$1/in/new"; sleep 0.3; cat "$1/out/of-sight" > /dev/null; printf 678 >> "$1/in/log"; echo heard; exit 3' sh "$1" || echo "ended $?"
        "$GRANULO" trace read --json "$2"
    "#;
    let sandbox = sandbox();
    let (mount, kept) = (sandbox.path().join("mount"), sandbox.path().join("kept.gtrace"));
    let recorded = sandbox.path().join("recorded.json");
    fs::create_dir(&mount).unwrap();
    let Some(ran) = in_mount_namespace(script, &args![&mount, &kept, &recorded]) else { return };
    let ran: Ran = ran.ended(0);
    let text = ran.text();
    let (ended, json) = text.split_once('\n').unwrap();
    assert_eq!(ended, "ended 3", "the status of the command; {}", ran.said());
    let trace: Value = serde_json::from_str(json).unwrap();
    assert_eq!((&trace["recorder"], &trace["detail"]), (&"fanotify".into(), &"whole_files".into()));
    assert_eq!((kind(&trace, "open").0, kind(&trace, "close").0), (3, 3), "{trace}");
    assert_eq!((kind(&trace, "read"), kind(&trace, "write").0), ((1, 70_000), 2));
    // The growth of both since the recorder first looked at them, or all of it: on a busy machine it looks late.
    let written = kind(&trace, "write").1;
    assert!((3..=70_008).contains(&written), "{written}");
    assert!(trace["command"].as_str().unwrap().starts_with("sh -c"), "{}", trace["command"]);
    assert_eq!(trace["reads"]["requests"], Value::Null);
    // The recording itself printed the same, named by its command, and nothing else.
    let printed: Value = serde_json::from_str(&fs::read_to_string(&recorded).unwrap()).unwrap();
    assert_eq!((&printed["schema"], &printed["kinds"]), (&"granulo/trace/1".into(), &trace["kinds"]));
    assert_eq!(printed["name"], trace["command"]);
    assert!(ran.said().contains("heard"), "{}", ran.said());
}

#[test]
fn recording_a_mount_says_what_it_needs() {
    let sandbox = sandbox();
    let missing = run(args!["trace", "record", "--mount", sandbox.path().join("none")]).ended(2).said();
    assert!(missing.contains("cannot record on") && missing.contains("No such file"), "{missing}");
    let usage = run(args!["trace", "record"]).ended(2).said();
    assert!(usage.contains("COMMAND"), "{usage}");
    let Some(mut command) = crate::harness::granulo_as_nobody(&sandbox) else { return };
    let said = finish(command.args(["trace", "record", "--mount", "/"])).ended(2).said();
    assert!(said.contains("root"), "{said}");
}
