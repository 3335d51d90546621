//! Kinds of files by their extension: few enough that a directory can be coloured by what holds most of its bytes.
//!
//! A kind says what a file is usually for, not what is in it: only names are read. docs/METHOD.md names the kinds; an
//! extension that is added changes the colours of new surveys and no other figure.

use super::places::Extension;

/// What files are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// Source code and text, with markup and settings.
    Code,
    /// Documents to read and print, mail.
    Documents,
    /// Pictures.
    Images,
    /// Sound and video.
    Media,
    /// Archives, packages, images of disks.
    Archives,
    /// Programs, libraries, what compilers write, fonts.
    Programs,
    /// Tables, databases, scientific data, models.
    Data,
    /// Everything else, and names without an extension.
    Other,
}

use Kind::{Archives, Code, Data, Documents, Images, Media, Other, Programs};

impl Kind {
    /// All of them, in the order of survey files.
    pub const ALL: [Kind; 8] = [Code, Documents, Images, Media, Archives, Programs, Data, Other];

    /// Its name in survey files.
    pub fn name(self) -> &'static str {
        match self {
            Code => "code and text",
            Documents => "documents",
            Images => "images",
            Media => "sound and video",
            Archives => "archives",
            Programs => "programs",
            Data => "data",
            Other => "other",
        }
    }

    /// The kind of files with an extension.
    #[inline]
    pub fn of(extension: Extension) -> Kind {
        if extension == Extension::NUMERIC {
            // The versions of a library: `libc.so.6`.
            return Programs;
        }
        let bits = extension.bits();
        let mut slot = first_slot(bits);
        loop {
            // At most half of the slots are taken, so there is always an end.
            match SLOTS[slot] {
                0 => return Other,
                row if BITS[usize::from(row) - 1] == bits => return KINDS[usize::from(row) - 1].1,
                _ => slot = (slot + 1) % SLOT_COUNT,
            }
        }
    }
}

/// Where the search for an extension begins: Fibonacci hashing.
const fn first_slot(bits: u128) -> usize {
    let folded = (bits as u64) ^ (bits >> 64) as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOT_COUNT.ilog2())) as usize
}

/// The extensions of [`KINDS`] as numbers: every file of a survey is looked up here.
static BITS: [u128; KINDS.len()] = {
    let mut all = [0; KINDS.len()];
    let mut row = 0;
    while row < KINDS.len() {
        all[row] = Extension::of_short(KINDS[row].0.as_bytes()).bits();
        row += 1;
    }
    all
};

/// A power of two, more than twice the rows of [`KINDS`].
const SLOT_COUNT: usize = 1024;

/// A hash table with open addresses of the rows of [`KINDS`], from 1; 0 marks a free slot.
static SLOTS: [u8; SLOT_COUNT] = {
    assert!(KINDS.len() < u8::MAX as usize);
    let mut slots = [0; SLOT_COUNT];
    let mut row = 0;
    while row < KINDS.len() {
        let mut slot = first_slot(BITS[row]);
        while slots[slot] != 0 {
            slot = (slot + 1) % SLOT_COUNT;
        }
        row += 1;
        slots[slot] = row as u8;
    }
    slots
};

/// Extensions in the order of their bytes.
#[rustfmt::skip]
const KINDS: [(&str, Kind); 252] = [
    ("7z", Archives), ("a", Programs), ("aac", Media), ("aiff", Media), ("apk", Archives), ("arrow", Data),
    ("arw", Images), ("asm", Code), ("avi", Media), ("avif", Images), ("avro", Data), ("awk", Code), ("bak", Data),
    ("bam", Data), ("bash", Code), ("bed", Data), ("bib", Code), ("bin", Programs), ("bmp", Images),
    ("bz2", Archives), ("c", Code), ("cab", Archives), ("cc", Code), ("cfg", Code), ("class", Programs),
    ("clj", Code), ("cmake", Code), ("conf", Code), ("cpp", Code), ("cr2", Images), ("cram", Data),
    ("crate", Archives), ("cs", Code), ("css", Code), ("csv", Data), ("cxx", Code), ("d", Programs), ("dat", Data),
    ("db", Data), ("dcm", Images), ("deb", Archives), ("diff", Code), ("djvu", Documents), ("dll", Programs),
    ("dmg", Archives), ("dng", Images), ("doc", Documents), ("docx", Documents), ("dump", Data), ("dylib", Programs),
    ("efi", Programs), ("el", Code), ("elc", Programs), ("elf", Programs), ("eml", Documents), ("eps", Documents),
    ("epub", Documents), ("erl", Code), ("ex", Code), ("exe", Programs), ("exr", Images), ("exs", Code), ("f", Code),
    ("f90", Code), ("f95", Code), ("fa", Data), ("fasta", Data), ("fastq", Data), ("feather", Data), ("fit", Data),
    ("fits", Data), ("flac", Media), ("flv", Media), ("fq", Data), ("fw", Programs), ("gguf", Data), ("gif", Images),
    ("go", Code), ("gpkg", Data), ("grb", Data), ("grib", Data), ("gz", Archives), ("h", Code), ("h5", Data),
    ("hdf5", Data), ("heic", Images), ("heif", Images), ("hh", Code), ("hpp", Code), ("hs", Code), ("htm", Code),
    ("html", Code), ("ico", Images), ("idx", Data), ("img", Archives), ("info", Documents), ("ini", Code),
    ("iso", Archives), ("jar", Archives), ("java", Code), ("jl", Code), ("jpeg", Images), ("jpg", Images),
    ("js", Code), ("json", Code), ("jsx", Code), ("ko", Programs), ("kt", Code), ("la", Programs), ("las", Data),
    ("laz", Data), ("ldb", Data), ("lib", Programs), ("lisp", Code), ("lo", Programs), ("log", Code), ("lua", Code),
    ("lz4", Archives), ("lzma", Archives), ("m", Code), ("m4", Code), ("m4a", Media), ("m4v", Media),
    ("man", Documents), ("mat", Data), ("mbox", Documents), ("md", Code), ("mdb", Data), ("mid", Media),
    ("mjs", Code), ("mk", Code), ("mkv", Media), ("ml", Code), ("mli", Code), ("mo", Programs), ("mobi", Documents),
    ("mov", Media), ("mp3", Media), ("mp4", Media), ("mpeg", Media), ("mpg", Media), ("msg", Documents),
    ("nc", Data), ("nef", Images), ("npy", Data), ("npz", Data), ("o", Programs), ("odp", Documents),
    ("ods", Documents), ("odt", Documents), ("oga", Media), ("ogg", Media), ("ogv", Media), ("onnx", Data),
    ("opus", Media), ("orc", Data), ("otf", Programs), ("pack", Archives), ("parquet", Data), ("patch", Code),
    ("pcap", Data), ("pcf", Programs), ("pdb", Programs), ("pdf", Documents), ("pgm", Images), ("php", Code),
    ("pickle", Data), ("pkl", Data), ("pl", Code), ("pm", Code), ("png", Images), ("po", Code), ("pod", Code),
    ("pot", Code), ("ppm", Images), ("ppt", Documents), ("pptx", Documents), ("ps", Documents), ("psd", Images),
    ("pt", Data), ("pth", Data), ("py", Code), ("pyc", Programs), ("pyo", Programs), ("qcow2", Archives),
    ("r", Code), ("rar", Archives), ("raw", Images), ("rb", Code), ("rlib", Programs), ("rmeta", Programs),
    ("root", Data), ("rpm", Archives), ("rs", Code), ("rst", Code), ("rtf", Documents), ("s", Code),
    ("safetensors", Data), ("sam", Data), ("scala", Code), ("scss", Code), ("sh", Code), ("shp", Data),
    ("so", Programs), ("sql", Code), ("sqlite", Data), ("sqlite3", Data), ("squashfs", Archives), ("sst", Data),
    ("svg", Images), ("svgz", Images), ("swift", Code), ("tar", Archives), ("tcl", Code), ("tex", Code),
    ("tfrecord", Data), ("tgz", Archives), ("tif", Images), ("tiff", Images), ("toml", Code), ("ts", Code),
    ("tsv", Data), ("tsx", Code), ("ttf", Programs), ("txt", Code), ("vcf", Data), ("vdi", Archives), ("vim", Code),
    ("vmdk", Archives), ("vue", Code), ("wal", Data), ("war", Archives), ("wasm", Programs), ("wav", Media),
    ("webm", Media), ("webp", Images), ("whl", Archives), ("wma", Media), ("wmv", Media), ("woff", Programs),
    ("woff2", Programs), ("xcf", Images), ("xls", Documents), ("xlsx", Documents), ("xml", Code), ("xsd", Code),
    ("xz", Archives), ("yaml", Code), ("yml", Code), ("zip", Archives), ("zsh", Code), ("zst", Archives),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extension_of_the_table_is_found() {
        assert!(KINDS.is_sorted_by(|(a, _), (b, _)| a < b));
        for (text, kind) in KINDS {
            assert_eq!(Kind::of(Extension::of(format!("name.{text}").as_bytes())), kind, "{text}");
        }
        for (name, kind) in [("a.RS", Code), ("README", Other), ("libc.so.6", Programs), ("x.unheard", Other)] {
            assert_eq!(Kind::of(Extension::of(name.as_bytes())), kind, "{name}");
        }
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
        }
    }
}
