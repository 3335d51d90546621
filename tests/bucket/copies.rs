//! Other people's tools on the objects of a store: they list them, and what they have copied is a store.

use std::ffi::OsString;
use std::process::Command;

use serde_json::Value;

use crate::args;
use crate::harness::{finish, has_program, skip};
use crate::model::Model;
use crate::on_each_server;
use crate::place::{Place, bytes};
use crate::servers::Server;

/// A store with small and large objects, some of them replaced.
fn filled(server: &Server) -> (Place<'_>, Model) {
    let place = Place::new(server);
    let mut model = Model::default();
    let root = place.path("tree");
    std::fs::create_dir(&root).unwrap();
    for number in 0..200_u64 {
        let (key, content) = (format!("{number:03}"), bytes(number, if number < 4 { 1_500_000 } else { 4000 }));
        std::fs::write(root.join(&key), &content).unwrap();
        model.acknowledged(&key, &content);
    }
    place.run_on("import", args!["--quiet", &root]).ended(0);
    place.put("007", b"replaced").ended(0);
    model.acknowledged("007", b"replaced");
    (place, model)
}

/// The objects of a store as boto3 lists them: pairs of key and storage class. `None`, with the reason reported,
/// without it.
fn listed_by_boto3(place: &Place<'_>) -> Option<Vec<(String, String)>> {
    const LIST: &str = "import boto3, json, sys\n\
        pages = boto3.client('s3').get_paginator('list_objects_v2').paginate(Bucket=sys.argv[1], Prefix=sys.argv[2])\n\
        found = [[o['Key'], o.get('StorageClass', 'STANDARD')] for page in pages for o in page.get('Contents', [])]\n\
        print(json.dumps(found))";
    let has_boto3 = |python: &&str| {
        Command::new(python).args(["-c", "import boto3"]).output().is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has_boto3) else {
        skip("it needs python3 with boto3 (pip install boto3, or Debian: python3-boto3)");
        return None;
    };
    let mut command = place.with_server(Command::new(python));
    let prefix = format!("{}/", place.prefix);
    let listed = finish(command.args(["-c", LIST, place.server.setting("BUCKET"), &prefix])).ended(0).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    Some(listed.as_array().unwrap().iter().map(|object| (text(&object[0]), text(&object[1]))).collect())
}

/// Letters, digits, and little else: names that need no escaping anywhere.
fn is_sane(name: &str) -> bool {
    let is_plain = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    name.len() <= 200 && name.split('/').all(is_plain)
}

fn names_and_classes_are_sane(server: &Server) {
    let (place, _) = filled(server);
    let Some(objects) = listed_by_boto3(&place) else { return };
    assert!(!objects.is_empty() && objects.len() < 50, "{objects:?}");
    for (name, _) in &objects {
        assert!(is_sane(name), "{name}");
    }
    let classes = ["FAST_CLASS", "SLOW_CLASS"].map(|name| server.setting(name));
    for class in classes {
        assert!(objects.iter().any(|(_, found)| found == class), "nothing in {class}: {objects:?}");
    }
    assert!(objects.iter().all(|(_, class)| classes.contains(&class.as_str())), "{objects:?}");
}

/// Another place in the bucket, with what a program copied there.
fn copied<'a>(place: &Place<'a>, program: &str, arguments: &dyn Fn(&str, &str) -> Vec<OsString>) -> Option<Place<'a>> {
    if !has_program(program) {
        skip(&format!("it needs {program}"));
        return None;
    }
    let copy = Place::at(place.server, format!("{}-copied-by-{program}", place.prefix));
    finish(place.with_server(Command::new(program)).args(arguments(&place.prefix, &copy.prefix))).ended(0);
    Some(copy)
}

/// A copy is a store of its own, for reading and for writing.
#[track_caller]
fn is_the_same(copy: &Place<'_>, mut model: Model) {
    model.compare(copy);
    copy.put("more", b"more").ended(0);
    model.acknowledged("more", b"more");
    model.compare(copy);
}

fn what_the_aws_tool_copied_is_a_store(server: &Server) {
    let (place, model) = filled(server);
    let bucket = server.setting("BUCKET");
    let sync = |from: &str, to: &str| {
        args!["s3", "sync", "--quiet", format!("s3://{bucket}/{from}"), format!("s3://{bucket}/{to}")]
    };
    let Some(copy) = copied(&place, "aws", &sync) else { return };
    is_the_same(&copy, model);
}

/// By way of a directory on this machine, and back.
fn what_rclone_copied_is_a_store(server: &Server) {
    let (place, model) = filled(server);
    let bucket = server.setting("BUCKET");
    let remote = format!(":s3,provider=Other,env_auth=true,endpoint='{}':", server.setting("AWS_ENDPOINT_URL"));
    let aside = place.path("aside");
    let copy = |from: OsString, to: OsString| args!["copy", "--config", "/dev/null", "--checksum", from, to];
    let there = |prefix: &str| OsString::from(format!("{remote}{bucket}/{prefix}"));
    if copied(&place, "rclone", &|from, _| copy(there(from), aside.clone().into())).is_none() {
        return;
    }
    let Some(copy) = copied(&place, "rclone", &|_, to| copy(aside.clone().into(), there(to))) else { return };
    is_the_same(&copy, model);
}

on_each_server!(names_and_classes_are_sane, what_the_aws_tool_copied_is_a_store, what_rclone_copied_is_a_store,);
