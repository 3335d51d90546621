//! What tells results apart that have one name: the machine, and the day.

/// A name with its host and its day, as far as they are known and the name does not say them already; `at` is RFC 3339.
pub(super) fn told_apart(name: &str, host: Option<&str>, at: Option<&str>) -> String {
    let mut words = name.to_owned();
    if let Some(host) = host.filter(|host| !host.is_empty() && !name.contains(&format!(" on {host}"))) {
        words.push_str(&format!(" on {host}"));
    }
    if let Some(day) = at.and_then(|at| at.split('T').next()).filter(|day| !day.is_empty() && !name.contains(*day)) {
        words.push_str(&format!(", {day}"));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::told_apart;

    #[test]
    fn a_name_says_each_thing_once() {
        let at = Some("2026-11-29T19:28:08Z");
        assert_eq!(told_apart("/usr", Some("alpha"), at), "/usr on alpha, 2026-11-29");
        assert_eq!(told_apart("/usr on alpha", Some("alpha"), at), "/usr on alpha, 2026-11-29");
        assert_eq!(told_apart("/usr, 2026-11-29", None, at), "/usr, 2026-11-29");
        assert_eq!(told_apart("/usr", Some(""), None), "/usr");
    }
}
