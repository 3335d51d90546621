//! Errors of granulo as exceptions of the package (`granulo.errors`), which are also the usual ones of Python.
//!
//! The classes are Python classes, as only those may have two built-in exceptions as bases: what is missing is a
//! `KeyError` and a `FileNotFoundError`. Each has the `errno` that fits, a message in prose, which names the path where
//! one is known, and the key in `filename`, where it is about the key of the caller.

use granulo_core::error::{Error, ErrorKind};
use granulo_store::{Key, Kind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// Class and errno of a kind; the numbers are those of Linux.
fn class_of(kind: ErrorKind) -> (&'static str, i32) {
    match kind {
        ErrorKind::Usage => ("UsageError", 22),
        ErrorKind::NotFound => ("NotFoundError", 2),
        ErrorKind::PermissionDenied => ("AccessError", 13),
        ErrorKind::NotRecognised => ("NotRecognisedError", 22),
        ErrorKind::Corrupt => ("CorruptError", 5),
        ErrorKind::NewerVersion => ("NewerVersionError", 95),
        ErrorKind::NoSpace => ("NoSpaceError", 28),
        ErrorKind::Busy => ("BusyError", 16),
        ErrorKind::ReadOnly => ("ReadOnlyError", 30),
        ErrorKind::Exists => ("ExistsError", 17),
        ErrorKind::Lost => ("LostError", 5),
        ErrorKind::Interrupted => ("InterruptedWorkError", 4),
        _ => ("StoreError", 5),
    }
}

fn module(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(MODULE.get_or_try_init(py, || py.import("granulo.errors").map(Bound::unbind))?.bind(py))
}

/// An exception of the package, with errno, message and perhaps a path.
pub(crate) fn raise(class: &str, errno: i32, message: &str, path: Option<Bound<'_, PyAny>>, py: Python<'_>) -> PyErr {
    let made = module(py).and_then(|module| {
        let class = module.getattr(class)?.cast_into::<PyType>()?;
        match path {
            Some(path) => class.call1((errno, message, path)),
            None => class.call1((errno, message)),
        }
    });
    match made {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// The exception of an error.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let (class, usual) = class_of(error.kind());
    let errno = error.os_error().and_then(std::io::Error::raw_os_error).unwrap_or(usual);
    raise(class, errno, &error.to_string(), None, py)
}

/// A missing key, as the key that the caller used.
pub(crate) fn missing(py: Python<'_>, key: &Bound<'_, PyAny>) -> PyErr {
    raise("NotFoundError", 2, "no such key", Some(key.clone()), py)
}

/// A key without content to be read: of an object of a kind that has none, or of none at all.
pub(crate) fn unreadable(py: Python<'_>, key: &Bound<'_, PyAny>, wanted: &Key, found: Option<Kind>) -> PyErr {
    let (class, errno, message) = match found {
        // The root has a record only if it was given attributes.
        None if !wanted.is_root() => return missing(py, key),
        None | Some(Kind::Directory) => ("DirectoryError", 21, "it is a directory"),
        Some(_) => ("UsageError", 22, "it is a device, fifo or socket, which has no content"),
    };
    raise(class, errno, message, Some(key.clone()), py)
}

/// Results of granulo as results of Python.
pub(crate) trait OrRaise<T> {
    /// # Errors
    /// The exception of the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}

impl<T> OrRaise<T> for std::io::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| {
            let (class, usual) = class_of(ErrorKind::of(&error));
            raise(class, error.raw_os_error().unwrap_or(usual), &error.to_string(), None, py)
        })
    }
}
