//! Files beside each other do not use each other in a circle. This test reads the source, not its documentation.
//!
//! A file uses another if one of its paths (`crate::…`, `super::…`, `self::…`, in `use` or anywhere else) leads into it,
//! also by a name that a module between re-exports. Between two files this is an edge between *siblings*: the modules
//! below their nearest common module. A module and those inside it belong together and may use each other. Tests
//! (`#[cfg(test)]`) do not count, nor does what only methods connect: `impl` blocks of one type in several files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::harness::source_tree;
use crate::layers::{code_only, modules_of, tokens};

/// Of one crate, by path: `["survey", "file"]`, and `[]` for its root.
type Modules = BTreeMap<Vec<String>, Module>;

#[derive(Default)]
struct Module {
    /// Tokens of the code, without what is compiled only for tests.
    code: Vec<String>,
    /// Names that it imports, with their full paths.
    imports: BTreeMap<String, Vec<String>>,
}

/// The modules of a crate.
fn modules_in(source: &str) -> Modules {
    let source = source_tree().join(source);
    let root = (Vec::new(), code_only(&fs::read_to_string(source.join("lib.rs")).unwrap()));
    product_modules(modules_of(&source).into_iter().chain([root]).collect())
}

/// Modules from files with their paths, without those that exist only in tests.
fn product_modules(files: Vec<(Vec<String>, String)>) -> Modules {
    let mut tests = BTreeSet::new();
    let mut modules = Modules::new();
    for (path, code) in &files {
        let (code, declared) = without_tests(&tokens(code));
        tests.extend(declared.into_iter().map(|name| joined(path, &name)));
        modules.insert(path.clone(), Module { code, imports: BTreeMap::new() });
    }
    modules.retain(|path, _| !(1..=path.len()).any(|length| tests.contains(&path[..length])));
    let paths: BTreeSet<Vec<String>> = modules.keys().cloned().collect();
    for (path, module) in &mut modules {
        module.imports = imports(&module.code, path, &paths);
    }
    modules
}

fn joined(path: &[String], name: &str) -> Vec<String> {
    path.iter().map(String::as_str).chain([name]).map(str::to_owned).collect()
}

/// The tokens without items behind `#[cfg(test)]` and the like, and the names of modules among those.
fn without_tests(tokens: &[&str]) -> (Vec<String>, Vec<String>) {
    let (mut kept, mut declared) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let end = if tokens[at] == "#" { closing(tokens, at + 1) } else { at };
        let attribute = &tokens[at..end];
        if attribute.get(2) == Some(&"cfg") && attribute.contains(&"test") && !attribute.contains(&"not") {
            let item = end;
            at = item_end(tokens, item);
            if let Some(name) = tokens[item..at].iter().position(|token| *token == "mod") {
                declared.push(tokens[item + name + 1].to_owned());
            }
        } else {
            kept.push(tokens[at].to_owned());
            at += 1;
        }
    }
    (kept, declared)
}

/// Behind the bracket that closes the one at `at`; `at` itself if none opens there.
fn closing<T: AsRef<str>>(tokens: &[T], at: usize) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token.as_ref() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if index == at { at } else { index + 1 };
        }
    }
    tokens.len()
}

/// Behind the item, field or statement at `at`: its `;` or `,`, or its block.
fn item_end(tokens: &[&str], mut at: usize) -> usize {
    while at < tokens.len() {
        match tokens[at] {
            ";" | "," => return at + 1,
            "{" => return closing(tokens, at),
            "(" | "[" => at = closing(tokens, at),
            "}" => return at,
            _ => at += 1,
        }
    }
    at
}

/// The paths that a tree of paths stands for, each from where the tree begins: `a::{b, c as d}` is `a::b` and `a::c`,
/// with the names by which they are then known.
fn expand(tokens: &[String], at: usize, before: &[String], paths: &mut Vec<(Vec<String>, String)>) -> usize {
    let mut path = before.to_vec();
    let mut at = at;
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    let next = expand(tokens, at, &path, paths);
                    at = if tokens.get(next).is_some_and(|token| token == ",") { next + 1 } else { next.max(at + 1) };
                }
                return at + 1;
            }
            Some("self") if !path.is_empty() => at += 1,
            Some(name) if name == "*" || name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                path.push(name.to_owned());
                at += 1;
            }
            _ => {}
        }
        if tokens.get(at).is_some_and(|token| token == "::") {
            at += 1;
            continue;
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if tokens.get(at).is_some_and(|token| token == "as") {
            name.clone_from(&tokens[at + 1]);
            at += 2;
        }
        paths.push((path, name));
        return at;
    }
}

/// Where a path that is written in the module `here`, `inline` modules deep, begins at the crate.
fn absolute(path: &[String], here: &[String], inline: usize) -> Option<Vec<String>> {
    let first = path.first()?;
    let (base, rest): (&[String], _) = match first.as_str() {
        "crate" => (&[], &path[1..]),
        "self" => (here, &path[1..]),
        "super" => {
            let climbed = path.iter().take_while(|name| *name == "super").count();
            (&here[..here.len().checked_sub(climbed.saturating_sub(inline))?], &path[climbed..])
        }
        _ => return None,
    };
    Some(base.iter().chain(rest).cloned().collect())
}

/// Full paths of everything in the code that begins with `crate`, `self` or `super`.
fn paths_in(code: &[String], here: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    // Brace depths at which inline modules began.
    let (mut depth, mut inline) = (0usize, Vec::new());
    for (at, token) in code.iter().enumerate() {
        match token.as_str() {
            "mod" if code.get(at + 2).is_some_and(|token| token == "{") => inline.push(depth),
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if inline.last() == Some(&depth) {
                    inline.pop();
                }
            }
            "crate" | "super" | "self" if code.get(at + 1).is_some_and(|token| token == "::") => {
                if at > 0 && code[at - 1] == "::" {
                    continue;
                }
                let mut paths = Vec::new();
                expand(code, at, &[], &mut paths);
                found.extend(paths.iter().filter_map(|(path, _)| absolute(path, here, inline.len())));
            }
            _ => {}
        }
    }
    found
}

/// Names that the module imports from this crate.
fn imports(code: &[String], here: &[String], modules: &BTreeSet<Vec<String>>) -> BTreeMap<String, Vec<String>> {
    let mut imports = BTreeMap::new();
    for at in code.iter().enumerate().filter(|(_, token)| *token == "use").map(|(at, _)| at) {
        let mut paths = Vec::new();
        expand(code, at + 1, &[], &mut paths);
        for (path, name) in paths {
            let below = path.first().map(|first| joined(here, first)).is_some_and(|path| modules.contains(&path));
            let full = if below { Some([here, &path[..]].concat()) } else { absolute(&path, here, 0) };
            imports.extend(full.map(|full| (name, full)));
        }
    }
    imports
}

/// The module that a full path leads into.
fn resolve(path: &[String], modules: &Modules, hops: usize) -> Vec<String> {
    let mut module: Vec<String> = Vec::new();
    for (at, name) in path.iter().enumerate() {
        let inside = joined(&module, name);
        if modules.contains_key(&inside) {
            module = inside;
            continue;
        }
        match modules[&module].imports.get(name) {
            Some(elsewhere) if hops > 0 => {
                return resolve(&[elsewhere, &path[at + 1..]].concat(), modules, hops - 1);
            }
            _ => break,
        }
    }
    module
}

/// By module: which of the modules directly in it uses which other, with a witness.
type Edges = BTreeMap<Vec<String>, BTreeMap<String, BTreeMap<String, String>>>;

fn edges(modules: &Modules) -> Edges {
    let mut edges = Edges::new();
    for (from, module) in modules {
        for path in paths_in(&module.code, from) {
            let to = resolve(&path, modules, 8);
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(user), Some(used)) = (from.get(common), to.get(common)) {
                let witness = format!("{} uses {}", from.join("::"), path.join("::"));
                let siblings = edges.entry(from[..common].to_vec()).or_default();
                siblings.entry(user.clone()).or_default().entry(used.clone()).or_insert(witness);
            }
        }
    }
    edges
}

/// Groups of siblings that reach each other.
fn circles(uses: &BTreeMap<String, BTreeMap<String, String>>) -> BTreeSet<Vec<String>> {
    let reached_from = |start: &String| {
        let (mut reached, mut pending) = (BTreeSet::new(), vec![start]);
        while let Some(module) = pending.pop() {
            for next in uses.get(module).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(next.clone()) {
                    pending.push(next);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        uses.keys().map(|module| (module, reached_from(module))).collect();
    let mut circles = BTreeSet::new();
    for (module, others) in &reached {
        if others.contains(*module) {
            let around = others.iter().filter(|other| reached.get(other).is_some_and(|back| back.contains(*module)));
            circles.insert(around.cloned().collect());
        }
    }
    circles
}

#[test]
fn siblings_do_not_use_each_other_in_a_circle() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for source in
        ["src", "crates/bucket/src", "crates/core/src", "crates/store/src", "crates/sys/src", "crates/python/src"]
    {
        for (parent, uses) in edges(&modules_in(source)) {
            seen += uses.values().map(BTreeMap::len).sum::<usize>();
            for circle in circles(&uses) {
                let place = format!("{source}/{}", parent.join("/"));
                let inside = |used: &&String| circle.contains(*used);
                let witnesses = circle.iter().flat_map(|user| uses[user].iter().filter(|(used, _)| inside(used)));
                let witnesses: Vec<&str> = witnesses.map(|(_, witness)| witness.as_str()).collect();
                wrong.push(format!("{place}: {}\n    {}", circle.join(", "), witnesses.join("\n    ")));
            }
        }
    }
    assert!(seen > 300, "only {seen} edges were found: the reader of paths is broken");
    assert!(wrong.is_empty(), "move what both need into a third module:\n{}", wrong.join("\n"));
}

#[test]
fn the_reader_of_paths_finds_circles_and_nothing_else() {
    let found = |files: &[(&str, &str)]| {
        let files = files.iter().map(|(path, text)| {
            let path = path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            (path, code_only(text))
        });
        let edges = edges(&product_modules(files.collect()));
        let circles = edges.iter().flat_map(|(parent, uses)| {
            circles(uses).into_iter().map(|circle| format!("{}: {}", parent.join("/"), circle.join(" ")))
        });
        circles.collect::<Vec<_>>()
    };
    let root = ("", "mod a; mod b; pub use a::one::Given;");
    // Directly; around; by a name that a module between re-exports; without `use`; below the siblings.
    for (one, two, three) in [
        ("use super::two::T;", "use super::one::O;", ""),
        ("use crate::a::{two::T, three};", "use super::{self, one::{self, O}};", ""),
        ("use super::two::T;", "use crate::a::three;", "fn f() -> crate::Given {}"),
        ("mod inside { use super::super::two::T; }", "#[cfg(feature = \"x\")] use super::One;", ""),
    ] {
        let a = ("a", "mod one; mod two; mod three; use two::{T as Other, U}; pub use one::O as One;");
        let found = found(&[root, a, ("a/one", one), ("a/two", two), ("a/three", three)]);
        assert_eq!(found.len(), 1, "{one} {two} {three}: {found:?}");
        assert!(found[0].starts_with("a: one "), "{found:?}");
    }
    let below = [root, ("a", ""), ("b", ""), ("a/one", "use crate::b::two;"), ("b/two", "use crate::a::one;")];
    assert_eq!(found(&below), [": a b"]);
    // One way; a module and what is in it; tests.
    for (a, one, two) in [
        ("mod one; mod two;", "use super::two::T; fn f() { super::two::g() }", "use super::two::T;"),
        ("mod one; mod two; use one::O;", "use super::{A, B};", "use crate::a::A;"),
        ("mod one; #[cfg(test)] mod two;", "use super::two;", "use super::one;"),
        ("mod one; mod two;", "use super::two;", "#[cfg(test)] mod tests { use super::super::one; } fn f() {}"),
        (
            "mod one; mod two;",
            "use super::two;",
            "#[cfg(all(test, x))] use super::one; #[cfg(test)] fn f() { super::one::g(); }",
        ),
    ] {
        assert_eq!(found(&[root, ("a", a), ("a/one", one), ("a/two", two)]), Vec::<String>::new(), "{one} {two}");
    }
}
