//! Compares the space that layouts need for a population: a survey file, an fsstats CSV, or a published table such as
//! `vu-2005`.
//!
//! `cargo run --release --example plan -- SOURCE MODEL...`, such as `plan vu-2005 ext4 zfs:vdev=raidz2,disks=10`

use std::error::Error;
use std::path::Path;

use granulo::layout::Model;
use granulo::plan::{About, Request, plan};
use granulo::survey::source;
use granulo::units::{format_share, format_size};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, models @ ..] = arguments.as_slice() else { return Err("usage: plan SOURCE MODEL...".into()) };

    let source = source::open(Path::new(path))?;
    source.warnings.iter().for_each(|warning| eprintln!("note: {warning}"));
    let models = models.iter().map(|model| Model::parse(model)).collect::<Result<Vec<Model>, _>>()?;
    let plan = plan(&source.survey.population(), About::default(), &Request::new(models))?;

    println!("{} in {} files", format_size(plan.source.size_bytes), plan.source.files);
    for space in &plan.models {
        let (total, overhead) = (format_size(space.total_bytes), format_share(space.overhead_fraction));
        println!("{:<40} {total:>10}, {overhead:>7} of the space for files is overhead", space.model);
    }
    if let Some(recommended) = plan.recommendation {
        println!("recommended block size: {}", format_size(recommended.block_bytes.into()));
    }
    Ok(())
}
