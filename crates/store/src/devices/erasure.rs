//! Parity of a stripe, and reconstruction (docs/FORMAT.md, section 7).
//!
//! A stripe has `data` data units and up to two parity units; each is treated as if as long as the longest, extended by
//! zeroes, and missing units as zeroes. Any `data` of them determine the others. Reed-Solomon over GF(2^16) as in the
//! crate `reed-solomon-simd`: Lin, Al-Naffouri, Han, Chung: "Novel Polynomial Basis With Fast Fourier Transform and Its
//! Application to Reed-Solomon Erasure Codes" (2016). One parity unit is the exclusive or of the data, and is computed
//! as such: the general decoder takes about half a millisecond per stripe, however short. With one data unit, parity is
//! a copy. Parity restores missing units but does not detect damage: checksums verify the units before, and the result
//! after.

use std::borrow::Cow;
use std::fmt;

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use crate::error::{Error, ErrorKind, Result};

/// Computes parity; its buffers are reused from stripe to stripe.
#[derive(Default)]
pub(crate) struct Encoder {
    encoder: Option<ReedSolomonEncoder>,
    parity: Vec<Vec<u8>>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoder({} units)", self.parity.len())
    }
}

impl Encoder {
    /// The parity units of a stripe with `data_count` data units, of which the first, `units`, have bytes; none is
    /// longer than `unit_bytes`, which is even. The result is valid until the next call.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a stripe that the code does not support.
    pub(crate) fn parity(
        &mut self,
        data_count: usize,
        parity_count: usize,
        unit_bytes: usize,
        units: &[&[u8]],
    ) -> Result<&[Vec<u8>]> {
        debug_assert!(units.len() <= data_count, "{} units of {data_count}", units.len());
        debug_assert!(units.iter().all(|unit| unit.len() <= unit_bytes), "a unit is longer than {unit_bytes}");
        self.parity.resize_with(parity_count, Vec::new);
        if parity_count == 0 {
            return Ok(&self.parity);
        }
        if let [only] = self.parity.as_mut_slice() {
            only.clear();
            only.resize(unit_bytes, 0);
            units.iter().for_each(|unit| exclusive_or(only, unit));
            return Ok(&self.parity);
        }
        let impossible = |error: reed_solomon_simd::Error| {
            Error::new(ErrorKind::Usage, "compute the parity of a stripe", error.to_string())
        };
        let encoder = match &mut self.encoder {
            Some(encoder) => {
                encoder.reset(data_count, parity_count, unit_bytes).map_err(impossible)?;
                encoder
            }
            none => none.insert(ReedSolomonEncoder::new(data_count, parity_count, unit_bytes).map_err(impossible)?),
        };
        let zeroes = if units.len() < data_count { vec![0; unit_bytes] } else { Vec::new() };
        for position in 0..data_count {
            let unit = units.get(position).map_or(Cow::Borrowed(zeroes.as_slice()), |unit| continued(unit, unit_bytes));
            encoder.add_original_shard(unit).map_err(impossible)?;
        }
        let encoded = encoder.encode().map_err(impossible)?;
        for (buffer, recovery) in self.parity.iter_mut().zip(encoded.recovery_iter()) {
            buffer.clear();
            buffer.extend_from_slice(recovery);
        }
        Ok(&self.parity)
    }
}

/// Reconstructs the missing data units of a stripe: their numbers and bytes, `unit_bytes` each. `units` has data before
/// parity, and `None` for a missing unit; none is longer than `unit_bytes`.
///
/// # Errors
/// [`ErrorKind::Lost`] if fewer than `data` units are present.
pub(crate) fn reconstruct(data: usize, unit_bytes: usize, units: &[Option<&[u8]>]) -> Result<Vec<(usize, Vec<u8>)>> {
    let (originals, parity) = units.split_at(data.min(units.len()));
    if originals.iter().all(Option::is_some) {
        return Ok(Vec::new());
    }
    let lost = |error: reed_solomon_simd::Error| Error::new(ErrorKind::Lost, "reconstruct a stripe", error.to_string());
    if units.iter().flatten().count() < data {
        let cause = format!("only {} of {data} units are left", units.iter().flatten().count());
        return Err(Error::new(ErrorKind::Lost, "reconstruct a stripe", cause));
    }
    if parity.len() == 1 {
        let mut restored = vec![0; unit_bytes];
        units.iter().flatten().for_each(|unit| exclusive_or(&mut restored, unit));
        let missing = originals.iter().position(Option::is_none);
        return Ok(missing.map(|unit| (unit, restored)).into_iter().collect());
    }
    let mut decoder = ReedSolomonDecoder::new(data, parity.len(), unit_bytes).map_err(lost)?;
    for (position, unit) in originals.iter().enumerate() {
        if let Some(unit) = unit {
            decoder.add_original_shard(position, continued(unit, unit_bytes)).map_err(lost)?;
        }
    }
    for (position, unit) in parity.iter().enumerate() {
        if let Some(unit) = unit {
            decoder.add_recovery_shard(position, continued(unit, unit_bytes)).map_err(lost)?;
        }
    }
    let decoded = decoder.decode().map_err(lost)?;
    Ok(decoded.restored_original_iter().map(|(position, unit)| (position, unit.to_vec())).collect())
}

/// Adds a unit in GF(2), byte by byte. A shorter one leaves the rest unchanged.
fn exclusive_or(sum: &mut [u8], unit: &[u8]) {
    sum.iter_mut().zip(unit).for_each(|(sum, byte)| *sum ^= byte);
}

/// A unit, extended by zeroes to the length of the longest.
fn continued(unit: &[u8], unit_bytes: usize) -> Cow<'_, [u8]> {
    if unit.len() >= unit_bytes {
        return Cow::Borrowed(unit);
    }
    let mut longer = Vec::with_capacity(unit_bytes);
    longer.extend_from_slice(unit);
    longer.resize(unit_bytes, 0);
    Cow::Owned(longer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn with_one_data_unit_parity_is_a_copy() {
        let unit: Vec<u8> = (0..4096u32).map(|at| ((at * 31) >> 3) as u8).collect();
        for parity in [1, 2] {
            let mut encoder = Encoder::default();
            let copies = encoder.parity(1, parity, 4096, &[&unit]).unwrap();
            assert_eq!(copies, vec![unit.clone(); parity]);
        }
    }

    #[test]
    fn one_parity_unit_is_that_of_the_library() {
        for data in 1..=64usize {
            let units: Vec<Vec<u8>> =
                (0..data).map(|unit| (0..192).map(|at| ((at * 7 * (unit + 1)) >> 2) as u8).collect()).collect();
            let borrowed: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
            let library = reed_solomon_simd::encode(data, 1, &units).unwrap();
            assert_eq!(Encoder::default().parity(data, 1, 192, &borrowed).unwrap(), library, "{data}");
        }
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        assert_eq!(Encoder::default().parity(0, 2, 4096, &[]).unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(Encoder::default().parity(1, 2, 3, &[&[1, 2, 3]]).unwrap_err().kind(), ErrorKind::Usage);
        let unit = [7u8; 64];
        let error = reconstruct(2, 64, &[None, None, Some(&unit)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert!(error.to_string().contains("1 of 2 units are left"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn any_units_up_to_the_parity_may_be_missing(
            (data, parity) in (1usize..=64, 0usize..=2),
            sectors in 1usize..4,
            reached in any::<prop::sample::Index>(),
            missing in proptest::collection::vec(any::<prop::sample::Index>(), 0..=2),
            seed in any::<u8>(),
        ) {
            let bytes = sectors * 4096;
            let reached = reached.index(data) + 1;
            // The last unit with bytes is shorter, unless it is the only one.
            let length = |unit: usize| if unit + 1 == reached && unit > 0 { 4096 } else { bytes };
            let units: Vec<Vec<u8>> = (0..reached)
                .map(|unit| (0..length(unit)).map(|at| ((at * (unit + 3)) >> 2) as u8 ^ seed).collect())
                .collect();
            let borrowed: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
            let mut encoder = Encoder::default();
            // A stripe of another shape before: nothing of it may remain in the buffers.
            encoder.parity(3, 2, 64, &[&[9; 64]]).unwrap();
            let parities = encoder.parity(data, parity, bytes, &borrowed).unwrap().to_vec();
            prop_assert_eq!(parities.len(), parity);
            let zeroes = vec![0; bytes];
            let mut all: Vec<Option<&[u8]>> = (0..data)
                .map(|unit| Some(borrowed.get(unit).copied().unwrap_or(&zeroes)))
                .chain(parities.iter().map(|unit| Some(unit.as_slice())))
                .collect();
            for index in missing.iter().take(parity) {
                all[index.index(data + parity)] = None;
            }
            let restored = reconstruct(data, bytes, &all).unwrap();
            let gone: Vec<usize> = (0..data).filter(|&unit| all[unit].is_none()).collect();
            prop_assert_eq!(restored.iter().map(|(unit, _)| *unit).collect::<Vec<_>>(), gone);
            for (unit, content) in restored {
                let want = units.get(unit).map_or(zeroes.clone(), |unit| continued(unit, bytes).into_owned());
                prop_assert!(content == want, "unit {}", unit);
            }
        }
    }
}
