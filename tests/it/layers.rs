//! A module uses only layers below its own. These tests read the source, not its documentation.
//!
//! Every path that begins at the crate (`crate::…`, `use crate::{…}`, or `super::…` that climbs out of a module) is an
//! edge from the module that the file belongs to. Comments and strings are ignored; test modules are not. `crates/core`
//! and the package at the root are one table; the store's crate, which is one module of it, has its own wings, and the
//! Python package, which nothing uses, its own layers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::harness::{files_below, source_tree};

/// The layers, lowest first; quoted in docs/ARCHITECTURE.md. Other modules are not allowed.
const LAYERS: [&[&str]; 6] = [
    &["units", "error", "progress", "locks", "program", "random", "skipped", "sys", "tables"],
    &["distribution", "layout", "mrc", "io", "document", "mounts"],
    &["scan", "store", "plan", "population", "trace"],
    &["survey", "bench", "fuse", "erofs"],
    &["report", "watch"],
    &["cli"],
];

/// What the package at the root shows to tests, in no layer: it may use everything, and only tests use it.
const SHOWN_TO_TESTS: &str = "testing";

/// The one edge inside a layer: errors print paths.
const EXCEPTIONS: [(&str, &str); 1] = [("error", "units")];

/// The wings of the store, lowest first; quoted in docs/ARCHITECTURE.md.
const WINGS: [&[&str]; 7] =
    [&["format"], &["devices"], &["log", "index"], &["engine"], &["access"], &["maintain"], &["tree"]];

/// Test support of the store. It may use everything, and only tests use it.
const TEST_SUPPORT: [&str; 4] = ["simulation", "fuzzing", "tests", "space_tests"];

/// The layers of the Python package, lowest first; quoted in docs/ARCHITECTURE.md.
const PYTHON: [&[&str]; 7] = [
    &["errors", "process", "rows"],
    &["buffers", "keys", "names", "order"],
    &["reading"],
    &["batch", "entries", "survey", "table"],
    &["handle"],
    &["scratch"],
    &["reader"],
];

/// Modules of the core, which the store's crate re-exports under their own names.
const CORE: [&str; 7] = ["error", "io", "layout", "locks", "progress", "random", "units"];

/// Source without comments, and without the contents of strings and character literals.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut code, mut at) = (String::with_capacity(text.len()), 0);
    let starts = |at: usize, what: &str| bytes[at..].starts_with(what.as_bytes());
    while at < bytes.len() {
        if starts(at, "//") {
            at += text[at..].find('\n').unwrap_or(text.len() - at);
        } else if starts(at, "/*") {
            let mut depth = 0;
            loop {
                match () {
                    _ if at >= bytes.len() => break,
                    _ if starts(at, "/*") => (depth, at) = (depth + 1, at + 2),
                    _ if starts(at, "*/") => (depth, at) = (depth - 1, at + 2),
                    _ => at += 1,
                }
                if depth == 0 {
                    break;
                }
            }
        } else if let Some(end) = raw_string_end(text, at) {
            code.push_str("\"\"");
            at = end;
        } else if bytes[at] == b'"' {
            code.push_str("\"\"");
            at += 1;
            while at < bytes.len() && bytes[at] != b'"' {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            at += 1;
        } else if bytes[at] == b'\'' && is_character(text, at) {
            code.push_str("' '");
            at += if bytes[at + 1] == b'\\' { 3 } else { 1 };
            at += text[at..].find('\'').map_or(0, |end| end + 1);
        } else {
            let c = text[at..].chars().next().unwrap();
            code.push(c);
            at += c.len_utf8();
        }
    }
    code
}

/// Whether the quote begins a character, not a lifetime.
fn is_character(text: &str, at: usize) -> bool {
    let mut chars = text[at + 1..].chars();
    matches!((chars.next(), chars.next()), (Some('\\'), _) | (Some(_), Some('\'')))
}

/// The end of the raw string that begins here, if one does.
fn raw_string_end(text: &str, at: usize) -> Option<usize> {
    let before = text[..at].chars().next_back();
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let rest = &text[at..];
    let rest = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let body = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = text.len() - body.len();
    Some(body.find(&end).map_or(text.len(), |found| start + found + end.len()))
}

/// Identifiers and single characters; `::` is one token.
pub fn tokens(code: &str) -> Vec<&str> {
    let (mut tokens, mut rest) = (Vec::new(), code);
    while let Some(c) = rest.chars().next() {
        let length = match c {
            _ if rest.starts_with("::") => 2,
            _ if c.is_alphabetic() || c == '_' => {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            _ => c.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        if !token.trim().is_empty() {
            tokens.push(token);
        }
        rest = behind;
    }
    tokens
}

/// The modules of the crate that a file uses. `path` is that of its module: `["survey", "file"]`.
fn used(code: &str, path: &[&str]) -> BTreeSet<String> {
    let tokens = tokens(code);
    let mut used = BTreeSet::new();
    // Brace depths at which inline modules began.
    let (mut depth, mut inline) = (0usize, Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at];
        let begins_path = at == 0 || tokens[at - 1] != "::";
        match token {
            "mod" if tokens.get(at + 2) == Some(&"{") => inline.push(depth),
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if inline.last() == Some(&depth) {
                    inline.pop();
                }
            }
            "crate" | "super" if begins_path => {
                let mut climbed = usize::from(token == "super");
                let mut next = at + 1;
                while token == "super" && tokens.get(next) == Some(&"::") && tokens.get(next + 1) == Some(&"super") {
                    (climbed, next) = (climbed + 1, next + 2);
                }
                let at_crate = token == "crate" || climbed >= path.len() + inline.len();
                if at_crate && tokens.get(next) == Some(&"::") {
                    first_names(&tokens, next + 1, &mut used);
                }
            }
            _ => {}
        }
        at += 1;
    }
    used
}

/// The name at `at`, or every first name of the group that opens there.
fn first_names(tokens: &[&str], at: usize, names: &mut BTreeSet<String>) {
    if tokens.get(at) != Some(&"{") {
        names.extend(tokens.get(at).map(|name| (*name).to_owned()));
        return;
    }
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return;
        }
        if depth == 1 && ["{", ","].contains(token) && ![",", "}"].contains(&tokens[index + 1]) {
            names.insert(tokens[index + 1].to_owned());
        }
    }
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

/// Why `from` may not use `to`.
fn forbidden(from: &str, to: &str) -> Option<String> {
    if from == to || EXCEPTIONS.contains(&(from, to)) {
        return None;
    }
    match (layer(from), layer(to)) {
        (_, None) => Some(format!("{from} uses {to}, which is in no layer")),
        (None, _) => Some(format!("{from} is in no layer")),
        (Some(upper), Some(lower)) if upper <= lower => {
            Some(format!("{from} (layer {upper}) uses {to} (layer {lower})"))
        }
        _ => None,
    }
}

/// The module of a file below `src`: `["survey", "file"]` for `survey/file.rs`, `["survey"]` for `survey/mod.rs`.
fn module_path(file: &Path) -> Vec<&str> {
    let mut path: Vec<&str> = file.iter().map(|part| part.to_str().unwrap()).collect();
    let name = path.pop().unwrap().trim_end_matches(".rs");
    if name != "mod" {
        path.push(name);
    }
    path
}

/// The modules that a `lib.rs` declares.
fn declared(code: &str) -> Vec<String> {
    let tokens = tokens(code);
    tokens.windows(3).filter(|t| t[0] == "mod" && t[2] == ";").map(|t| t[1].to_owned()).collect()
}

/// The files of a crate except its roots, with their modules.
pub fn modules_of(source: &Path) -> Vec<(Vec<String>, String)> {
    let mut modules = Vec::new();
    for file in files_below(source, "rs") {
        let below = file.strip_prefix(source).unwrap();
        if ![Path::new("lib.rs"), Path::new("main.rs")].contains(&below) {
            let path = module_path(below).into_iter().map(str::to_owned).collect();
            modules.push((path, code_only(&fs::read_to_string(&file).unwrap())));
        }
    }
    modules
}

fn used_in(code: &str, path: &[String]) -> BTreeSet<String> {
    used(code, &path.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn modules_use_only_layers_below_their_own() {
    let mut wrong = Vec::new();
    let mut edges = 0;
    for source in ["src", "crates/core/src"] {
        for (path, code) in modules_of(&source_tree().join(source)) {
            if path[0] == SHOWN_TO_TESTS {
                continue;
            }
            for to in used_in(&code, &path) {
                edges += 1;
                wrong.extend(forbidden(&path[0], &to).map(|what| format!("{source}/{}: {what}", path.join("/"))));
            }
        }
    }
    assert!(edges > 50, "only {edges} edges were found: the reader of imports is broken");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Otherwise an import would be read as one of nothing.
#[test]
fn other_crates_of_the_workspace_are_named_at_the_root_alone() {
    for source in ["src", "crates/core/src", "crates/store/src"] {
        for (path, code) in modules_of(&source_tree().join(source)) {
            let named = tokens(&code)
                .into_iter()
                .find(|token| ["granulo_core", "granulo_store", "granulo_sys"].contains(token));
            assert_eq!(named, None, "{source}/{} goes past lib.rs", path.join("/"));
        }
    }
}

#[test]
fn every_module_of_the_crates_is_in_a_layer() {
    let mut modules = vec!["store".to_owned()];
    for source in ["src/lib.rs", "crates/core/src/lib.rs"] {
        modules.extend(declared(&code_only(&fs::read_to_string(source_tree().join(source)).unwrap())));
    }
    assert!(modules.len() >= 16, "{modules:?}");
    modules.retain(|module| module != SHOWN_TO_TESTS);
    for module in modules {
        assert!(layer(&module).is_some(), "{module} is in no layer");
    }
}

fn wing(module: &str) -> Option<usize> {
    WINGS.iter().position(|wings| wings.contains(&module))
}

/// Names that the store's `lib.rs` re-exports from its wings, with the wing: `Key` comes from `format`.
fn given_at_the_root(code: &str) -> BTreeMap<String, String> {
    let mut given = BTreeMap::new();
    let tokens = tokens(code);
    for statement in tokens.split(|token| *token == ";") {
        let Some(at) = statement.iter().position(|token| *token == "use") else { continue };
        let Some(from) = statement.get(at + 1).filter(|name| wing(name).is_some()) else { continue };
        for (index, name) in statement.iter().enumerate().skip(at + 2) {
            let is_last = [None, Some(&","), Some(&"}")].contains(&statement.get(index + 1));
            if is_last && name.starts_with(char::is_alphabetic) {
                given.insert((*name).to_owned(), (*from).to_owned());
            }
        }
    }
    given
}

#[test]
fn wings_of_the_store_use_only_wings_below_their_own() {
    let source = source_tree().join("crates/store/src");
    let root = code_only(&fs::read_to_string(source.join("lib.rs")).unwrap());
    let given = given_at_the_root(&root);
    assert!(given.len() > 30 && given["Key"] == "format", "{given:?}");
    let mut upward = BTreeSet::new();
    let mut edges = 0;
    for (path, code) in modules_of(&source) {
        let from = path[0].as_str();
        if TEST_SUPPORT.contains(&from) {
            continue;
        }
        assert!(wing(from).is_some(), "{from} is in no wing");
        for to in used_in(&code, &path) {
            let to = given.get(&to).unwrap_or(&to).as_str();
            // What the root itself defines, such as `Store`, is shared by all wings.
            let is_of_the_root = to.starts_with(char::is_uppercase);
            if to == from || is_of_the_root || CORE.contains(&to) || TEST_SUPPORT.contains(&to) {
                continue;
            }
            edges += 1;
            assert!(wing(to).is_some(), "{} uses {to}, which is in no wing", path.join("/"));
            if wing(from) <= wing(to) {
                upward.insert((path[..path.len().min(2)].join("/"), to.to_owned()));
            }
        }
    }
    assert!(edges > 50, "only {edges} edges were found: the reader of imports is broken");
    assert!(upward.is_empty(), "these use a wing that is not below theirs: {upward:#?}");
}

#[test]
fn modules_of_the_python_package_use_only_layers_below_their_own() {
    let level = |module: &str| PYTHON.iter().position(|modules| modules.contains(&module));
    let mut edges = 0;
    for (path, code) in modules_of(&source_tree().join("crates/python/src")) {
        let own = level(&path[0]);
        assert!(own.is_some(), "{} is in no layer of the Python package", path[0]);
        for to in used_in(&code, &path) {
            edges += 1;
            let is_below = level(&to).is_some_and(|lower| Some(lower) < own);
            assert!(is_below || to == path[0], "{} uses {to}, which is in no layer below its own", path.join("/"));
        }
    }
    assert!(edges > 30, "only {edges} edges were found: the reader of imports is broken");
}

/// Otherwise a build of something else would need Python.
#[test]
fn nothing_uses_the_python_package() {
    let read =
        |manifest: &str| -> toml::Table { fs::read_to_string(source_tree().join(manifest)).unwrap().parse().unwrap() };
    let root = read("Cargo.toml");
    let members = |which: &str| root["workspace"][which].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
    assert!(members("members").any(|name| name == "crates/python"));
    assert!(members("default-members").all(|name| name != "crates/python"));
    let others = members("members").filter(|name| *name != "crates/python").map(|name| format!("{name}/Cargo.toml"));
    let separate = ["fuzz", "benchmarks/store", "benchmarks/index"].map(|name| format!("{name}/Cargo.toml"));
    for manifest in others.chain(separate).chain(["Cargo.toml".to_owned()]) {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let used = read(&manifest).get(kind).is_some_and(|table| table.get("granulo-python").is_some());
            assert!(!used, "{manifest} names the Python package among its {kind}");
        }
    }
}

#[test]
fn the_reader_of_imports_sees_every_kind_of_path() {
    let code = r##"
        //! crate::cli in a comment
        /* crate::cli /* nested */ crate::cli */
        use crate::{distribution::{self, Cell}, units, error::{Error, Result}};
        use super::measure::Measure;
        fn f<'a>(x: &'a str) -> crate::scan::Stat { let c = '"'; let d = '\''; "crate::cli"; r#"crate::"cli"# ; b"crate::cli" }
        macro_rules! m { () => { $crate::plan::up() } }
        mod tests { use super::*; use super::super::super::report; fn g() { crate::io::x(); } }
    "##;
    let used: Vec<String> = used(&code_only(code), &["survey", "file"]).into_iter().collect();
    assert_eq!(used, ["distribution", "error", "io", "plan", "report", "scan", "units"]);
    // In `survey/mod.rs` one step up is the crate.
    assert!(super::layers::used("use super::cli::x;", &["survey"]).contains("cli"));
    assert!(super::layers::used("use super::cli::x;", &["survey", "file"]).is_empty());
}

#[test]
fn the_rule_tells_the_right_edges_from_the_wrong_ones() {
    for (from, to) in [
        ("cli", "units"),
        ("survey", "scan"),
        ("error", "units"),
        ("distribution", "distribution"),
        ("report", "survey"),
    ] {
        assert_eq!(forbidden(from, to), None);
    }
    for (from, to) in
        [("units", "error"), ("scan", "plan"), ("distribution", "scan"), ("survey", "report"), ("plan", "util")]
    {
        assert!(forbidden(from, to).is_some(), "{from} may not use {to}");
    }
}
