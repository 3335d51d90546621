//! Bills of object stores: storage and reads for a month, and the requests that put everything there once.
//!
//! Prices are per storage class ([`Prices`]), and a layout may be in two classes ([`Billing`]). Bytes and objects grow
//! with the population; reads are those that were asked for. There is no bill where a class that has bytes has no
//! price.

use serde::{Deserialize, Serialize};

use super::cost::{ObjectPrice, Prices};
use super::population::Population;
use super::space::ModelSpace;
use super::tier::scale;
use crate::distribution::Distribution;
use crate::layout::Model;
use crate::layout::billing::{Billing, ByClass, Upload};
use crate::units::GIB;

/// Seconds of a month, as object stores bill it: 730 hours.
pub const MONTH_SECONDS: f64 = 730.0 * 3600.0;
/// Most reads of a month: sums stay finite.
pub const MOST_READS: u64 = 1 << 60;

/// Reads of whole files in a month.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadRate {
    /// Number of reads.
    pub per_month: u64,
    /// Mean size of what is read.
    pub mean_bytes: f64,
    /// The trace whose sizes they have; `None` if they are as large as the files.
    pub trace: Option<String>,
    /// Duration of the trace if it also has the rate; `None` if that was given.
    pub trace_seconds: Option<f64>,
}

/// An object store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bill {
    /// The model, as it was written.
    pub model: String,
    /// Storage for a month.
    pub month: f64,
    /// Putting or moving everything there, once.
    pub requests: f64,
    /// Number of objects; `None` in plans of earlier versions.
    #[serde(default)]
    pub objects: Option<u128>,
    /// Number of requests that put everything there, once; `None` in plans of earlier versions.
    #[serde(default)]
    pub puts: Option<u128>,
    /// Reads of a month; `None` if none were asked for.
    #[serde(default)]
    pub reads: Option<ReadBill>,
}

/// Reads of a month.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadBill {
    /// Requests.
    pub requests: u128,
    /// Bytes that are read.
    pub bytes: u128,
    /// Both together.
    pub cost: f64,
}

impl Bill {
    /// Storage and reads for a month.
    pub fn month_with_reads(&self) -> f64 {
        self.month + self.reads.as_ref().map_or(0.0, |reads| reads.cost)
    }
}

/// A sum over both classes of `figures`, each times what it costs.
fn cost(figures: ByClass<f64>, prices: ByClass<&ObjectPrice>, price: impl Fn(&ObjectPrice) -> f64) -> f64 {
    figures.iter().zip(prices).map(|(figure, of_class)| figure * price(of_class)).sum()
}

/// The prices of both classes; that of the second one is not asked for if it has no bytes.
fn prices_of<'p>(prices: &'p Prices, billing: &dyn Billing, bytes: ByClass<u128>) -> Option<ByClass<&'p ObjectPrice>> {
    let [class, second] = billing.classes();
    let price = prices.class(class)?;
    let second_price = prices.class(second).or((bytes[1] == 0).then_some(price))?;
    Some([price, second_price])
}

fn reads(
    billing: &dyn Billing,
    prices: ByClass<&ObjectPrice>,
    rate: &ReadRate,
    sizes: &Distribution,
) -> Option<ReadBill> {
    let count = sizes.count();
    let all = Population { sizes, padding: None, tree: None };
    let sums = all.sum(|size_bytes| {
        let [first, second] = billing.reading(size_bytes);
        [first.gets, second.gets, first.bytes, second.bytes].map(u128::from)
    });
    let in_month = |at: usize| sums[at] as f64 / count as f64 * rate.per_month as f64;
    let (gets, bytes) = ([in_month(0), in_month(1)], [in_month(2), in_month(3)]);
    let requests_cost = cost(gets, prices, |price| price.per_1000_reads) / 1000.0;
    let bytes_cost = cost(bytes, prices, |price| price.per_gib_read) / GIB as f64;
    let whole = |figures: ByClass<f64>| figures.iter().sum::<f64>().round() as u128;
    (count > 0).then(|| ReadBill { requests: whole(gets), bytes: whole(bytes), cost: requests_cost + bytes_cost })
}

/// The bill of a model for a population that has grown to `1 + growth_fraction`; `read` are the reads of a month with
/// the distribution of their sizes.
pub fn bill(
    population: &Population,
    (model, space): (&Model, &ModelSpace),
    prices: &Prices,
    growth_fraction: f64,
    read: Option<(&ReadRate, &Distribution)>,
) -> Option<Bill> {
    let billing = model.layout.billing()?;
    let grown = |figure: u128| scale(figure, 1.0 + growth_fraction);
    let [second_bytes] = population.sum(|size_bytes| [billing.second_class_bytes(size_bytes)]);
    let bytes = [grown(space.total_bytes.saturating_sub(second_bytes)), grown(second_bytes)];
    let prices = prices_of(prices, billing, bytes)?;
    let upload =
        Upload { files: grown(population.files()), size_bytes: grown(population.size_bytes()), billed_bytes: bytes };
    let puts = billing.puts(&upload);
    let plain = |figures: ByClass<u128>| figures.map(|figure| figure as f64);
    Some(Bill {
        model: model.name.clone(),
        month: cost(plain(bytes), prices, |price| price.per_gib_month) / GIB as f64,
        requests: cost(plain(puts), prices, |price| price.per_1000_requests) / 1000.0,
        objects: Some(billing.objects(&upload).iter().sum()),
        puts: Some(puts.iter().sum()),
        reads: read.and_then(|(rate, sizes)| reads(billing, prices, rate, sizes)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::space::model_space;
    use super::*;

    const PRICES: &str = r#"
        [[object]]
        class = "standard"
        per_gib_month = 0.02
        per_1000_requests = 0.005
        per_1000_reads = 0.0004
        [[object]]
        class = "standard-ia"
        per_gib_month = 0.01
        per_1000_requests = 0.01
        per_1000_reads = 0.001
        per_gib_read = 0.5
        [[object]]
        class = "glacier"
        per_gib_month = 0.004
        per_1000_requests = 0.05
    "#;

    fn of(model: &str, sizes: &Distribution, growth_fraction: f64, per_month: u64) -> Option<Bill> {
        let model = Model::parse(model).unwrap();
        let population = Population { sizes, padding: None, tree: None };
        let space = model_space(&population, &model);
        let rate = ReadRate { per_month, mean_bytes: 0.0, trace: None, trace_seconds: None };
        let prices = Prices::parse(PRICES).unwrap();
        bill(&population, (&model, &space), &prices, growth_fraction, Some((&rate, sizes)))
    }

    fn files(sizes: &[(u64, u64)]) -> Distribution {
        let mut distribution = Distribution::default();
        sizes.iter().for_each(|&(size, count)| distribution.add(size, count));
        distribution
    }

    fn assert_near(figure: f64, expected: f64) {
        assert!((figure - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{figure} is not {expected}");
    }

    #[test]
    fn archived_files_are_billed_at_two_rates() {
        let sizes = files(&[(1 << 20, 4000)]);
        let bill = of("s3:class=glacier", &sizes, 0.0, 0).unwrap();
        let gib = |kib: u64| (4000 * kib) as f64 / (1 << 20) as f64;
        assert_near(bill.month, gib(1024 + 32) * 0.004 + gib(8) * 0.02);
        assert_near(bill.requests, 4.0 * 0.05);
        assert_eq!((bill.objects, bill.puts), (Some(4000), Some(4000)));
    }

    #[test]
    fn everything_grows_but_the_reads() {
        let sizes = files(&[(1000, 2000)]);
        let (now, later) = (of("s3", &sizes, 0.0, 500).unwrap(), of("s3", &sizes, 0.5, 500).unwrap());
        assert_near(later.month, 1.5 * now.month);
        assert_near(later.requests, 1.5 * now.requests);
        assert_eq!((later.puts, later.reads), (Some(3000), now.reads));
    }

    #[test]
    fn reads_cost_by_number_and_by_bytes() {
        let sizes = files(&[(0, 500), (1 << 20, 500)]);
        let read = of("s3:class=standard-ia", &sizes, 0.0, 1_000_000).unwrap().reads.unwrap();
        assert_eq!((read.requests, read.bytes), (1_000_000, 500_000 << 20));
        assert_near(read.cost, 1000.0 * 0.001 + 500_000.0 / 1024.0 * 0.5);
        let read = of("s3", &sizes, 0.0, 1_000_000).unwrap().reads.unwrap();
        assert_near(read.cost, 1000.0 * 0.0004);
        assert_eq!(of("s3", &sizes, 0.0, 0).unwrap().reads, Some(ReadBill { requests: 0, bytes: 0, cost: 0.0 }));
    }

    #[test]
    fn a_hybrid_store_reads_records_from_one_class_and_stripes_from_the_other() {
        let sizes = files(&[(1000, 900), (1 << 20, 100)]);
        let bill = of("s3:as=granulo,slow_class=standard-ia", &sizes, 0.0, 1000).unwrap();
        let read = bill.reads.unwrap();
        // Every tenth read is of a large file: its descriptor, and its stripes.
        assert_eq!((read.requests, read.bytes), (1100, 900 * 1000 + (100 << 20)));
        let striped_gib = 100.0 * ((1 << 20) - 4096) as f64 / (1u64 << 30) as f64;
        assert_near(read.cost, 1.0 * 0.0004 + 0.1 * 0.001 + striped_gib * 0.5);
        // One class needs no price of the other.
        assert!(of("s3:as=granulo,slow_class=glacier-ir", &sizes, 0.0, 0).is_none());
        assert!(of("s3:as=granulo,slow_class=glacier-ir", &files(&[(1000, 9)]), 0.0, 0).is_some());
    }

    #[test]
    fn a_store_costs_fewer_requests_than_files_do() {
        let sizes = files(&[(20_000, 50_000)]);
        let (plain, packed) = (of("s3", &sizes, 0.0, 0).unwrap(), of("s3:as=granulo", &sizes, 0.0, 0).unwrap());
        assert!(plain.requests > 900.0 * packed.requests, "{} {}", plain.requests, packed.requests);
        assert!(packed.month < 1.01 * plain.month, "{} {}", packed.month, plain.month);
        assert_eq!((packed.objects, packed.puts), (Some(31), Some(53)));
    }

    #[test]
    fn a_class_without_a_price_has_no_bill() {
        assert_eq!(of("s3:class=deep-archive", &files(&[(1, 1)]), 0.0, 0), None);
        assert_eq!(of("ceph", &files(&[(1, 1)]), 0.0, 0), None);
    }

    #[test]
    fn what_is_enormous_stays_finite() {
        let sizes = files(&[(u64::MAX, 1 << 53)]);
        let bill = of("s3:class=standard-ia,as=granulo", &sizes, 1e6, MOST_READS).unwrap();
        assert!(bill.month_with_reads().is_finite() && bill.requests.is_finite());
    }
}
