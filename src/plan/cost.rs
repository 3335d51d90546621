//! Costs. Prices of devices come from the user; none are built in.
//!
//! A price file is TOML:
//!
//! ```toml
//! currency = "EUR"
//! [[fast]]                      # devices of the fast tier; the cheapest way to reach a capacity with one kind is taken
//! name = "3.84 TB NVMe"
//! size = "3.84TB"
//! price = 420
//! [[slow]]
//! name = "20 TB disk"
//! size = "20TB"
//! price = 380
//! [[object]]                    # storage classes of an object store, by the class of the model s3
//! class = "standard-ia"
//! per_gib_month = 0.0125
//! per_1000_requests = 0.01      # to put or to move 1,000 objects there
//! per_1000_reads = 0.001        # to read 1,000 objects, or ranges of them
//! per_gib_read = 0.01           # to retrieve it, and to transfer it to where it is read
//! ```

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::tier::{Tier, Tiers};
use crate::layout::kinds;
use crate::units::{escape, parse_size};

/// Upper bound of any price: sums stay finite.
const MOST_PRICE: f64 = 1e12;
/// Largest length of a currency in bytes, for the headings of tables.
const MOST_CURRENCY: usize = 8;

/// Prices, as the user specified them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Currency of the prices.
    #[serde(default)]
    pub currency: String,
    /// Devices of the fast tier.
    #[serde(default)]
    pub fast: Vec<Device>,
    /// Devices of the slow tier.
    #[serde(default)]
    pub slow: Vec<Device>,
    /// Storage classes.
    #[serde(default)]
    pub object: Vec<ObjectPrice>,
}

/// A kind of device.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its capacity, written like other sizes.
    #[serde(deserialize_with = "capacity")]
    pub size: u64,
    /// Price of one device.
    pub price: f64,
}

/// The price of a storage class.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectPrice {
    /// The class, as the model names it.
    pub class: String,
    /// Per GiB and month.
    pub per_gib_month: f64,
    /// To put or to move 1,000 objects there.
    #[serde(default)]
    pub per_1000_requests: f64,
    /// To read 1,000 objects, or ranges of them.
    #[serde(default)]
    pub per_1000_reads: f64,
    /// For each GiB that is read.
    #[serde(default)]
    pub per_gib_read: f64,
}

impl ObjectPrice {
    fn figures(&self) -> [f64; 4] {
        [self.per_gib_month, self.per_1000_requests, self.per_1000_reads, self.per_gib_read]
    }
}

fn capacity<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    match parse_size(&text).map_err(serde::de::Error::custom)? {
        0 => Err(serde::de::Error::custom("a device must have at least one byte")),
        bytes => Ok(bytes),
    }
}

/// A number of devices of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Purchase {
    /// Name of the device.
    pub device: String,
    /// Number of devices.
    pub count: u128,
    /// Their total price.
    pub cost: f64,
}

/// The cost of one way to store the population.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Where everything is stored.
    pub way: Way,
    /// The cutoff of a hybrid.
    pub cutoff_bytes: Option<u64>,
    /// Devices of the fast tier.
    pub fast: Option<Purchase>,
    /// Devices of the slow tier.
    pub slow: Option<Purchase>,
    /// Both together.
    pub cost: f64,
    /// Whether metadata and files up to the usual cutoff are on the fast tier.
    pub holds: bool,
}

/// Where everything is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Fast devices alone.
    Fast,
    /// Slow devices alone.
    Slow,
    /// Metadata and small files on fast devices, the rest on slow ones.
    Hybrid,
}

impl Prices {
    /// Reads a price file.
    ///
    /// # Errors
    /// A sentence that names the fault and its position.
    pub fn parse(text: &str) -> Result<Prices, String> {
        let prices: Prices = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            format!("line {line}: {}", error.message())
        })?;
        let figures = prices.fast.iter().chain(&prices.slow).map(|device| device.price);
        let figures = figures.chain(prices.object.iter().flat_map(ObjectPrice::figures));
        if !figures.into_iter().all(|price| (0.0..=MOST_PRICE).contains(&price)) {
            return Err(format!("a price is negative, not a number, or above {MOST_PRICE:.0}"));
        }
        let plain = prices.currency.len() <= MOST_CURRENCY && escape(prices.currency.as_bytes()) == prices.currency;
        if !plain {
            return Err(format!("the currency must be a word of at most {MOST_CURRENCY} bytes, such as EUR"));
        }
        if let Some(unknown) = prices.object.iter().find(|price| !Prices::classes().contains(&price.class.as_str())) {
            let known = Prices::classes().join(", ");
            return Err(format!(
                "there is no storage class '{}'; the classes are {known}",
                escape(unknown.class.as_bytes())
            ));
        }
        let mut classes = HashSet::new();
        if let Some(twice) = prices.object.iter().find(|price| !classes.insert(price.class.as_str())) {
            return Err(format!("the storage class '{}' has two prices; give it one [[object]]", twice.class));
        }
        Ok(prices)
    }

    /// The storage classes of the model `s3`.
    fn classes() -> &'static [&'static str] {
        let class = kinds().iter().flat_map(|kind| kind.options).find(|option| option.name == "class");
        class.map_or(&[], |class| class.range.words())
    }

    /// Whether there are devices of both tiers.
    pub fn has_devices(&self) -> bool {
        !self.fast.is_empty() && !self.slow.is_empty()
    }

    /// The price of a storage class.
    pub fn class(&self, name: &str) -> Option<&ObjectPrice> {
        self.object.iter().find(|price| price.class == name)
    }

    /// Whether reads cost something in any class.
    pub fn has_reads(&self) -> bool {
        self.object.iter().any(|price| price.per_1000_reads > 0.0 || price.per_gib_read > 0.0)
    }
}

/// The cheapest way to reach a capacity with devices of one kind.
fn purchase(devices: &[Device], capacity_bytes: u128) -> Option<Purchase> {
    let of = |device: &Device| {
        let count = capacity_bytes.div_ceil(device.size.into());
        Purchase { device: device.name.clone(), count, cost: count as f64 * device.price }
    };
    devices.iter().map(of).min_by(|a, b| a.cost.total_cmp(&b.cost))
}

/// The costs of all-fast and all-slow (the layout without tiers), and of a hybrid for each cutoff that leaves something
/// on the slow tier; `usual_bytes` is the cutoff up to which files are to be on the fast tier. All devices have room
/// for growth; only the fast tier of a hybrid has a fill limit, too. Empty without prices for both tiers.
pub fn costs(tiers: &Tiers, cutoffs: &[u64], usual_bytes: u64, prices: &Prices, growth_fraction: f64) -> Vec<Cost> {
    if !prices.has_devices() {
        return Vec::new();
    }
    let grown = |bytes: u128| super::tier::scale(bytes, 1.0 + growth_fraction);
    let everything = grown(tiers.everything_bytes());
    let cost = |way: Way, cutoff_bytes: Option<u64>, fast: Option<Purchase>, slow: Option<Purchase>| Cost {
        cost: [&fast, &slow].into_iter().flatten().map(|purchase| purchase.cost).sum(),
        holds: way == Way::Fast || cutoff_bytes.is_some_and(|cutoff| cutoff >= usual_bytes),
        way,
        cutoff_bytes,
        fast,
        slow,
    };
    let hybrid = |tier: Tier| {
        let fast = purchase(&prices.fast, tier.fast_device_bytes);
        cost(Way::Hybrid, Some(tier.cutoff_bytes), fast, purchase(&prices.slow, grown(tier.slow_bytes)))
    };
    let mut costs = vec![
        cost(Way::Fast, None, purchase(&prices.fast, everything), None),
        cost(Way::Slow, None, None, purchase(&prices.slow, everything)),
    ];
    let tiered = cutoffs.iter().map(|&cutoff| tiers.at(cutoff)).filter(|tier| tier.slow_bytes > 0);
    costs.extend(tiered.map(hybrid));
    costs
}

/// The cheapest cost for which `holds` is true, if there is one.
pub fn cheapest(costs: &[Cost]) -> Option<&Cost> {
    costs.iter().filter(|cost| cost.holds).min_by(|a, b| a.cost.total_cmp(&b.cost))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: &str = r#"
        currency = "EUR"
        [[fast]]
        name = "small"
        size = "1TB"
        price = 100
        [[fast]]
        name = "large"
        size = "4TB"
        price = 300
        [[slow]]
        name = "disk"
        size = "20TB"
        price = 400
        [[object]]
        class = "standard"
        per_gib_month = 0.02
    "#;

    #[test]
    fn the_cheaper_kind_is_bought_by_whole_devices() {
        let prices = Prices::parse(PRICES).unwrap();
        let two = purchase(&prices.fast, 2_000_000_000_000).unwrap();
        assert_eq!((two.device.as_str(), two.count, two.cost), ("small", 2, 200.0));
        let six = purchase(&prices.fast, 6_000_000_000_001).unwrap();
        assert_eq!((six.device.as_str(), six.count, six.cost), ("large", 2, 600.0));
        assert_eq!(purchase(&prices.fast, 0).unwrap().count, 0);
        assert_eq!(purchase(&[], 1), None);
    }

    #[test]
    fn wrong_prices_are_refused_with_their_line() {
        for (text, cause) in [
            ("[[fast]]\nname = 'x'\nsize = '1XB'\nprice = 1", "line 3: '1XB' is not a size"),
            ("[[fast]]\nname = 'x'\nprice = 1", "missing field `size`"),
            ("[[fats]]\n", "line 1: unknown field `fats`"),
            ("[[fast]]\nname='x'\nsize='1TB'\nprice = -1", "negative"),
            ("[[fast]]\nname='x'\nsize='0'\nprice = 1", "at least one byte"),
            ("[[fast]]\nname='x'\nsize='1TB'\nprice = 1e300", "above"),
            ("[[object]]\nclass='standard'\nper_gib_month=1\nper_1000_reads=-1", "negative"),
            ("[[object]]\nclass='standard'\nper_gib_month=1\nper_gib_read=nan", "not a number"),
            ("currency = \"\\u001b[31m\"", "the currency must be a word"),
            (
                "[[object]]\nclass='standrd'\nper_gib_month=1",
                "there is no storage class 'standrd'; the classes are standard",
            ),
            (
                "[[object]]\nclass='standard'\nper_gib_month=1\n[[object]]\nclass='standard'\nper_gib_month=2",
                "the storage class 'standard' has two prices",
            ),
            ("x", "line 1"),
        ] {
            let error = Prices::parse(text).unwrap_err();
            assert!(error.contains(cause), "{error}");
        }
    }
}
