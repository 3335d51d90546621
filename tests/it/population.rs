//! A population of 50,000 files on real file systems, and what was predicted for it.
