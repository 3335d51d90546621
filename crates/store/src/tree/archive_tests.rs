//! Archives built by hand and by the crate, intact and damaged.

use super::*;
use proptest::prelude::*;
use tar::{Builder, EntryType, Header as Block};

/// An archive that is read in short pieces, as from a pipe.
struct Pipe<'a>(&'a [u8]);

impl Read for Pipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(100);
        self.0.read(&mut buffer[..wanted])
    }
}

fn block(kind: EntryType, size_bytes: u64) -> Block {
    let mut block = Block::new_ustar();
    block.set_entry_type(kind);
    block.set_size(size_bytes);
    block.set_mode(0o644);
    block.set_uid(1000);
    block.set_gid(100);
    block.set_mtime(1_000_000_000);
    block
}

fn record(keyword: &str, value: &[u8]) -> Vec<u8> {
    let rest = keyword.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    [format!("{length} {keyword}=").as_bytes(), value, b"\n"].concat()
}

/// A member with an extended header before it.
fn paxed(builder: &mut Builder<Vec<u8>>, records: &[(&str, &[u8])], mut member: Block, name: &str, data: &[u8]) {
    let records: Vec<u8> = records.iter().flat_map(|(keyword, value)| record(keyword, value)).collect();
    let mut header = block(EntryType::XHeader, records.len() as u64);
    builder.append_data(&mut header, "PaxHeaders/x", &records[..]).unwrap();
    builder.append_data(&mut member, name, data).unwrap();
}

/// All members with their data.
fn members(bytes: &[u8]) -> std::result::Result<Vec<(Member, Vec<u8>)>, Broken> {
    let mut archive = Archive::new(Pipe(bytes));
    let mut members = Vec::new();
    while let Some(member) = archive.next()? {
        let mut data = Vec::new();
        archive.data().read_to_end(&mut data)?;
        members.push((member, data));
    }
    Ok(members)
}

#[test]
fn names_times_owners_and_attributes_come_from_extended_headers() {
    let mut builder = Builder::new(Vec::new());
    let long = "d/".repeat(300) + "new\nline";
    let records: [(&str, &[u8]); 7] = [
        ("path", long.as_bytes()),
        ("mtime", b"-1.5"),
        ("atime", b"7.000000001"),
        ("uid", b"4000000000"),
        ("SCHILY.xattr.user.b", b"\0\n=\xff"),
        ("SCHILY.xattr.user.a%3D", b""),
        ("comment", b"ignored"),
    ];
    paxed(&mut builder, &records, block(EntryType::Regular, 3), "short", b"abc");
    builder.append_data(&mut block(EntryType::Regular, 1), "plain", &b"z"[..]).unwrap();
    let members = members(&builder.into_inner().unwrap()).unwrap();
    let (member, data) = &members[0];
    assert_eq!((&member.name[..], &data[..]), (long.as_bytes(), &b"abc"[..]));
    let attributes = &member.attributes;
    assert_eq!((attributes.mtime.seconds, attributes.mtime.nanoseconds), (-2, 500_000_000));
    assert_eq!(attributes.atime.map(|time| (time.seconds, time.nanoseconds)), Some((7, 1)));
    assert_eq!((attributes.mode, attributes.uid, attributes.gid), (0o100_644, 4_000_000_000, 100));
    let expected = [(b"user.a=".to_vec(), Vec::new()), (b"user.b".to_vec(), b"\0\n=\xff".to_vec())];
    assert_eq!(attributes.xattrs, expected);
    // It does not apply to the next member.
    assert_eq!((&members[1].0.name[..], members[1].0.attributes.xattrs.len()), (&b"plain"[..], 0));
}

#[test]
fn global_headers_hold_until_they_are_taken_back() {
    let mut builder = Builder::new(Vec::new());
    let global = record("mtime", b"5.5");
    let mut header = block(EntryType::XGlobalHeader, global.len() as u64);
    builder.append_data(&mut header, "g", &global[..]).unwrap();
    builder.append_data(&mut block(EntryType::Regular, 0), "a", &b""[..]).unwrap();
    paxed(&mut builder, &[("mtime", b"6")], block(EntryType::Regular, 0), "b", b"");
    paxed(&mut builder, &[("mtime", b"")], block(EntryType::Regular, 0), "c", b"");
    let times: Vec<i64> = members(&builder.into_inner().unwrap())
        .unwrap()
        .iter()
        .map(|(member, _)| member.attributes.mtime.seconds)
        .collect();
    assert_eq!(times, [5, 6, 1_000_000_000]);
}

#[test]
fn sparse_files_of_every_pax_format_have_a_map_and_their_data() {
    let expected = Some(Holes { size_bytes: 10_000, data: vec![(1000, 3), (5000, 2)] });
    let mut builder = Builder::new(Vec::new());
    let oldest: [(&str, &[u8]); 7] = [
        ("GNU.sparse.size", b"10000"),
        ("GNU.sparse.numblocks", b"2"),
        ("GNU.sparse.offset", b"1000"),
        ("GNU.sparse.numbytes", b"3"),
        ("GNU.sparse.offset", b"5000"),
        ("GNU.sparse.numbytes", b"2"),
        ("comment", b""),
    ];
    paxed(&mut builder, &oldest, block(EntryType::Regular, 5), "a", b"abcde");
    let middle: [(&str, &[u8]); 3] =
        [("GNU.sparse.size", b"10000"), ("GNU.sparse.name", b"b"), ("GNU.sparse.map", b"1000,3,5000,2")];
    paxed(&mut builder, &middle, block(EntryType::Regular, 5), "GNUSparseFile.0/b", b"abcde");
    let newest: [(&str, &[u8]); 4] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"c"),
        ("GNU.sparse.realsize", b"10000"),
    ];
    let mut data = b"2\n1000\n3\n5000\n2\n".to_vec();
    data.resize(512, 0);
    data.extend_from_slice(b"abcde");
    paxed(&mut builder, &newest, block(EntryType::Regular, data.len() as u64), "GNUSparseFile.0/c", &data);
    let members = members(&builder.into_inner().unwrap()).unwrap();
    assert_eq!(members.len(), 3);
    for ((member, data), name) in members.iter().zip(["a", "b", "c"]) {
        assert_eq!(member.name, name.as_bytes());
        assert_eq!(member.attributes.holes, expected, "{name}");
        assert_eq!((member.data_bytes, &data[..]), (5, &b"abcde"[..]), "{name}");
    }
}

#[test]
fn a_map_that_contradicts_the_data_is_refused() {
    for map in ["0,10", "5,3,4,2", "9999,5", "1,2,3", "x"] {
        let mut builder = Builder::new(Vec::new());
        let records: [(&str, &[u8]); 2] = [("GNU.sparse.size", b"10000"), ("GNU.sparse.map", map.as_bytes())];
        paxed(&mut builder, &records, block(EntryType::Regular, 5), "a", b"abcde");
        assert!(matches!(members(&builder.into_inner().unwrap()), Err(Broken::Content { .. })), "{map}");
    }
}

#[test]
fn long_names_of_gnu_and_every_kind_of_member() {
    let mut builder = Builder::new(Vec::new());
    let long = "x".repeat(300);
    let mut file = Block::new_gnu();
    file.set_size(1);
    file.set_mode(0o104_755);
    builder.append_data(&mut file, &long, &b"1"[..]).unwrap();
    let mut link = block(EntryType::Symlink, 0);
    builder.append_link(&mut link, "link", "/somewhere").unwrap();
    let mut hard = block(EntryType::Link, 0);
    builder.append_link(&mut hard, "hard", &long).unwrap();
    builder.append_data(&mut block(EntryType::Directory, 0), "directory/", &b""[..]).unwrap();
    builder.append_data(&mut block(EntryType::Fifo, 0), "fifo", &b""[..]).unwrap();
    let mut device = block(EntryType::Char, 0);
    device.set_device_major(5).unwrap();
    device.set_device_minor(1).unwrap();
    builder.append_data(&mut device, "device", &b""[..]).unwrap();
    builder.append_data(&mut block(EntryType::new(b'Z'), 4), "unknown", &b"data"[..]).unwrap();
    builder.append_data(&mut block(EntryType::Regular, 2), "last", &b"ok"[..]).unwrap();
    let members = members(&builder.into_inner().unwrap()).unwrap();
    let kinds: Vec<(MemberKind, u16)> =
        members.iter().map(|(member, _)| (member.kind, member.attributes.mode)).collect();
    assert_eq!(kinds[0], (MemberKind::File, 0o104_755));
    assert_eq!(members[0].0.name, long.as_bytes());
    assert_eq!((kinds[1], &members[1].0.link[..]), ((MemberKind::Symlink, 0o120_644), &b"/somewhere"[..]));
    assert_eq!((kinds[2].0, &members[2].0.link[..]), (MemberKind::Link, long.as_bytes()));
    assert_eq!(kinds[3], (MemberKind::Directory, 0o040_644));
    assert_eq!(kinds[4], (MemberKind::Special(0, 0), 0o010_644));
    assert_eq!(kinds[5], (MemberKind::Special(5, 1), 0o020_644));
    assert!(matches!(kinds[6].0, MemberKind::Refused(_)));
    assert_eq!(members[7].1, b"ok");
}

#[test]
fn an_archive_that_is_truncated_anywhere_is_noticed() {
    let mut builder = Builder::new(Vec::new());
    let long = "p/".repeat(80) + "name";
    paxed(&mut builder, &[("path", long.as_bytes())], block(EntryType::Regular, 700), "x", &[7; 700]);
    builder.append_data(&mut block(EntryType::Regular, 10), "y", &[8; 10][..]).unwrap();
    let bytes = builder.into_inner().unwrap();
    let read = |bytes: &[u8]| {
        let mut archive = Archive::new(bytes);
        let mut count = 0;
        while archive.next()?.is_some() {
            io::copy(&mut archive.data(), &mut io::sink())?;
            count += 1;
        }
        Ok::<_, Broken>((count, archive.is_complete))
    };
    assert_eq!(read(&bytes).unwrap(), (2, true));
    for length in 0..bytes.len() - 1024 {
        match read(&bytes[..length]) {
            Err(_) => {}
            Ok((_, is_complete)) => assert!(!is_complete, "truncated at {length}"),
        }
    }
    assert!(matches!(read(b""), Err(Broken::Content { at: 0, .. })));
}

#[test]
fn headers_that_claim_more_than_memory_are_refused() {
    for kind in [EntryType::XHeader, EntryType::XGlobalHeader, EntryType::GNULongName, EntryType::GNULongLink] {
        let mut header = block(kind, 1 << 32);
        header.set_path("x").unwrap();
        header.set_cksum();
        let bytes = [&header.as_bytes()[..], &[b'a'; 4096]].concat();
        assert!(members(&bytes).is_err(), "{kind:?}");
    }
}

/// A header of extended records before the next member.
fn extended(builder: &mut Builder<Vec<u8>>, kind: EntryType, records: &[u8]) {
    builder.append_data(&mut block(kind, records.len() as u64), "PaxHeaders/x", records).unwrap();
}

#[test]
fn each_record_is_looked_at_once_however_many_members_follow() {
    let mut builder = Builder::new(Vec::new());
    let (headers, records_each, count) = (40, 500, 300);
    for header in 0..headers {
        let records: Vec<u8> =
            (0..records_each).flat_map(|number| record(&format!("k{header}-{number}"), b"")).collect();
        extended(&mut builder, EntryType::XGlobalHeader, &records);
    }
    for number in 0..count {
        builder.append_data(&mut block(EntryType::Regular, 0), format!("m{number}"), &b""[..]).unwrap();
    }
    let bytes = builder.into_inner().unwrap();
    let mut archive = Archive::new(&bytes[..]);
    let mut found = 0;
    while archive.next().unwrap().is_some() {
        found += 1;
    }
    assert_eq!(found, count);
    assert_eq!(archive.records, headers * records_each);
    // Memory for them does not grow with their number.
    fn is_plain<T: Copy>(_: &T) {}
    is_plain(&archive.global);
}

#[test]
fn attributes_of_a_global_header_are_counted_and_not_repeated() {
    let mut builder = Builder::new(Vec::new());
    let value = vec![b'v'; 60_000];
    extended(&mut builder, EntryType::XGlobalHeader, &record("SCHILY.xattr.user.a", &value));
    extended(&mut builder, EntryType::XGlobalHeader, &record("SCHILY.acl.access", b"user::rw-"));
    extended(&mut builder, EntryType::XGlobalHeader, &record("mtime", b"9"));
    for name in ["a", "b"] {
        builder.append_data(&mut block(EntryType::Regular, 0), name, &b""[..]).unwrap();
    }
    let members = members(&builder.into_inner().unwrap()).unwrap();
    let of = |at: usize| {
        let member: &Member = &members[at].0;
        (member.attributes.xattrs.len(), member.xattrs_unreadable, member.attributes.mtime.seconds)
    };
    assert_eq!((of(0), of(1)), ((0, 2, 9), (0, 0, 9)));
}

#[test]
fn access_control_lists_in_text_are_counted_unless_they_are_there_as_attributes() {
    let (access, default) = (("SCHILY.acl.access", &b"user::rw-"[..]), ("SCHILY.acl.default", &b"user::rwx"[..]));
    let (known, foreign) = (("SCHILY.xattr.user.a", &b"1"[..]), ("LIBARCHIVE.xattr.user.a", &b"MQ=="[..]));
    let (as_attribute, of_nfs) =
        (("SCHILY.xattr.system.posix_acl_access", &b"\x02"[..]), ("SCHILY.acl.ace", &b"x"[..]));
    let left_out = |records: &[(&str, &[u8])]| {
        let mut builder = Builder::new(Vec::new());
        paxed(&mut builder, records, block(EntryType::Regular, 0), "a", b"");
        let (member, _) = members(&builder.into_inner().unwrap()).unwrap().remove(0);
        (member.attributes.xattrs.len(), member.xattrs_unreadable)
    };
    // As bsdtar writes them: attributes twice, lists once.
    assert_eq!(left_out(&[known, foreign, access]), (1, 1));
    assert_eq!(left_out(&[known, foreign, access, default]), (1, 2));
    assert_eq!(left_out(&[known, foreign]), (1, 0));
    assert_eq!(left_out(&[access, default]), (0, 2));
    assert_eq!(left_out(&[access, access]), (0, 1));
    // As GNU tar does: a list in both forms.
    assert_eq!(left_out(&[as_attribute, access]), (1, 0));
    assert_eq!(left_out(&[as_attribute, access, default]), (1, 1));
    assert_eq!(left_out(&[of_nfs]), (0, 1));
}

#[test]
fn attributes_beyond_what_linux_has_are_left_out_and_the_others_stay() {
    let longest_name = format!("SCHILY.xattr.{}", "n".repeat(255));
    let too_long_name = format!("SCHILY.xattr.{}", "o".repeat(256));
    let (largest, too_large) = (vec![1; 65_536], vec![2; 65_537]);
    let records: [(&str, &[u8]); 5] = [
        (&longest_name, b"kept"),
        (&too_long_name, b"left out"),
        ("SCHILY.xattr.user.largest", &largest),
        ("SCHILY.xattr.user.larger", &too_large),
        ("SCHILY.xattr.", b"without a name"),
    ];
    let mut builder = Builder::new(Vec::new());
    paxed(&mut builder, &records, block(EntryType::Regular, 1), "a", b"x");
    let found = members(&builder.into_inner().unwrap()).unwrap();
    let (member, data) = &found[0];
    let names: Vec<usize> = member.attributes.xattrs.iter().map(|(name, value)| name.len() + value.len()).collect();
    assert_eq!((names, member.xattrs_unreadable, &data[..]), (vec![259, 12 + 65_536], 3, &b"x"[..]));

    // The most that are allowed: their names need 64 KiB.
    let records: Vec<u8> = (0..40_000).flat_map(|number| record(&format!("SCHILY.xattr.{number:07}"), b"")).collect();
    let mut builder = Builder::new(Vec::new());
    extended(&mut builder, EntryType::XHeader, &records);
    builder.append_data(&mut block(EntryType::Regular, 0), "a", &b""[..]).unwrap();
    let member = members(&builder.into_inner().unwrap()).unwrap().remove(0).0;
    assert_eq!((member.attributes.xattrs.len(), member.xattrs_unreadable), (8192, 40_000 - 8192));
}

#[test]
fn names_that_are_too_long_are_refused_and_the_next_member_follows() {
    let mut builder = Builder::new(Vec::new());
    let long = |kind: u8, length: usize, builder: &mut Builder<Vec<u8>>| {
        let name = vec![b'n'; length];
        builder.append_data(&mut block(EntryType::new(kind), length as u64), "././@LongLink", &name[..]).unwrap();
    };
    long(b'L', 65_535, &mut builder);
    builder.append_data(&mut block(EntryType::Regular, 0), "x", &b""[..]).unwrap();
    long(b'L', 3 << 20, &mut builder);
    builder.append_data(&mut block(EntryType::Regular, 0), "x", &b""[..]).unwrap();
    long(b'K', 65_536, &mut builder);
    builder.append_data(&mut block(EntryType::Link, 0), "x", &b""[..]).unwrap();
    long(b'K', 4095, &mut builder);
    builder.append_data(&mut block(EntryType::Symlink, 0), "x", &b""[..]).unwrap();
    long(b'K', 4096, &mut builder);
    builder.append_data(&mut block(EntryType::Symlink, 0), "x", &b""[..]).unwrap();
    paxed(&mut builder, &[("path", &vec![b'p'; 70_000])], block(EntryType::Regular, 0), "x", b"");
    builder.append_data(&mut block(EntryType::Regular, 1), "last", &b"z"[..]).unwrap();
    let members = members(&builder.into_inner().unwrap()).unwrap();
    let refused: Vec<bool> = members.iter().map(|(member, _)| matches!(member.kind, MemberKind::Refused(_))).collect();
    assert_eq!(refused, [false, true, true, false, true, true, false]);
    assert_eq!(members[0].0.name.len(), 65_535);
    // The beginning of its name identifies what was refused.
    assert!(members[1].0.name.starts_with(b"nnn") && members[1].0.name.len() < 200);
    assert_eq!(members[6].0.at % 512, 0);
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_its_member() {
    let mut builder = Builder::new(Vec::new());
    builder.append_data(&mut block(EntryType::Regular, 700), "before", &[1; 700][..]).unwrap();
    let map: [(&str, &[u8]); 2] = [("GNU.sparse.size", b"10"), ("GNU.sparse.map", b"0,99")];
    paxed(&mut builder, &map, block(EntryType::Regular, 5), "s", b"abcde");
    let bytes = builder.into_inner().unwrap();
    let Err(Broken::Content { at, member, why }) = members(&bytes) else { panic!("it is damaged") };
    assert_eq!((at, &member[..], why), (512 * 5, &b"s"[..], "a run of a sparse file is beyond its end"));
    let Err(Broken::Stream(error)) = members(&bytes[..600]) else { panic!("it is truncated") };
    assert_eq!(error.to_string(), "it is truncated at byte 600");
}

proptest! {
    #[test]
    fn damaged_archives_end_in_members_or_an_error(seed in any::<u64>(), flips in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..6)) {
        let mut builder = Builder::new(Vec::new());
        let map: [(&str, &[u8]); 4] =
            [("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.name", b"s"), ("GNU.sparse.realsize", b"99")];
        let mut data = b"1\n9\n3\n".to_vec();
        data.resize(512, 0);
        data.extend_from_slice(b"abc");
        paxed(&mut builder, &map, block(EntryType::Regular, 515), "s", &data);
        builder.append_data(&mut block(EntryType::Regular, 600), "f", &vec![seed as u8; 600][..]).unwrap();
        let mut bytes = builder.into_inner().unwrap();
        for (at, value) in flips {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
            // Checksums are corrected, so that the damage gets past them.
            let header = at / BLOCK_BYTES * BLOCK_BYTES;
            let sum: u32 = (header..header + BLOCK_BYTES)
                .map(|at| if (148..156).contains(&(at - header)) { 32 } else { u32::from(bytes[at]) })
                .sum();
            if bytes[header..].starts_with(b"PaxHeaders") || bytes[header] == b'f' || bytes[header] == b's' {
                bytes[header + 148..header + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        let _ = members(&bytes);
    }
}
