//! Reading sources for the commands that take them.

use std::path::{Path, PathBuf};

use super::output;
use crate::error::Result;
use crate::survey::file::format_time;
use crate::survey::{Origin, Survey, source};

/// Opens each source and prints its remarks.
pub(super) fn open_all(paths: &[PathBuf]) -> Result<Vec<Survey>> {
    paths.iter().map(|path| open(path)).collect()
}

/// Opens a source and prints its remarks.
pub(super) fn open(path: &Path) -> Result<Survey> {
    Ok(open_with_notes(path)?.0)
}

/// The same; also returns the remarks.
pub(super) fn open_with_notes(path: &Path) -> Result<(Survey, Vec<String>)> {
    let source = source::open(path)?;
    for warning in &source.warnings {
        output::warn(&format!("{}: {warning}", crate::units::escape_path(path)));
    }
    Ok((source.survey, source.warnings))
}

/// The label of each of `surveys`: its own name if it has one, else that of its file. Where two are equal, the hosts
/// are added if these differ, then days, then times of day; else they are numbered.
pub(super) fn names(surveys: &[Survey], paths: &[PathBuf]) -> Vec<String> {
    let own = |(survey, path): (&Survey, &PathBuf)| {
        survey.origin.name.clone().unwrap_or_else(|| crate::units::escape_path(path))
    };
    let mut plain: Vec<String> = surveys.iter().zip(paths).map(own).collect();
    let host = |origin: &Origin| origin.host().map(|host| format!(" on {host}"));
    let part = |at: i64, index: usize| format_time(at).split('T').nth(index).map(str::to_owned);
    let day = |origin: &Origin| Some(format!(", {}", part(origin.taken_at?, 0)?));
    let time = |origin: &Origin| Some(format!(" {}", part(origin.taken_at?, 1)?));
    for more in [&host as &dyn Fn(&Origin) -> Option<String>, &day, &time] {
        tell_apart(&mut plain, surveys, more);
    }
    let numbered = plain.iter().enumerate().map(|(index, name)| {
        let alike = plain[..index].iter().filter(|other| *other == name).count();
        if alike == 0 { name.clone() } else { format!("{name} ({})", alike + 1) }
    });
    numbered.collect()
}

/// Adds `more` to the names that are equal to others, where it differs among these.
fn tell_apart(names: &mut [String], surveys: &[Survey], more: &dyn Fn(&Origin) -> Option<String>) {
    let before = names.to_vec();
    for (index, name) in names.iter_mut().enumerate() {
        let alike = before.iter().zip(surveys).filter(|(other, _)| **other == before[index]);
        let mine = more(&surveys[index].origin);
        if alike.clone().count() > 1 && alike.map(|(_, survey)| more(&survey.origin)).any(|theirs| theirs != mine) {
            name.push_str(&mine.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(host: &str, taken_at: i64) -> Survey {
        let machine = serde_json::from_value(serde_json::json!({ "host": host })).unwrap();
        let origin = Origin {
            name: Some("/".to_owned()),
            machines: vec![machine],
            taken_at: Some(taken_at),
            ..Origin::default()
        };
        Survey { origin, ..Survey::default() }
    }

    #[test]
    fn equal_names_get_what_tells_them_apart() {
        const DAY: i64 = 86_400;
        let named = |surveys: &[Survey]| names(surveys, &vec![PathBuf::from("s.json"); surveys.len()]);
        assert_eq!(named(&[survey("a", 0)]), ["/"]);
        assert_eq!(named(&[survey("a", 0), survey("b", 0)]), ["/ on a", "/ on b"]);
        assert_eq!(named(&[survey("a", 0), survey("a", DAY)]), ["/, 1970-01-01", "/, 1970-01-02"]);
        assert_eq!(named(&[survey("a", 0), survey("a", 0)]), ["/", "/ (2)"]);
        let four = [survey("a", 0), survey("b", 0), survey("a", 1), survey("a", DAY)];
        let expected = ["/ on a, 1970-01-01 00:00:00Z", "/ on b", "/ on a, 1970-01-01 00:00:01Z"];
        assert_eq!(named(&four)[..3], expected);
    }
}
