//! An entry point for fuzzers: requests and access control lists from anybody.

use super::acl::Acl;
use super::wire::request::{HEADER_BYTES, Operation, parse};

/// Takes bytes apart as a request, as they are and as the body of a request of some kind, and as an access control
/// list.
///
/// # Panics
/// If a part of a request is not in it, or a list is another one after it was written.
pub(crate) fn fuzz_requests(bytes: &[u8]) {
    examine(bytes);
    if let Some((&opcode, body)) = bytes.split_first() {
        let length = u32::try_from(HEADER_BYTES + body.len()).expect("fuzzers make short requests");
        let mut request = vec![0; HEADER_BYTES];
        request[..4].copy_from_slice(&length.to_ne_bytes());
        request[4..8].copy_from_slice(&u32::from(opcode).to_ne_bytes());
        request.extend_from_slice(body);
        examine(&request);
    }
    examine_list(bytes);
}

fn examine(request: &[u8]) {
    let Some((_, operation)) = parse(request) else { return };
    let names = match operation {
        Operation::Lookup { name }
        | Operation::MakeNode { name, .. }
        | Operation::MakeDirectory { name, .. }
        | Operation::Unlink { name }
        | Operation::RemoveDirectory { name }
        | Operation::Link { name, .. }
        | Operation::Create { name, .. }
        | Operation::GetXattr { name, .. }
        | Operation::RemoveXattr { name } => vec![name],
        Operation::Symlink { name, target } => vec![name, target],
        Operation::Rename { name, new_name, .. } => vec![name, new_name],
        Operation::SetXattr { name, value, .. } => {
            assert!(name.len() + value.len() < request.len());
            vec![name]
        }
        Operation::Write { bytes, .. } => {
            assert!(bytes.len() < request.len());
            Vec::new()
        }
        Operation::Forget(nodes) => {
            assert!(nodes.len() * 8 < request.len());
            Vec::new()
        }
        _ => Vec::new(),
    };
    assert!(names.iter().all(|name| !name.contains(&0)) && names.concat().len() < request.len());
}

fn examine_list(bytes: &[u8]) {
    let Some(mut list) = Acl::decode(bytes) else { return };
    assert_eq!(Acl::decode(&list.encode()).as_ref(), Some(&list));
    for mode in [0, 0o750, 0o7777] {
        let (inherited, left) = list.inherited(mode);
        assert!(left & !mode == 0 && Acl::decode(&inherited.encode()).as_ref() == Some(&inherited));
        list.set_mode(mode);
        assert_eq!(list.mode(), mode & 0o777);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_and_damaged_requests_are_taken_apart_within_their_bytes() {
        let seeds = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/fuse")).unwrap();
        let seeds: Vec<Vec<u8>> = seeds.map(|seed| std::fs::read(seed.unwrap().path()).unwrap()).collect();
        assert!(seeds.iter().any(|seed| Acl::decode(seed).is_some()) && seeds.iter().any(|seed| parse(seed).is_some()));
        for seed in seeds {
            fuzz_requests(&seed);
            (0..seed.len()).for_each(|end| fuzz_requests(&seed[..end]));
            for at in 0..seed.len() {
                let mut damaged = seed.clone();
                damaged[at] ^= 0x81;
                fuzz_requests(&damaged);
            }
        }
    }
}
