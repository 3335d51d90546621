//! Inputs of a plan besides its source: names of models, traces, price files; laws of sizes and contents of `generate`.
//! Every valid model answers for any size.
#![no_main]

use granulo::layout::{Model, Wanted};
use granulo::plan::cost::Prices;
use granulo::plan::operations::Operations;
use granulo::population::{Content, SizeLaw};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(operations) = Operations::parse(text, "fuzz") {
        operations.served();
    }
    let _ = Prices::parse(text);
    if let Ok(law) = SizeLaw::parse(text) {
        assert_eq!(SizeLaw::parse(&law.to_string()), Ok(law));
        assert!((law.min_bytes..=law.max_bytes).contains(&law.at(0.5)));
    }
    let _ = Content::parse(text);
    let mut parts = text.splitn(3, '\n');
    let (Some(name), sizes) = (parts.next(), parts) else { return };
    let Ok(model) = Model::parse(name) else { return };
    for size in sizes.filter_map(|size| size.trim().parse().ok()).chain([0, 65_537, u64::MAX]) {
        let space = model.layout.file(size);
        assert!(!model.layout.metadata_is_within() || space.metadata_bytes <= space.allocated_bytes);
        assert!(model.layout.data_bytes(size) <= space.allocated_bytes);
        if let Some(billing) = model.layout.billing() {
            assert!(billing.second_class_bytes(size) <= space.allocated_bytes);
            let read: u128 = billing.reading(size).iter().map(|part| u128::from(part.bytes)).sum();
            assert_eq!(read, u128::from(size));
        }
        if let Some(placement) = model.layout.place(size, 65_536) {
            assert!(placement.fast_least_bytes <= placement.fast_bytes);
        }
        model.layout.directory(size, size);
        model.layout.symlink(size);
        let wanted = Wanted {
            cutoff_bytes: size,
            fast_bytes: size.into(),
            metadata_bytes: u128::from(size) / 2,
            files: u128::from(size) / 3,
            fill_fraction: 0.75,
        };
        model.layout.settings(&wanted);
    }
});
