//! Names of snapshots and pins as they are given to a command: themselves, or escaped, as they are shown.

use crate::units::escape;

/// The position of the name that is given, among all names. One that looks like it is another name; it is meant only if
/// no name is equal.
pub(super) fn position_of<'n>(given: &[u8], names: impl Iterator<Item = &'n [u8]> + Clone) -> Option<usize> {
    let is_shown_so = |name: &[u8]| escape(name).as_bytes() == given;
    names.clone().position(|name| name == given).or_else(|| names.clone().position(is_shown_so))
}
