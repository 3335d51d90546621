//! Bills of object stores on a terminal: what everything costs once, and what a month costs.

use std::io::{self, Write};

use super::chart::{left, right, shorten};
use super::paragraphs::{FAINT, faint, heading, prose};
use super::plan_words::reads_sentence;
use super::table::table;
use crate::plan::Plan;
use crate::plan::bill::Bill;
use crate::units::format_count;

/// The bills of a plan, if it has any.
///
/// # Errors
/// Any error of `out`.
pub(super) fn write_bills(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    if plan.bills.is_empty() {
        return Ok(());
    }
    match plan.currency.as_deref() {
        None | Some("") => heading("Object store bills", out)?,
        Some(currency) => heading(&format!("Object store bills, {currency}"), out)?,
    }
    table(out, |out| {
        let reads = if plan.reads.is_some() { format!("{:>12}{:>11}", "gets", "reads") } else { String::new() };
        writeln!(out, "{FAINT}{:28}{:>12}{:>11}{:>11}{reads}{FAINT:#}", "model", "puts", "once", "storage")?;
        plan.bills.iter().try_for_each(|bill| write_bill(bill, out))
    })?;
    let once = "Puts cost once; storage is for a month";
    match reads_sentence(plan) {
        None => faint(&format!("{once}."), out),
        Some(sentence) => {
            faint(&format!("{once}, and so are the requests (gets) and the cost of reads."), out)?;
            prose(&sentence, out)
        }
    }
}

fn write_bill(bill: &Bill, out: &mut dyn Write) -> io::Result<()> {
    let model = left(&shorten(&bill.model, 27), 28);
    let puts = bill.puts.map_or(String::new(), format_count);
    write!(out, "{model}{}{}{}", right(&puts, 12), right(&money(bill.requests), 11), right(&money(bill.month), 11))?;
    match &bill.reads {
        None => writeln!(out),
        Some(reads) => {
            writeln!(out, "{}{}", right(&format_count(reads.requests), 12), right(&money(reads.cost), 11))
        }
    }
}

fn money(amount: f64) -> String {
    if amount >= 1000.0 { format_count(amount.round() as u128) } else { format!("{amount:.2}") }
}
