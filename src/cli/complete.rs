//! `granulo complete`, which the completion scripts run: values that only this program knows, for the last of the words
//! before the cursor. Models and their options, names of published populations, keys of a store.
//!
//! It says nothing about what goes wrong: a completion is no place for messages.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;

use super::{Ended, output};
use crate::distribution::published;
use crate::error::Result;
use crate::layout::kinds;
use crate::plan::systems;
use crate::population::profiles;
use crate::report::store::ObjectType;
use crate::store::{Key, Store};
use crate::trace::csv::PRESETS;

/// Most keys that are listed.
const MOST_KEYS: usize = 2000;
/// An option whose values are completed, with the beginning of its value in the same word.
const MODEL_EQUALS: &str = "--model=";
/// Commands of a store that take keys after it, and how many.
const WITH_KEYS: [(&str, usize); 9] = [
    ("get", usize::MAX),
    ("rm", usize::MAX),
    ("cp", usize::MAX),
    ("mv", 2),
    ("ln", 2),
    ("put", 1),
    ("ls", 1),
    ("stat", 1),
    ("log", 1),
];
/// Commands that take the name of a published population.
const WITH_SOURCES: [&str; 5] = ["show", "plan", "compare", "report", "generate"];

/// Print values for a shell that completes a command line
#[derive(Debug, Args)]
#[command(hide = true)]
pub(super) struct CompleteArguments {
    /// The words after granulo, up to the cursor
    #[arg(value_name = "WORD", num_args = 0.., allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<OsString>,
}

impl CompleteArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let values = candidates(&self.words);
        output::print(|out| values.iter().try_for_each(|value| writeln!(out, "{value}")))
    }
}

fn candidates(words: &[OsString]) -> Vec<String> {
    let Some((current, before)) = words.split_last() else { return Vec::new() };
    let current = current.to_string_lossy();
    if let Some(value) = current.strip_prefix(MODEL_EQUALS) {
        // A shell that does not cut the word at the equals sign replaces all of it.
        let values = models(&[], value).unwrap_or_default();
        return values.into_iter().map(|value| format!("{MODEL_EQUALS}{value}")).collect();
    }
    let at_model = before.iter().rposition(|word| word == "--model" || word == "allocate");
    if let Some(at) = at_model
        && let Some(values) = models(after_equals(&before[at + 1..]), &current)
    {
        return values;
    }
    if current.starts_with('-') {
        return Vec::new();
    }
    let begins = |values: Vec<String>| values.into_iter().filter(|value| value.starts_with(&*current)).collect();
    let is_after = |option: &str| before.last().is_some_and(|word| word == option);
    match before.first().and_then(|word| word.to_str()) {
        Some("store") => keys(&before[1..], &current).unwrap_or_default(),
        Some(command) if WITH_SOURCES.contains(&command) => begins(sources()),
        _ if is_after("--trace") => begins(vec!["vu-2005".to_owned()]),
        _ if is_after("--columns") => begins(PRESETS.iter().map(|preset| preset.0.to_owned()).collect()),
        _ => Vec::new(),
    }
}

/// The words after an equals sign at which a shell cut them.
fn after_equals(words: &[OsString]) -> &[OsString] {
    match words.split_first() {
        Some((first, rest)) if first == "=" => rest,
        _ => words,
    }
}

/// Models, their options after a colon, or the words that an option takes. A shell may have cut the word at the colon
/// and at signs of equality, so that it is several words.
fn models(before: &[OsString], current: &str) -> Option<Vec<String>> {
    let whole = before.iter().map(|word| word.to_string_lossy().into_owned()).collect::<String>() + current;
    let Some((name, options)) = whole.split_once(':') else {
        // Something complete stands between.
        let is_name = before.is_empty() && !current.starts_with('-');
        let names = kinds().iter().map(|kind| kind.name.to_owned()).filter(|name| name.starts_with(current));
        return is_name.then(|| names.collect());
    };
    let kind = kinds().iter().find(|kind| kind.name == name)?;
    let typed = options.rsplit(',').next().unwrap_or_default();
    if let Some((option, begun)) = typed.split_once('=') {
        let option = kind.options.iter().find(|known| known.name == option)?;
        // Of a word that a shell has cut, what follows the sign is replaced.
        let lead = if current == "=" { "" } else { current.strip_suffix(begun)? };
        let words = option.range.words().iter().filter(|word| word.starts_with(begun));
        return Some(words.map(|word| format!("{lead}{word}")).collect());
    }
    let lead = current.strip_suffix(typed)?;
    let given = |name: &str| options.split(',').any(|option| option.starts_with(&format!("{name}=")));
    let fitting = kind.options.iter().filter(|option| option.name.starts_with(typed) && !given(option.name));
    Some(fitting.map(|option| format!("{lead}{}=", option.name)).collect())
}

fn sources() -> Vec<String> {
    let published = published::all().iter().map(|table| table.name.to_owned());
    let profiles = profiles::all().into_iter().map(|profile| profile.name.to_owned());
    let systems = systems::all().into_iter().map(|system| system.name.to_owned());
    published.chain(profiles).chain([systems::COLLECTION.to_owned()]).chain(systems).collect()
}

/// Keys in the directory of a store that has been typed so far.
fn keys(before: &[OsString], current: &str) -> Option<Vec<String>> {
    let (command, rest) = before.split_first()?;
    let (_, most) = WITH_KEYS.into_iter().find(|(name, _)| command == name)?;
    let positional: Vec<&OsString> = rest.iter().filter(|word| !word.as_bytes().starts_with(b"-")).collect();
    let (home, earlier) = positional.split_first()?;
    if earlier.len() >= most {
        return None;
    }
    let (directory, typed) = current.rsplit_once('/').map_or(("", current), |(directory, name)| (directory, name));
    let lead = current.strip_suffix(typed)?;
    let store = Store::open_read_only(Path::new(home)).ok()?;
    let key = if directory.is_empty() { Key::root() } else { Key::parse(directory).ok()? };
    // Scripts insert them unquoted: what a shell or a terminal would interpret is typed by hand, and so is what looks
    // like an option.
    let is_plain = |it: char| it.is_alphanumeric() || "-_./+,:=@%".contains(it);
    let mut keys = Vec::new();
    for listed in store.list(&key).ok()? {
        let listed = listed.ok()?;
        let name = std::str::from_utf8(listed.key.name()?).unwrap_or_default();
        let is_option = lead.is_empty() && name.starts_with('-');
        if name.is_empty() || !name.starts_with(typed) || !name.chars().all(is_plain) || is_option {
            continue;
        }
        let is_directory = ObjectType::of(&listed.entry) == ObjectType::Directory;
        keys.push(format!("{lead}{name}{}", if is_directory { "/" } else { "" }));
        if keys.len() == MOST_KEYS {
            break;
        }
    }
    Some(keys)
}

/// What a completion script needs to ask this program.
pub(super) fn script(shell: clap_complete::Shell) -> &'static str {
    match shell {
        clap_complete::Shell::Bash => BASH,
        clap_complete::Shell::Zsh => ZSH,
        clap_complete::Shell::Fish => FISH,
        _ => "",
    }
}

const BASH: &str = r#"
_granulo_and_values() {
    _granulo "$@"
    local value
    while IFS= read -r value; do
        COMPREPLY+=("$value")
    done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]]; then
        compopt -o nospace 2> /dev/null
    fi
}
complete -F _granulo_and_values -o bashdefault -o default granulo
"#;

const ZSH: &str = r#"
_granulo_and_values() {
    local -a values
    values=(${(f)"$(granulo complete -- "${(@)words[2,CURRENT]}" 2> /dev/null)"})
    (( $#values )) && compadd -S '' -a values
    _granulo "$@"
}
compdef _granulo_and_values granulo
"#;

const FISH: &str = r#"
set -l __granulo_values '(granulo complete -- (commandline -opc)[2..-1] (commandline -ct) 2> /dev/null)'
complete -c granulo -a $__granulo_values
set -l __granulo_models '(granulo complete -- (commandline -opc)[2..-1] (commandline -ct) 2> /dev/null | string replace -- "--model=" "")'
complete -c granulo -n "__fish_granulo_using_subcommand plan" -l model -x -a $__granulo_models
complete -c granulo -n "__fish_granulo_using_subcommand trace" -l columns -x -a $__granulo_values
complete -c granulo -n "__fish_granulo_using_subcommand cache" -l columns -x -a $__granulo_values
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Attributes, Plan, Time};

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn models_and_their_options_are_known_also_where_a_shell_cuts_words() {
        let of = |line: &str| candidates(&words(line));
        assert!(of("plan x --model z").contains(&"zfs".to_owned()));
        assert!(of("plan x --model zfs:vd").contains(&"zfs:vdev=".to_owned()));
        assert!(of("plan x --model zfs : vd").contains(&"vdev=".to_owned()));
        assert!(!of("plan x --model zfs:vdev=raidz2,v").iter().any(|value| value.ends_with("vdev=")));
        assert_eq!(
            of("plan x --model s3:class=standard-ia,as="),
            ["files", "granulo"].map(|word| format!("s3:class=standard-ia,as={word}"))
        );
        assert_eq!(of("plan x --model s3 : as = gr"), ["granulo"]);
        assert_eq!(of("plan x --model s3 : as ="), ["files", "granulo"]);
        assert!(of("plan x --model s3:object=").is_empty());
        assert!(of("allocate ext").contains(&"ext4".to_owned()));
        assert!(of("plan --").is_empty());
        assert!(of("plan x --model=zfs:vd").contains(&"--model=zfs:vdev=".to_owned()));
        assert!(of("plan x --model = zfs : vd").contains(&"vdev=".to_owned()));
        assert!(of("plan x --model =").is_empty());
        assert_eq!(of("trace read x --columns m"), ["msr"]);
    }

    #[test]
    fn published_names_are_sources() {
        assert_eq!(candidates(&words("show vu-")), ["vu-1984", "vu-2005"]);
        assert!(candidates(&words("survey vu-")).is_empty());
    }

    #[test]
    fn keys_are_those_of_the_directory_typed_so_far() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("store");
        let store = Store::create(&home, &Plan::default()).unwrap();
        let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
        let hostile = ["a/x;y", "a/$(z)", "a/`z`", "a/\u{202e}b", "a/~", "-rf"];
        for name in ["a/one", "a/only/x", "a/with space", "b"].into_iter().chain(hostile) {
            store.put(&Key::parse(name).unwrap(), &attributes, b"").unwrap();
        }
        drop(store);
        let of = |rest: &str| candidates(&words(&format!("store {}", rest.replace('S', home.to_str().unwrap()))));
        assert_eq!(of("get S "), ["a/", "b"]);
        assert_eq!(of("get S a/"), ["a/one", "a/only/"]);
        assert_eq!(of("get -q S a/o"), ["a/one", "a/only/"]);
        assert_eq!(of("rm S b a/w"), Vec::<String>::new());
        assert_eq!(of("put S b "), Vec::<String>::new());
    }
}
