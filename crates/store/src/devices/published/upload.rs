//! Uploads: an object is named first and put later, by any thread, while its writer goes on.
//!
//! Until it is put it must not be published; the writer's owner sees to that.

use super::error::WriteError;
use super::manifest::ObjectName;
use super::settle::Bucket;
use super::stage::Staged;
use super::writer::Writer;
use crate::devices::objects::ObjectError;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::Class;
use crate::format::record::checksum;

const PUT: &str = "put";

impl Writer {
    /// Names an object for some bytes: it is staged once [`Bucket::upload`] has put it.
    ///
    /// # Errors
    /// [`WriteError`]; nothing is named then.
    pub(crate) fn name_for(&mut self, class: Class, bytes: &[u8]) -> std::result::Result<Staged, WriteError> {
        self.may_write()?;
        let like = ObjectName { number: self.next_number, epoch: self.manifest.epoch(), nonce: 0, class };
        let name = self.bucket.name(like)?;
        self.next_number += 1;
        self.staged.insert(name);
        Ok(Staged { name, length_bytes: bytes.len() as u64, checksum: checksum(bytes) })
    }
}

impl Bucket {
    /// Puts an object that was named for these bytes; again, if that failed.
    ///
    /// # Errors
    /// It cannot be put.
    pub(crate) fn upload(&self, staged: &Staged, bytes: &[u8]) -> Result<()> {
        let path = staged.name.path();
        let put = self.until_answered(|objects| objects.put_as(staged.name.class, &path, bytes));
        let put = match put {
            // It may have been sent twice on the way.
            Err(ObjectError::Refused) => self.until_answered(|_| self.has(&path, bytes)),
            put => put.map(|_| true),
        };
        match put {
            Ok(true) => Ok(()),
            Ok(false) => {
                let error = Error::new(ErrorKind::Exists, PUT, "there is another object of this name");
                Err(error.at(&self.place_of(&path)))
            }
            Err(error) => Err(self.failed(PUT, &path, error)),
        }
    }
}
