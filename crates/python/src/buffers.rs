//! Buffers and numbers between Rust and Python.
//!
//! A buffer that Python shall have is allocated as one of its own (`bytearray`) and filled without the interpreter:
//! that needs no unsafe code, and numpy, Arrow and torch take it as it is.

use granulo_core::error::Result;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::errors::OrRaise;

/// Numbers as bytes, for numpy and Arrow.
pub(crate) fn bytes_of_numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Row numbers that were given as bytes of little-endian `uint32`.
pub(crate) fn indices_of(given: &[u8]) -> Vec<u32> {
    given.as_chunks().0.iter().map(|&number| u32::from_le_bytes(number)).collect()
}

/// A buffer of Python's that `fill` fills without the interpreter.
pub(crate) fn fill_buffer<'py>(
    py: Python<'py>,
    length: u64,
    fill: impl FnOnce(&mut [u8]) -> Result<()> + Send,
) -> PyResult<Bound<'py, PyByteArray>> {
    PyByteArray::new_with(py, length as usize, |buffer| py.detach(|| fill(buffer)).or_raise(py))
}
