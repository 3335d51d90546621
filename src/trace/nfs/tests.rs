//! Calls of both versions, with and without replies, complete and truncated.

use proptest::prelude::*;

use super::*;
use crate::trace::Kind;

/// A packet with messages, as tshark prints it: fields as `name=value`.
fn packet(time: &str, from: &str, to: &str, messages: &[&str]) -> String {
    let mut text = format!(
        "<packet>\n  <proto name=\"geninfo\" pos=\"0\">\n    <field name=\"timestamp\" pos=\"0\" show=\"x\" value=\"{time}\" size=\"1\"/>\n  </proto>\n  \
        <proto name=\"ip\">\n    <field name=\"ip.src\" size=\"4\" show=\"{from}\" value=\"\"/>\n    <field name=\"ip.dst\" show=\"{to}\"/>\n  </proto>\n"
    );
    for message in messages {
        text.push_str("  <proto name=\"rpc\">\n");
        for field in message.split_whitespace() {
            let (name, value) = field.split_once('=').unwrap();
            text.push_str(&format!(
                "    <field name=\"{name}\" showname=\"{name}: {value}\" size=\"4\" pos=\"1\" show=\"{value}\"/>\n"
            ));
        }
        text.push_str("  </proto>\n");
    }
    text + "</packet>\n"
}

fn call(time: &str, message: &str) -> String {
    packet(time, "10.0.0.7", "10.0.0.1", &[&format!("rpc.msgtyp=0 rpc.program=100003 {message}")])
}

fn reply(time: &str, message: &str) -> String {
    packet(time, "10.0.0.1", "10.0.0.7", &[&format!("rpc.msgtyp=1 rpc.replystat=0 rpc.state_accept=0 {message}")])
}

fn read(text: impl Into<Vec<u8>>) -> (Vec<Operation>, Reader) {
    let mut reader = Reader::of_pdml(Input::of_bytes(text.into()).unwrap());
    let mut operations = Vec::new();
    while let Some(operation) = reader.next().unwrap() {
        operations.push(operation);
    }
    assert!(reader.next().unwrap().is_none());
    (operations, reader)
}

/// Kind, name, offset, length and size of an operation.
type Row = (Kind, String, Option<u64>, u64, Option<u64>);

/// Reads a text into operations.
fn told(text: &str) -> (Vec<Row>, Reader) {
    let (operations, reader) = read(format!("{text}</pdml>\n"));
    let row = |o: &Operation| {
        let name = o.file.and_then(|file| reader.files().get(file)).unwrap_or(b"?");
        (o.kind, String::from_utf8_lossy(name).into_owned(), o.offset_bytes, o.length_bytes, o.file_size_bytes)
    };
    (operations.iter().map(row).collect(), reader)
}

fn version_3() -> String {
    [
        packet("99.0", "10.0.0.7", "10.0.0.1", &["rpc.msgtyp=0 rpc.xid=0x1 rpc.program=100005 rpc.programversion=3 rpc.procedure=1 mount.path=/srv"]),
        reply("99.1", "rpc.xid=0x1 nfs.fh.hash=0xaa nfs.fhandle=aa:aa"),
        call("100.0", "rpc.xid=0x2 rpc.programversion=3 rpc.procedure=3 nfs.fh.hash=0xaa nfs.fhandle=aa:aa nfs.name=a&amp;b"),
        reply("100.1", "rpc.xid=0x2 nfs.status3=0 nfs.fh.hash=0xbb nfs.fhandle=bb:bb nfs.fattr3.size=100 nfs.fattr3.size=4096"),
        // Two calls in one packet, with replies in the other order.
        packet("101.0", "10.0.0.7", "10.0.0.1", &[
            "rpc.xid=0x3 rpc.msgtyp=0 rpc.program=100003 rpc.programversion=3 rpc.procedure=6 nfs.fh.hash=0xbb nfs.fhandle=bb:bb nfs.offset3=0 nfs.count3=65536",
            "rpc.xid=0x4 rpc.msgtyp=0 rpc.program=100003 rpc.programversion=3 rpc.procedure=7 nfs.fh.hash=0xbb nfs.fhandle=bb:bb nfs.offset3=100 nfs.count3=50",
        ]),
        reply("101.2", "rpc.xid=0x4 nfs.status3=0 nfs.wcc_attr.size=100 nfs.fattr3.size=150 nfs.count3=50"),
        reply("101.5", "rpc.xid=0x3 nfs.status3=0 nfs.fattr3.size=150 nfs.count3=150"),
        call("102.0", "rpc.xid=0x5 rpc.programversion=3 rpc.procedure=12 nfs.fh.hash=0xaa nfs.fhandle=aa:aa nfs.name=nothing"),
        reply("102.1", "rpc.xid=0x5 nfs.status3=2"),
        call("103.0", "rpc.xid=0x6 rpc.programversion=3 rpc.procedure=2 nfs.fh.hash=0xbb nfs.fhandle=bb:bb nfs.set_size=10"),
        reply("103.1", "rpc.xid=0x6 nfs.status3=0"),
    ]
    .concat()
}

#[test]
fn a_whole_output_without_calls_is_refused() {
    let text = packet("99.0", "10.0.0.7", "10.0.0.1", &["rpc.msgtyp=0 rpc.xid=0x1 rpc.program=100000"]) + "</pdml>\n";
    let refused = Reader::of_pdml(Input::of_bytes(text.into_bytes()).unwrap()).next().unwrap_err();
    assert!(refused.to_string().contains("it has no NFS calls"), "{refused}");
}

#[test]
fn calls_of_version_3_are_operations() {
    let (list, reader) = told(&version_3());
    let name = || "/srv/a&b".to_owned();
    assert_eq!(
        list,
        [
            (Kind::Lookup, name(), None, 0, None),
            (Kind::Write, name(), Some(100), 50, Some(150)),
            (Kind::Read, name(), Some(0), 150, Some(150)),
            (Kind::Unlink, "/srv/nothing".to_owned(), None, 0, None),
            (Kind::Truncate, name(), None, 10, Some(10)),
        ]
    );
    assert!(reader.problems().is_empty(), "{:?}", reader.problems());
    let (operations, _) = read(version_3() + "</pdml>\n");
    assert_eq!((operations[2].time_ns, operations[2].duration_ns), (101_000_000_000, Some(500_000_000)));
    assert_eq!(operations.iter().map(|o| o.failed).collect::<Vec<_>>(), [false, false, false, true, false]);
    assert_eq!(reader.processes().get(operations[0].process), Some(&b"10.0.0.7"[..]));
}

#[test]
fn calls_of_other_programs_are_left_out_with_their_replies() {
    // A lock of a client, and a callback of the server, on ports that also have NFS.
    let lock = "rpc.xid=0x7 rpc.program=100021 rpc.programversion=4 rpc.procedure=2";
    let callback = "rpc.xid=0x8 rpc.program=1073741824 rpc.programversion=1 rpc.procedure=1";
    let answered = |from: &str, to: &str, message: &str| {
        let reply = format!("rpc.msgtyp=1 rpc.replystat=0 rpc.state_accept=0 {message}");
        packet("104.0", from, to, &[&format!("rpc.msgtyp=0 {message}")]) + &packet("104.1", to, from, &[&reply])
    };
    let others = answered("10.0.0.7", "10.0.0.1", lock) + &answered("10.0.0.1", "10.0.0.9", callback);
    let (list, reader) = told(&(version_3() + &others));
    assert_eq!(list, told(&version_3()).0);
    assert!(reader.problems().is_empty(), "{:?}", reader.problems());
    assert_eq!(reader.processes().len(), 1);
    // A call of version 2 counts once.
    let version_2 =
        answered("10.0.0.7", "10.0.0.1", "rpc.xid=0x9 rpc.program=100003 rpc.programversion=2 rpc.procedure=6");
    let (_, reader) = told(&(version_3() + &version_2));
    let of = |trouble| reader.problems().of(trouble);
    assert_eq!((of(Trouble::UnknownCall), of(Trouble::Unmatched)), (1, 0), "{:?}", reader.problems());
}

#[test]
fn calls_of_version_4_have_several_operations() {
    let text = [
        call(
            "1.0",
            "rpc.xid=0x1 rpc.programversion=4 rpc.procedure=1 nfs.opcode=24 nfs.opcode=15 nfs.pathname.component=d nfs.opcode=18 \
            nfs.open.opentype=1 nfs.pathname.component=f nfs.opcode=10 nfs.opcode=3 nfs.opcode=9",
        ),
        reply(
            "1.1",
            "rpc.xid=0x1 nfs.nfsstat4=0 nfs.opcode=24 nfs.nfsstat4=0 nfs.opcode=15 nfs.nfsstat4=0 nfs.opcode=18 nfs.nfsstat4=0 \
            nfs.opcode=10 nfs.nfsstat4=0 nfs.fh.hash=0xf nfs.fhandle=0f:0f nfs.opcode=3 nfs.nfsstat4=0 nfs.opcode=9 nfs.nfsstat4=0 nfs.fattr4.size=0",
        ),
        call(
            "2.0",
            "rpc.xid=0x2 rpc.programversion=4 rpc.procedure=1 nfs.opcode=22 nfs.fh.hash=0xf nfs.fhandle=0f:0f nfs.opcode=38 \
            nfs.offset4=0 nfs.write.data_length=700 nfs.opcode=9",
        ),
        reply(
            "2.1",
            "rpc.xid=0x2 nfs.nfsstat4=0 nfs.opcode=22 nfs.nfsstat4=0 nfs.opcode=38 nfs.nfsstat4=0 nfs.count4=700 nfs.opcode=9 \
            nfs.nfsstat4=0 nfs.fattr4.size=700",
        ),
        call(
            "3.0",
            "rpc.xid=0x3 rpc.programversion=4 rpc.procedure=1 nfs.opcode=22 nfs.fh.hash=0xf nfs.fhandle=0f:0f nfs.opcode=25 \
            nfs.offset4=0 nfs.count4=4096 nfs.opcode=25 nfs.offset4=600 nfs.count4=4096 nfs.opcode=4",
        ),
        reply(
            "3.1",
            "rpc.xid=0x3 nfs.nfsstat4=70 nfs.opcode=22 nfs.nfsstat4=0 nfs.opcode=25 nfs.nfsstat4=0 nfs.read.data_length=700 nfs.opcode=25 nfs.nfsstat4=70",
        ),
        call("4.0", "rpc.xid=0x4 rpc.programversion=4 rpc.procedure=1 nfs.opcode=22 nfs.fh.hash=0xf nfs.fhandle=0f:0f nfs.opcode=9"),
        reply("4.1", "rpc.xid=0x4 nfs.nfsstat4=0 nfs.opcode=22 nfs.nfsstat4=0 nfs.opcode=9 nfs.nfsstat4=0 nfs.fattr4.size=701"),
        call(
            "5.0",
            "rpc.xid=0x5 rpc.programversion=4 rpc.procedure=1 nfs.opcode=24 nfs.opcode=32 nfs.opcode=24 nfs.opcode=29 \
            nfs.pathname.component=old nfs.pathname.component=new nfs.opcode=999",
        ),
        reply("5.1", "rpc.xid=0x5 nfs.nfsstat4=0 nfs.opcode=24 nfs.nfsstat4=0 nfs.opcode=32 nfs.nfsstat4=0 nfs.opcode=24 nfs.nfsstat4=0 nfs.opcode=29 nfs.nfsstat4=0"),
    ]
    .concat();
    let (list, reader) = told(&text);
    let file = || "/d/f".to_owned();
    assert_eq!(
        list,
        [
            (Kind::Lookup, "/d".to_owned(), None, 0, None),
            (Kind::Create, file(), None, 0, Some(0)),
            (Kind::Write, file(), Some(0), 700, Some(700)),
            (Kind::Read, file(), Some(0), 700, Some(700)),
            (Kind::Read, file(), None, 0, None),
            (Kind::Close, file(), None, 0, None),
            (Kind::Stat, file(), None, 0, Some(701)),
            (Kind::Rename, "/old".to_owned(), None, 0, None),
        ]
    );
    assert_eq!(reader.problems().of(Trouble::UnknownCall), 1);
    // The attributes behind a rename are those of the directory.
    let renamed = [
        &text[..],
        &call(
            "6.0",
            "rpc.xid=0x6 rpc.programversion=4 rpc.procedure=1 nfs.opcode=24 nfs.opcode=15 nfs.pathname.component=d nfs.opcode=32 \
            nfs.opcode=29 nfs.pathname.component=f nfs.pathname.component=g nfs.opcode=9",
        ),
        &reply(
            "6.1",
            "rpc.xid=0x6 nfs.nfsstat4=0 nfs.opcode=24 nfs.nfsstat4=0 nfs.opcode=15 nfs.nfsstat4=0 nfs.opcode=32 nfs.nfsstat4=0 \
            nfs.opcode=29 nfs.nfsstat4=0 nfs.opcode=9 nfs.nfsstat4=0 nfs.fattr4.size=4096",
        ),
    ];
    let (kind, _, _, _, size_bytes) = told(&renamed.concat()).0.pop().unwrap();
    assert_eq!((kind, size_bytes), (Kind::Rename, Some(701)));
}

#[test]
fn what_is_missing_is_counted_and_the_rest_stands() {
    let read_call = |xid: u32, time: &str| {
        call(
            time,
            &format!(
                "rpc.xid={xid:#x} rpc.programversion=3 rpc.procedure=6 nfs.fh.hash=0xb nfs.fhandle=0b:0b nfs.offset3=0 nfs.count3=512"
            ),
        )
    };
    let text = [
        reply("1.0", "rpc.xid=0x99 nfs.status3=0"),
        read_call(1, "2.0"),
        read_call(1, "2.5"),
        read_call(2, "9.0"),
        reply("9.5", "rpc.xid=0x1 nfs.status3=0 nfs.count3=100"),
        read_call(3, "3.0"),
        call("9.6", "rpc.xid=0x4 rpc.programversion=2 rpc.procedure=6"),
        call("9.7", "rpc.xid=0x5 rpc.programversion=3 rpc.procedure=77"),
        read_call(7, "no time"),
        packet(
            "9.8",
            "10.0.0.7",
            "10.0.0.1",
            &["rpc.msgtyp=0 rpc.xid=0x6 rpc.program=100000 rpc.programversion=2 rpc.procedure=3"],
        ),
    ]
    .concat();
    let (operations, reader) = read(text);
    let lengths: Vec<_> = operations.iter().map(|o| (o.length_bytes, o.duration_ns)).collect();
    assert_eq!(lengths, [(100, Some(7_500_000_000)), (512, None), (512, None)]);
    let of = |trouble| reader.problems().of(trouble);
    assert_eq!(
        (of(Trouble::Unmatched), of(Trouble::Unfinished), of(Trouble::UnknownCall)),
        (1, 3, 2),
        "{:?}",
        reader.problems()
    );
    assert_eq!((of(Trouble::ClockBackwards), of(Trouble::Truncated), of(Trouble::Incomplete)), (1, 1, 1));
}

#[test]
fn a_reply_that_never_comes_does_not_hold_a_call_for_ever() {
    let of = |xid: u32, time: u32| {
        call(
            &format!("{time}.0"),
            &format!("rpc.xid={xid:#x} rpc.programversion=3 rpc.procedure=1 nfs.fh.hash=0xb nfs.fhandle=0b:0b"),
        )
    };
    let text: String = (0..1000u32).map(|n| of(n, 1000 + n)).collect();
    let mut reader = Reader::of_pdml(Input::of_bytes(text).unwrap());
    let mut most = 0;
    while reader.next().unwrap().is_some() {
        most = most.max(reader.calls.pending.len());
    }
    assert!(most <= 302, "{most}");
    assert_eq!(reader.problems().of(Trouble::Unfinished), 1000);
}

#[test]
fn a_lost_reply_ends_no_call_that_gets_its_own() {
    let message = |xid: u32| format!("rpc.xid={xid:#x} rpc.programversion=3");
    let call_of = |xid: u32, time: u32| {
        let rest = "rpc.procedure=6 nfs.fh.hash=0xb nfs.fhandle=0b:0b nfs.offset3=0 nfs.count3=512";
        call(&format!("1000.{time:06}"), &format!("{} {rest}", message(xid)))
    };
    let reply_to = |xid: u32, time: u32| {
        reply(&format!("1000.{time:06}"), &format!("{} nfs.status3=0 nfs.count3=100", message(xid)))
    };
    let pairs = 2 * MOST_PENDING as u32;
    // Each reply comes after the next call.
    let mut text = call_of(1_000_000, 0) + &call_of(0, 1);
    for number in 1..=pairs {
        text += &call_of(number, 10 * number);
        text += &reply_to(number - 1, 10 * number + 1);
    }
    text += &reply_to(pairs, 10 * pairs + 10);
    let (operations, reader) = read(text + "</pdml>\n");
    let of = |trouble| reader.problems().of(trouble);
    assert_eq!((of(Trouble::Unfinished), of(Trouble::Unmatched)), (1, 0), "{:?}", reader.problems());
    assert_eq!(operations.iter().filter(|operation| operation.length_bytes == 100).count(), pairs as usize + 1);
}

proptest! {
    #[test]
    fn any_bytes_are_borne(at in 0usize..8000, bytes in proptest::collection::vec(any::<u8>(), 0..60), cut in 0usize..60) {
        let mut text = version_3().into_bytes();
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        text.splice(at..end, bytes);
        let (operations, reader) = read(text);
        for operation in operations {
            prop_assert!(operation.file.is_none_or(|file| (file as usize) < reader.files().len()));
            prop_assert!((operation.process as usize) < reader.processes().len());
        }
    }
}
