//! Keys between Python and the store: paths as `str` or `bytes`.
//!
//! A key is bytes. As `str` it is decoded from UTF-8 with surrogateescape, as Python does with file names, so that
//! every byte survives the way there and back.

use granulo_store::Key;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::errors::OrRaise;

/// The bytes of a path that was given as `str`, `bytes` or `os.PathLike`.
pub(crate) fn bytes_of(given: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = given.cast::<PyString>() {
        return match text.to_str() {
            Ok(text) => Ok(text.as_bytes().to_vec()),
            // Surrogates that stand for bytes.
            Err(_) => text.call_method1("encode", ("utf-8", "surrogateescape"))?.extract(),
        };
    }
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if given.hasattr("__fspath__")? {
        return bytes_of(&given.call_method0("__fspath__")?);
    }
    Err(PyTypeError::new_err(format!("a key is str or bytes, not {}", given.get_type().name()?)))
}

/// The key that was given.
pub(crate) fn key_of(given: &Bound<'_, PyAny>) -> PyResult<Key> {
    // Most keys: their bytes are read where they are.
    if let Ok(text) = given.cast::<PyString>()
        && let Ok(text) = text.to_str()
    {
        return Key::parse(text).or_raise(given.py());
    }
    Key::parse(bytes_of(given)?).or_raise(given.py())
}

/// The path of a key, its components separated by slashes.
pub(crate) fn path_of(key: &Key) -> Vec<u8> {
    path_of_stored(key.stored())
}

/// As [`path_of`], of the stored form.
pub(crate) fn path_of_stored(stored: &[u8]) -> Vec<u8> {
    stored.iter().map(|&byte| if byte == 0 { b'/' } else { byte }).collect()
}

/// A path as `str`.
pub(crate) fn text_of<'py>(py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(path) {
        Ok(text) => Ok(PyString::new(py, text)),
        Err(_) => PyString::from_encoded_object(&PyBytes::new(py, path), Some(c"utf-8"), Some(c"surrogateescape")),
    }
}
