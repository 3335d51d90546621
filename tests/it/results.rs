//! Results of every command: each is printed again by `show`, as JSON and CSV, and becomes a page.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::args;
use crate::growth::date;
use crate::harness::{complains, finish, granulo, run, sandbox, source_tree, write_file};

/// The data of a page.
pub fn data(page: &Path) -> Value {
    let text = fs::read_to_string(page).unwrap();
    assert!(!text.contains("{{"), "a part of the template was not filled");
    let (_, data) = text.split_once("id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_document_without_a_report_of_its_own_is_facts_and_tables() {
    let sandbox = sandbox();
    let [source, store, export, result, page] =
        ["source", "store", "export", "result.json", "page.html"].map(|name| sandbox.path().join(name));
    write_file(source.join("a.txt"), 1000);
    write_file(source.join("b/c.bin"), 70_000);
    run(args!["store", "init", &store]).ended(0);
    run(args!["store", "import", &store, &source, "--quiet"]).ended(0);
    run(args!["store", "ls", &store, "-R", "-o", &result]).ended(0);
    let shown = run(args!["show", &result]).ended(0).text();
    assert!(shown.contains("Store ls") && shown.contains("3 rows, printed by --csv=entries"), "{shown}");
    assert_eq!(run(args!["show", &result, "--json"]).ended(0).stdout, fs::read(&result).unwrap());
    let csv = run(args!["show", &result, "--csv=entries"]).ended(0).text();
    assert!(csv.starts_with("name,key,type,size_bytes,") && csv.contains(",b/c.bin,file,70000,"), "{csv}");
    run(args!["show", &result, "--report", &page]).ended(0);
    let page_data = data(&page);
    assert_eq!(page_data["document"]["tables"][0]["name"], "entries");
    assert_eq!(page_data["document"]["tables"][0]["row_count"], 3);
    run(args!["store", "export", &store, &export, "--quiet", "-o", &result]).ended(0);
    run(args!["report", &result, "vu-2005", "-o", &page]).ended(0);
    let parts = data(&page)["parts"].clone();
    assert_eq!((&parts[0]["kind"], &parts[1]["kind"]), (&"survey".into(), &"fields".into()));
    // Of which store it is, and not in which file.
    assert!(parts[1]["title"].as_str().unwrap().starts_with(&format!("Store export: {} on ", store.display())));
    // A table without rows is no error, as scripts ask whether there are any.
    run(args!["store", "check", &store, "-o", &result]).ended(0);
    assert_eq!(run(args!["show", &result, "--csv=problems"]).ended(0).text(), "");
    run(args!["show", &result, "--csv=nothing"]).ended(2);
    fs::remove_file(&page).unwrap();
    let refused = run(args!["show", &result, "--top", "3", "--report", &page]).ended(2);
    assert!(refused.said().contains("accept only -o, --json") && !page.exists(), "{}", refused.said());
    fs::write(&result, "{\"schema\": \"granulo/store-ls/99\"}").unwrap();
    assert!(run(args!["show", &result]).ended(2).said().contains("it has version 99"));
    // A document that could send sequences to a terminal is refused.
    fs::write(&result, "{\"schema\": \"granulo/store-ls/1\", \"key\": \"\\u001b[31m\"}").unwrap();
    assert!(run(args!["show", &result]).ended(2).said().contains("result.json"));
}

#[test]
fn allocations_are_shown_as_they_were_printed_and_become_a_curve() {
    let sandbox = sandbox();
    let [result, page, again] = ["result.json", "page.html", "again.html"].map(|name| sandbox.path().join(name));
    let curve = ["allocate", "zfs:vdev=raidz2,disks=9,recordsize=8K", "--up-to", "64KiB"];
    let printed = run(args![curve[0], curve[1], curve[2], curve[3], "-o", &result, "--report", &page]).ended(0);
    assert_eq!(printed.stdout, run(curve).ended(0).stdout);
    assert_eq!(run(args!["show", &result]).ended(0).stdout, printed.stdout);
    assert_eq!(run(args!["show", &result, "--json"]).ended(0).stdout, fs::read(&result).unwrap());
    let found = data(&page);
    assert_eq!(found["allocations"][0], serde_json::from_slice::<Value>(&fs::read(&result).unwrap()).unwrap());
    run(args!["report", &result, "-o", &again]).ended(0);
    assert_eq!(data(&again)["allocations"], found["allocations"]);
    assert!(run(args!["show", &result, "--report", &result]).ended(2).said().contains("would replace a result"));
    // Allocated bytes of the largest size do not fit into 64 bits.
    let largest = u64::MAX.to_string();
    run(args!["allocate", "ext4", &largest, "-o", &result, "--report", &page]).ended(0);
    assert!(fs::read_to_string(&page).unwrap().contains("\"allocated_bytes\":18446745"));
}

#[test]
fn the_status_of_a_store_is_printed_as_it_was_written() {
    let sandbox = sandbox();
    let [store, result] = ["store", "result.json"].map(|name| sandbox.path().join(name));
    run(args!["store", "init", &store]).ended(0);
    run(args!["store", "status", &store, "-o", &result]).ended(0);
    assert_eq!(run(args!["show", &result, "--json"]).ended(0).stdout, fs::read(&result).unwrap());
    let csv = run(args!["show", &result, "--csv=devices"]).ended(0).text();
    assert!(csv.starts_with("number,class,state,path,"), "{csv}");
}

/// The data of a page but for the time.
fn shown(page: &Path) -> Value {
    let mut shown = data(page);
    shown.as_object_mut().unwrap().remove("generated_at");
    shown
}

#[test]
fn comparisons_have_a_page_and_text_of_their_own() {
    let sandbox = sandbox();
    let [tree, old, new, result, page, again] =
        ["tree", "old.json", "new.json", "cmp.json", "page.html", "again.html"].map(|name| sandbox.path().join(name));
    write_file(tree.join("stays/a.txt"), 1000);
    run(args!["survey", &tree, "--quiet", "-o", &old]).ended(0);
    write_file(tree.join("new/b.bin"), 70_000);
    run(args!["survey", &tree, "--quiet", "-o", &new]).ended(0);
    date(&old, 10, 0);
    date(&new, 0, 0);
    for sources in [args![&old, &new], args!["vu-1984", "vu-2005", &new]] {
        let printed = run([args!["compare", "-o", &result, "--report", &page], sources].concat()).ended(0);
        assert_eq!(run(args!["show", &result]).ended(0).stdout, printed.stdout);
        assert_eq!(run(args!["show", &result, "--json"]).ended(0).stdout, fs::read(&result).unwrap());
        run(args!["report", &result, "-o", &again]).ended(0);
        assert_eq!(shown(&page), shown(&again));
        assert_eq!(data(&page)["comparison"], serde_json::from_slice::<Value>(&fs::read(&result).unwrap()).unwrap());
    }
    assert_eq!(data(&page)["title"], "3 populations compared");
    run(args!["compare", &old, &new, "--report", &page]).ended(0);
    let found = data(&page);
    let title = found["title"].as_str().unwrap();
    assert!(title.starts_with(tree.to_str().unwrap()) && title.ends_with(": 2026-02-18 to 2026-02-28"), "{title}");
    assert!(found["words"][0].as_str().unwrap().starts_with("In 10 days between the surveys: +1 file"));
    let first = &found["comparison"]["growth"]["directories"]["by_size"][0]["path"];
    assert!(first.as_str().unwrap().ends_with("/new"), "{first}");
    let csv = run(args!["show", &result, "--csv=sources"]).ended(0).text();
    assert_eq!(csv.lines().count(), 4, "{csv}");
}

#[test]
fn checks_have_a_page_and_text_of_their_own_and_name_the_store() {
    let sandbox = sandbox();
    let [store, result, page, again] =
        ["store", "check.json", "page.html", "again.html"].map(|name| sandbox.path().join(name));
    run(args!["store", "init", &store]).ended(0);
    let printed = run(args!["store", "check", &store, "-o", &result, "--report", &page]).ended(0).text();
    let text = run(args!["show", &result]).ended(0).text();
    assert!(text.starts_with(&format!("Check of {} on ", store.display())), "{text}");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&text).contains(&words(&printed)), "{text} of {printed}");
    run(args!["report", &result, "-o", &again]).ended(0);
    assert_eq!(shown(&page), shown(&again));
    let check = &data(&page)["check"];
    assert_eq!((&check["home"], &check["problem_count"]), (&store.to_str().unwrap().into(), &0.into()));
    assert!(check["host"].is_string() && check["written_at"].as_str().unwrap().ends_with('Z'), "{check}");

    // With a problem: all but the advice.
    run(args!["store", "put", &store, "file", "Cargo.toml"]).ended(0);
    let segment = fs::read_dir(store.join("segments")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(9).position(|window| window == b"[package]").unwrap();
    bytes[at] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let printed = run(args!["store", "check", "--deep", &store, "-o", &result]).ended(1).text();
    let text = run(args!["show", &result]).ended(0).text();
    let problem = words(&printed).rsplit_once(" (").unwrap().0.to_owned();
    assert!(problem.contains(", bytes ") && words(&text).contains(&problem), "{text} of {printed}");
}

#[test]
fn results_say_of_which_machine_and_day_they_are() {
    let sandbox = sandbox();
    let [tree, survey, page] = ["tree", "survey.json", "page.html"].map(|name| sandbox.path().join(name));
    write_file(tree.join("a.txt"), 1000);
    run(args!["survey", &tree, "--name", "data", "--quiet", "-o", &survey]).ended(0);
    date(&survey, 0, 0);
    let mut plans = Vec::new();
    for host in ["alpha", "beta"] {
        let [source, plan] =
            [format!("{host}.json"), format!("plan-{host}.json")].map(|name| sandbox.path().join(name));
        let mut document: Value = serde_json::from_slice(&fs::read(&survey).unwrap()).unwrap();
        document["machines"][0]["host"] = host.into();
        fs::write(&source, document.to_string()).unwrap();
        let printed = run(args!["plan", &source, "--model", "ext4", "-o", &plan]).ended(0).text();
        assert!(printed.starts_with(&format!("data on {host}, 2026-02-28\n")), "{printed}");
        let written: Value = serde_json::from_slice(&fs::read(&plan).unwrap()).unwrap();
        assert_eq!(written["source"]["host"], host);
        assert!(written["source"]["taken_at"].as_str().unwrap().starts_with("2026-02-28T"), "{written}");
        run(args!["show", &source, "--report", &page]).ended(0);
        assert_eq!(data(&page)["title"], format!("data on {host}, 2026-02-28"));
        plans.push(plan);
    }
    run(args!["report", &plans[0], &plans[1], "vu-1984", "vu-2005", "-o", &page]).ended(0);
    let found = data(&page);
    // Surveys are one part, and each of them counts.
    assert_eq!((&found["title"], found["parts"].as_array().unwrap().len()), (&"4 results".into(), 3));
    let titles: Vec<&str> =
        found["parts"].as_array().unwrap().iter().map(|part| part["title"].as_str().unwrap()).collect();
    assert_eq!(titles[1..], ["Plan for data on alpha, 2026-02-28", "Plan for data on beta, 2026-02-28"]);
}

#[test]
fn a_source_is_not_replaced_by_a_result() {
    let sandbox = sandbox();
    let [tree, one, two, made] = ["tree", "one.json", "two.json", "made"].map(|name| sandbox.path().join(name));
    write_file(tree.join("a.txt"), 1000);
    for survey in [&one, &two] {
        run(args!["survey", &tree, "--quiet", "-o", survey]).ended(0);
    }
    let before = fs::read(&one).unwrap();
    for arguments in [
        args!["compare", &one, &two, "-o", &one],
        args!["compare", &two, &one, "--report", &one],
        args!["merge", &one, "-o", &one],
        args!["plan", &one, "--model", "ext4", "-o", &one],
        args!["plan", &one, "--model", "ext4", "--report", &one],
        args!["generate", &one, &made, "--files", "3", "--dry-run", "-o", &one],
        args!["show", &one, "--fsstats", &one],
        args!["show", &one, "--report", &one],
    ] {
        let ran = run(&arguments).ended(2);
        assert!(ran.said().contains("would replace a result"), "{arguments:?}: {}", ran.said());
        assert!(fs::read(&one).unwrap() == before, "{arguments:?}");
    }
    // Nor what is read besides, or by a command that measures.
    let [trace, other, place] = ["trace", "other", "place"].map(|name| sandbox.path().join(name));
    fs::write(&trace, "of weeks").unwrap();
    fs::write(&other, "of weeks").unwrap();
    for arguments in [
        args!["trace", "read", &trace, "-o", &trace],
        args!["trace", "read", &trace, "--report", &trace],
        args!["cache", &trace, "-o", &trace],
        args!["cache", &trace, "--beside", &other, "--report", &other],
        args!["plan", "vu-2005", "--trace", &trace, "-o", &trace],
        args!["plan", "vu-2005", "--prices", &other, "--report", &other],
        args!["bench", "pack", &place, "--source", &other, "-o", &other],
        args!["bench", "metadata", &place, "--source", &other, "--report", &other],
    ] {
        let ran = run(&arguments).ended(2);
        assert!(ran.said().contains("would replace a result"), "{arguments:?}: {}", ran.said());
        for read in [&trace, &other] {
            assert_eq!(fs::read_to_string(read).unwrap(), "of weeks", "{arguments:?}");
        }
    }
    assert!(!place.exists());
    // What is no file can be both.
    run(args!["show", "/dev/null", "--report", "/dev/null"]).ended(2);
    run(args!["compare", &one, &two, "-o", "/dev/stdout"]).ended(0);
}

#[test]
fn show_writes_what_it_prints_as_json() {
    let sandbox = sandbox();
    let [plan, written] = ["plan.json", "written.json"].map(|name| sandbox.path().join(name));
    run(args!["plan", "vu-2005", "--model", "ext4", "-o", &plan]).ended(0);
    for source in [args!["vu-2005", "--cutoff", "4KiB"], args![&plan], args!["panasas"], args!["--list"]] {
        let printed = run([args!["show"], source.clone(), args!["--json"]].concat()).ended(0);
        let text = run([args!["show"], source.clone()].concat()).ended(0).stdout;
        assert_eq!(run([args!["show"], source, args!["-o", &written]].concat()).ended(0).stdout, text);
        assert_eq!(fs::read(&written).unwrap(), printed.stdout);
    }
    complains(&run(["show", "--list", "--cutoff", "4KiB"]).ended(2), &["the list of sources accepts only"]);
    let refused = run(args!["show", &plan, "-o", &plan]).ended(2);
    assert!(refused.said().contains("plan.json"), "{refused:?}");
}

#[test]
fn breaks_of_ages_are_all_shown() {
    let small = source_tree().join("tests/golden/small.survey.json");
    let ages = |breaks: &str, columns: &str| {
        let mut command = granulo();
        command.env("COLUMNS", columns).args(args!["show", &small, "--age-breaks", breaks]);
        finish(&mut command).ended(0)
    };
    for columns in ["60", "80", "140"] {
        let ran = ages("1,7,30,90,365,1825", columns);
        for edge in ["1 day", "1 week", "30 days", "90 days", "1 year", "5 years"] {
            assert!(ran.text().contains(edge), "{columns}: {edge}: {}", ran.text());
        }
        assert_eq!(ran.said(), "");
    }
    let sandbox = sandbox();
    let [tree, own] = ["tree", "own.json"].map(|name| sandbox.path().join(name));
    write_file(tree.join("file"), 1000);
    run(args!["survey", &tree, "-o", &own, "--age-breaks", "1,7,30"]).ended(0);
    let owners = |breaks: &str| run(args!["show", &own, "--age-breaks", breaks, "--json"]).ended(0);
    assert_eq!(owners("7").json()["where"]["owner_ages"]["breaks_days"], serde_json::json!([7]));
    assert!(owners("2,20").said().contains("only at the breaks of the survey: 1,7,30"));
}

#[test]
fn standard_output_is_not_a_dash() {
    let sandbox = sandbox();
    let in_sandbox = |arguments: &[&str]| {
        let mut command = granulo();
        finish(command.current_dir(sandbox.path()).args(arguments)).ended(2).said()
    };
    for arguments in [
        &["survey", ".", "-o", "-"][..],
        &["survey", ".", "--ncdu", "-"],
        &["show", "vu-2005", "--report", "-"],
        &["plan", "vu-2005", "--output=-"],
        &["history", "x.json", "-o-"],
        &["store", "status", "s", "--report", "-"],
        &["trace", "read", "x", "-o", "-"],
    ] {
        let said = in_sandbox(arguments);
        assert!(said.contains("--json") && said.contains("/dev/stdout"), "{arguments:?}: {said}");
    }
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
    // Nor is standard input a tree.
    let said = in_sandbox(&["survey", "-"]);
    assert!(said.contains("| granulo show -"), "{said}");
}

#[test]
fn one_file_is_not_for_two_results() {
    let sandbox = sandbox();
    let both = sandbox.path().join("both");
    for arguments in [
        args!["plan", "vu-2005", "--model", "ext4"],
        args!["allocate", "ext4", "4096"],
        args!["compare", "vu-1984", "vu-2005"],
        args!["generate", "vu-2005", sandbox.path().join("made"), "--files", "3", "--dry-run"],
    ] {
        let ran = run([arguments.clone(), args!["-o", &both, "--report", &both]].concat()).ended(2);
        assert!(ran.said().contains("two results would be written to"), "{arguments:?}: {}", ran.said());
        assert!(ran.text().is_empty() && !both.exists(), "{arguments:?}");
    }
}

#[test]
fn trees_merges_and_recordings_have_pages_too() {
    let sandbox = sandbox();
    let [tree, made, one, two, page] =
        ["tree", "made.json", "one.json", "two.json", "page.html"].map(|name| sandbox.path().join(name));
    let generate = args!["generate", "vu-2005", &tree, "--files", "50", "-o", &made, "--report", &page, "--quiet"];
    let printed = run(generate).ended(0).text();
    assert!(printed.contains("Planned: 50 files"), "{printed}");
    assert_eq!(data(&page)["document"]["kind"], "Generate");
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(&made).unwrap()).unwrap()["made"]["files"], 50);
    for survey in [&one, &two] {
        run(args!["survey", &tree, "--quiet", "-o", survey]).ended(0);
    }
    run(args!["merge", &one, "--report", &page]).ended(0);
    assert_eq!(data(&page)["sources"][0]["survey"]["counts"]["files"], 50);
    run(args!["compare", &one, &two, "--report", &page]).ended(0);
    let title = data(&page)["title"].as_str().unwrap().to_owned();
    assert!(title.starts_with(tree.to_str().unwrap()) && title.ends_with(": what grew"), "{title}");
    run(args!["show", "panasas", "--report", &page]).ended(0);
    assert_eq!(data(&page)["document"]["tables"][1]["row_count"], 65);
}
