//! Surveys a directory: how many files, of which sizes, and how much space they need. With a second argument, the
//! survey is written to that file, which `granulo show`, `granulo plan` and the example `plan` read.
//!
//! `cargo run --release --example survey -- DIR [SURVEY.json]`

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use granulo::progress::Progress;
use granulo::survey::file::{Detail, write};
use granulo::survey::measure::Measure;
use granulo::survey::run::{Request, take};
use granulo::units::{format_count, format_share, format_size, fraction};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (directory, output) = match arguments.as_slice() {
        [directory] => (directory, None),
        [directory, output] => (directory, Some(output)),
        _ => return Err("usage: survey DIR [SURVEY.json]".into()),
    };

    // Another thread could show snapshots of it meanwhile, or ask it to stop.
    let progress = Progress::default();
    let outcome = take(Request::new(vec![directory.clone()]), None, &progress)?;
    outcome.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));

    let survey = outcome.survey;
    let sizes = survey.distributions.of(Measure::FileSize);
    println!("{} files, {} unreadable", format_count(sizes.count()), survey.counts.errors);
    println!("{} in files, {} allocated", format_size(survey.size_bytes()), format_size(survey.allocated_bytes()));
    println!("size       files   bytes, up to this size");
    for power in (10..=30).step_by(5) {
        let up_to = sizes.up_to(1 << power);
        let files = format_share(fraction(up_to.count, sizes.count()));
        let bytes = format_share(fraction(up_to.sum, sizes.total()));
        println!("{:<8} {files:>7} {bytes:>7}", format_size(1 << power));
    }

    if let Some(output) = output {
        let mut file = BufWriter::new(File::create_new(output)?);
        write(&survey, Detail::Full, &mut file)?;
        file.flush()?;
    }
    Ok(())
}
