//! File handles, and the names that calls assign to them.

use std::collections::HashMap;

use crate::trace::{Kind, Names, Operation};

/// A file server, by number.
pub(super) type Server = u32;

/// The known files: by handle, and by directory and name.
#[derive(Debug, Default)]
pub(super) struct Handles {
    /// Names, by file number.
    pub names: Names,
    by_handle: HashMap<(Server, Box<[u8]>), u32>,
    by_name: HashMap<(u32, Box<[u8]>), u32>,
    roots: HashMap<Server, u32>,
    /// By file number: the size, once it is known, and whether the file has a handle.
    known: Vec<(Option<u64>, bool)>,
}

impl Handles {
    fn push(&mut self, name: &[u8], handle: bool) -> Option<u32> {
        let number = self.names.push(name)?;
        self.known.push((None, handle));
        Some(number)
    }

    /// The file of a handle; if its name is unknown, it is named after its hash.
    pub(super) fn file(&mut self, server: Server, handle: &[u8], hash: &[u8]) -> Option<u32> {
        if let Some(&file) = self.by_handle.get(&(server, Box::from(handle))) {
            return Some(file);
        }
        let name = [b"handle:", hash.strip_prefix(b"0x").unwrap_or(hash)].concat();
        let file = self.push(&name, true)?;
        self.by_handle.insert((server, Box::from(handle)), file);
        Some(file)
    }

    /// The root of a server's export.
    pub(super) fn root(&mut self, server: Server) -> Option<u32> {
        if let Some(&file) = self.roots.get(&server) {
            return Some(file);
        }
        let file = self.push(b"/", false)?;
        self.roots.insert(server, file);
        Some(file)
    }

    /// Records the handle of a mounted path.
    pub(super) fn mounted(&mut self, server: Server, path: &[u8], handle: &[u8]) {
        if !self.by_handle.contains_key(&(server, Box::from(handle)))
            && let Some(file) = self.push(path, true)
        {
            self.by_handle.insert((server, Box::from(handle)), file);
        }
    }

    /// The file of a name in a directory, whether or not it exists.
    pub(super) fn child(&mut self, directory: u32, name: &[u8]) -> Option<u32> {
        match name {
            b"." | b"" => return Some(directory),
            _ => {}
        }
        if let Some(&file) = self.by_name.get(&(directory, Box::from(name))) {
            return Some(file);
        }
        let path = self.path(directory, name);
        let file = self.push(&path, false)?;
        self.by_name.insert((directory, Box::from(name)), file);
        Some(file)
    }

    /// The file of a name in a directory whose handle is known.
    pub(super) fn named(&mut self, server: Server, directory: u32, name: &[u8], handle: &[u8]) -> Option<u32> {
        let key = (server, Box::from(handle));
        let file = match (self.by_handle.get(&key), self.by_name.get(&(directory, Box::from(name)))) {
            (Some(&file), _) => file,
            // It was seen by name before; another file of that name would have another handle.
            (None, Some(&file)) if !self.known[file as usize].1 => file,
            _ if matches!(name, b"." | b"..") => return None,
            _ => {
                let path = self.path(directory, name);
                self.push(&path, true)?
            }
        };
        self.known[file as usize].1 = true;
        self.by_handle.insert(key, file);
        self.by_name.insert((directory, Box::from(name)), file);
        Some(file)
    }

    /// A name was removed.
    pub(super) fn removed(&mut self, directory: u32, name: &[u8]) {
        self.by_name.remove(&(directory, Box::from(name)));
    }

    /// A file was renamed.
    pub(super) fn renamed(&mut self, from: (u32, &[u8]), to: (u32, &[u8])) {
        if let Some(file) = self.by_name.remove(&(from.0, Box::from(from.1))) {
            self.by_name.insert((to.0, Box::from(to.1)), file);
        }
    }

    /// Records the size of a file from a reply.
    pub(super) fn sized(&mut self, file: Option<u32>, size_bytes: Option<u64>) {
        if let (Some(file), Some(size)) = (file, size_bytes)
            && let Some(known) = self.known.get_mut(file as usize)
        {
            known.0 = Some(size);
        }
    }

    /// Records the size of a file after `operation`, which the server `told` or which follows from the operation, and
    /// adds it to the operation.
    pub(super) fn add_size(&mut self, operation: &mut Operation, told: Option<u64>) {
        let file = operation.file;
        self.sized(file, told.or((operation.kind == Kind::Truncate).then_some(operation.length_bytes)));
        if operation.kind == Kind::Write && told.is_none() {
            self.grown(file, operation.end_bytes().unwrap_or(0));
        }
        operation.file_size_bytes = self.size(file);
    }

    /// Records a write that ends at `end_bytes`.
    fn grown(&mut self, file: Option<u32>, end_bytes: u64) {
        if let Some((Some(size), _)) = file.and_then(|file| self.known.get_mut(file as usize)) {
            *size = end_bytes.max(*size);
        }
    }

    /// The last known size of a file.
    fn size(&self, file: Option<u32>) -> Option<u64> {
        self.known.get(file? as usize)?.0
    }

    fn path(&self, directory: u32, name: &[u8]) -> Vec<u8> {
        let above = self.names.get(directory).unwrap_or_default();
        let mut path = above.to_vec();
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_handle_and_by_name() {
        let mut handles = Handles::default();
        let root = handles.file(0, b"root", b"0x12ab").unwrap();
        let file = handles.named(0, root, b"f", b"one").unwrap();
        assert_eq!(handles.names.get(file), Some(&b"handle:12ab/f"[..]));
        assert_eq!((handles.file(0, b"one", b"0x1"), handles.child(root, b"f")), (Some(file), Some(file)));
        // Another server has other files; a new file of the same name is a different file.
        assert_ne!(handles.file(1, b"one", b"0x1"), Some(file));
        handles.removed(root, b"f");
        let second = handles.named(0, root, b"f", b"two").unwrap();
        assert_ne!(second, file);
        // Seen by name first, then with its handle.
        let third = handles.child(root, b"g").unwrap();
        assert_eq!(handles.named(0, root, b"g", b"three"), Some(third));
        handles.renamed((root, b"g"), (root, b"h"));
        assert_eq!(handles.child(root, b"h"), Some(third));
        assert_ne!(handles.child(root, b"g"), Some(third));
        handles.sized(Some(file), Some(10));
        handles.grown(Some(file), 7);
        handles.grown(Some(second), 7);
        assert_eq!((handles.size(Some(file)), handles.size(Some(second)), handles.size(None)), (Some(10), None, None));
    }
}
