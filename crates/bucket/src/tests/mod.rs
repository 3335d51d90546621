//! Against a server of S3 in this process: what each call requests, what each answer means, and a whole store.

use std::sync::Arc;
use std::time::Duration;

use granulo_core::error::ErrorKind;
use granulo_store::bucket::BucketOptions;
use granulo_store::objects::{Expected, ObjectError, Objects, Tag};
use granulo_store::{Attributes, Class, Key, OpenOptions, Plan, Store, Time, bucket};
use proptest::prelude::*;

use self::server::{Fault, KEY_ID, Kind, SECRET, Server};
use crate::address::Address;
use crate::objects::RemoteObjects;
use crate::variables::Variables;

mod server;

fn options(server: &Server) -> BucketOptions {
    let mut options = BucketOptions::default();
    options.endpoint = Some(server.endpoint());
    options
}

fn keys() -> Variables {
    Variables::of(&[("AWS_ACCESS_KEY_ID", KEY_ID), ("AWS_SECRET_ACCESS_KEY", SECRET)])
}

fn remote(server: &Server) -> RemoteObjects {
    RemoteObjects::connect(Address::parse("s3://bucket/some/store").unwrap(), &options(server), &keys()).unwrap()
}

/// As a store has it, probe included.
fn connected(server: &Server) -> Arc<dyn Objects> {
    crate::connect_with("s3://bucket/some/store", &options(server), &keys()).unwrap()
}

#[test]
fn one_call_is_one_request() {
    for kind in [Kind::Documented, Kind::Ceph] {
        let server = Server::start(kind);
        let objects = remote(&server);
        let first = objects.put("a", b"one").unwrap();
        assert!(matches!(objects.put("a", b"two"), Err(ObjectError::Refused)));
        let second = objects.replace("a", b"three", &Expected::Tagged(first.clone())).unwrap();
        assert!(matches!(objects.replace("a", b"x", &Expected::Tagged(first.clone())), Err(ObjectError::Refused)));
        assert!(matches!(objects.replace("b", b"x", &Expected::Tagged(first.clone())), Err(ObjectError::Refused)));
        let piece = objects.read("a", 1..100).unwrap();
        assert_eq!((piece.bytes.as_slice(), piece.head.size_bytes, &piece.head.tag), (&b"hree"[..], 5, &second));
        assert_eq!(objects.read_if_changed("a", 0..100, &second).unwrap(), None);
        assert_eq!(objects.read_if_changed("a", 0..100, &first).unwrap().unwrap().bytes, b"three");
        assert_eq!(objects.head("a").unwrap(), piece.head);
        assert!(matches!(objects.read("b", 0..1), Err(ObjectError::NotFound)));
        objects.delete("a").unwrap();
        assert!(matches!(objects.head("a"), Err(ObjectError::NotFound)));
        let requested: Vec<String> = server.requests().iter().map(|it| it.replace("some/store/", "")).collect();
        let expected = [
            "PUT a", "PUT a", "PUT a", "PUT a", "PUT b", "GET a", "GET a", "GET a", "HEAD a", "GET b", "POST ?",
            "HEAD a",
        ];
        assert_eq!(requested, expected, "{kind:?}");
    }
}

#[test]
fn a_range_behind_the_end_is_empty() {
    let server = Server::start(Kind::Documented);
    let objects = remote(&server);
    let tag = objects.put("empty", b"").unwrap();
    for range in [0..10, 5..10, 7..7] {
        let piece = objects.read("empty", range).unwrap();
        assert_eq!((piece.bytes.len(), piece.head.size_bytes, &piece.head.tag), (0, 0, &tag));
    }
}

#[test]
fn a_listing_goes_on_where_the_last_page_ended() {
    let server = Server::start(Kind::Documented);
    server.state().page = 3;
    let address = Address::parse("s3://bucket/100% st\u{f6}re").unwrap();
    let objects = RemoteObjects::connect(address, &options(&server), &keys()).unwrap();
    let names: Vec<String> = (0..8).map(|number| format!("fast/{number}")).collect();
    names.iter().for_each(|name| drop(objects.put(name, name.as_bytes()).unwrap()));
    objects.put("slow/1", b"").unwrap();
    let another = server.state().objects["100% st\u{f6}re/fast/1"].clone();
    server.state().objects.insert("100% st\u{f6}re2/fast/9".to_owned(), another);
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let page = objects.list("fast/", found.last().map(String::as_str)).unwrap();
        found.extend(page.objects.into_iter().map(|object| object.name));
        pages += 1;
        if page.is_last {
            break;
        }
    }
    assert_eq!((found, pages), (names.clone(), 3));
    server.requests();
    assert!(objects.delete_many(&names).into_iter().all(|deleted| deleted.is_ok()));
    assert_eq!(server.requests(), ["POST ?"]);
    assert!(objects.list("fast/", None).unwrap().objects.is_empty());
}

#[test]
fn each_class_is_put_where_it_was_said() {
    let server = Server::start(Kind::Documented);
    let mut options = options(&server);
    options.slow_class = Some("STANDARD_IA".to_owned());
    let address = || Address::parse("s3://bucket").unwrap();
    let objects = RemoteObjects::connect(address(), &options, &keys()).unwrap();
    objects.put_as(Class::Fast, "fast/1", b"1").unwrap();
    objects.put_as(Class::Slow, "slow/1", b"1").unwrap();
    objects.put("manifest", b"1").unwrap();
    objects.set_classes(Some("STANDARD"), None);
    objects.put_as(Class::Fast, "fast/2", b"1").unwrap();
    objects.put_as(Class::Slow, "slow/2", b"1").unwrap();
    let class = |name: &str| server.state().objects[name].class.clone();
    assert_eq!((class("fast/2").as_deref(), class("slow/2")), (Some("STANDARD"), None));
    assert_eq!((class("fast/1"), class("slow/1").as_deref(), class("manifest")), (None, Some("STANDARD_IA"), None));

    options.fast_class = Some("DEEP_ARCHIVE".to_owned());
    let error = RemoteObjects::connect(address(), &options, &keys()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
}

/// The clock here is another one.
#[test]
fn how_old_an_object_is_the_server_knows() {
    let server = Server::start(Kind::Documented);
    let objects = remote(&server);
    objects.put("manifest", b"1").unwrap();
    let age = || objects.age("manifest").unwrap();
    assert_eq!(age(), Some(Duration::ZERO));
    server.state().objects.values_mut().for_each(|stored| stored.modified = "Wed, 31 Dec 2025 22:59:50 GMT");
    assert_eq!(age(), Some(Duration::from_secs(3610)));
    assert!(matches!(objects.age("none"), Err(ObjectError::NotFound)));
}

#[test]
fn the_outcome_of_every_fault_is_known_as_far_as_it_can_be() {
    let server = Server::start(Kind::Documented);
    let objects = remote(&server);
    let outcome = |fault: Fault, name: &str| {
        server.fail_next(&[Some(fault)]);
        let put = objects.put(name, b"bytes");
        let is_there = server.state().objects.contains_key(&format!("some/store/{name}"));
        let word = match put {
            Ok(_) => "ok",
            Err(ObjectError::Refused) => "refused",
            Err(ObjectError::NotFound) => "not found",
            Err(ref error @ ObjectError::Failed(_)) if error.is_final() => "never",
            Err(ObjectError::Failed(_)) => "failed",
            Err(ObjectError::Unknown(_)) => "unknown",
        };
        (word, is_there)
    };
    assert_eq!(outcome(Fault::Status(503, "SlowDown"), "1"), ("failed", false));
    assert_eq!(outcome(Fault::Status(500, "InternalError"), "2"), ("unknown", false));
    assert_eq!(outcome(Fault::StatusAfter(500, "InternalError"), "3"), ("unknown", true));
    assert_eq!(outcome(Fault::StatusAfter(409, "ConditionalRequestConflict"), "4"), ("unknown", true));
    assert_eq!(outcome(Fault::Status(403, "AccessDenied"), "5"), ("never", false));
    assert_eq!(outcome(Fault::Twice, "6"), ("refused", true));
    assert_eq!(outcome(Fault::CutAfter, "7"), ("unknown", true));
    assert_eq!(outcome(Fault::CutBefore, "8").0, "unknown");
    assert_eq!(outcome(Fault::HalfAnswer, "9"), ("unknown", true));

    server.fail_next(&[Some(Fault::HalfAnswer)]);
    assert!(matches!(objects.read("9", 0..5), Err(ObjectError::Unknown(_))));
    assert_eq!(objects.read("9", 0..5).unwrap().bytes, b"bytes");
}

#[test]
fn nobody_listens_is_a_failure() {
    // A port that was free a moment ago, and that nobody else is given meanwhile.
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    drop(taken);
    let mut options = BucketOptions::default();
    options.endpoint = Some(format!("http://127.0.0.1:{port}"));
    let objects = RemoteObjects::connect(Address::parse("s3://bucket/a").unwrap(), &options, &keys()).unwrap();
    let error = objects.put("1", b"").unwrap_err();
    assert!(matches!(error, ObjectError::Failed(_)) && !error.is_final(), "{error}");
}

#[test]
fn who_is_refused_learns_why() {
    let server = Server::start(Kind::Documented);
    let stranger = Variables::of(&[("AWS_ACCESS_KEY_ID", "other"), ("AWS_SECRET_ACCESS_KEY", "x")]);
    let address = Address::parse("s3://bucket/a").unwrap();
    let error = RemoteObjects::connect(address, &options(&server), &stranger).unwrap().head("1").unwrap_err();
    assert!(error.is_final(), "{error}");
    let elsewhere = Address::parse("s3://other/a").unwrap();
    let error = RemoteObjects::connect(elsewhere, &options(&server), &keys()).unwrap().read("1", 0..1).unwrap_err();
    assert!(error.is_final() && error.to_string().contains("NoSuchBucket"), "{error}");
}

#[test]
fn the_endpoint_may_be_in_the_environment() {
    let server = Server::start(Kind::Documented);
    let endpoint = server.endpoint();
    let variables = Variables::of(&[
        ("AWS_ACCESS_KEY_ID", KEY_ID),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ("AWS_ENDPOINT_URL_S3", &endpoint),
    ]);
    let address = Address::parse("s3://bucket/a").unwrap();
    let objects = RemoteObjects::connect(address, &BucketOptions::default(), &variables).unwrap();
    assert!(matches!(objects.head("1"), Err(ObjectError::NotFound)));
}

#[test]
fn a_bucket_is_probed_before_it_is_relied_on() {
    let server = Server::start(Kind::Ceph);
    let objects = connected(&server);
    assert!(objects.read("manifest", 0..1).is_err());
    let first = objects.replace("manifest", b"1", &Expected::Absent).unwrap();
    // The read, five requests of the probe, the put.
    assert_eq!(server.requests().len(), 7);
    objects.replace("manifest", b"2", &Expected::Tagged(first)).unwrap();
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.state().objects.len(), 1);
}

#[test]
fn a_bucket_that_ignores_conditions_is_refused() {
    let server = Server::start(Kind::Versioned);
    let objects = connected(&server);
    for expected in [Expected::Absent, Expected::Tagged(Tag("\"0\"".to_owned()))] {
        let error = objects.replace("manifest", b"1", &expected).unwrap_err();
        assert!(error.is_final() && error.to_string().contains("If-None-Match"), "{error}");
    }
    assert!(server.state().objects.is_empty());
}

#[test]
fn a_machine_remembers_what_it_has_verified() {
    let server = Server::start(Kind::Documented);
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path().to_str().unwrap().to_owned();
    let variables =
        Variables::of(&[("AWS_ACCESS_KEY_ID", KEY_ID), ("AWS_SECRET_ACCESS_KEY", SECRET), ("XDG_CACHE_HOME", &cache)]);
    let connect = || crate::connect_with("s3://bucket/a", &options(&server), &variables).unwrap();
    let tag = connect().replace("manifest", b"1", &Expected::Absent).unwrap();
    server.requests();
    connect().replace("manifest", b"2", &Expected::Tagged(tag)).unwrap();
    assert_eq!(server.requests(), ["PUT a/manifest"]);
}

#[test]
fn a_fault_in_the_probe_says_nothing_about_the_bucket() {
    let server = Server::start(Kind::Documented);
    for at in 0..4 {
        let objects = connected(&server);
        let mut faults = vec![None; at];
        faults.push(Some(Fault::StatusAfter(500, "InternalError")));
        server.fail_next(&faults);
        let error = objects.replace("manifest", b"1", &Expected::Absent).unwrap_err();
        assert!(matches!(error, ObjectError::Failed(_)) && !error.is_final(), "{at}: {error}");
    }
    assert!(server.state().objects.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_of_others_is_read_or_refused(text in ".*", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Address::parse(&text);
        let _ = Address::parse(&format!("s3://bucket/{text}"));
        let answer = crate::errors::Answer::new(400, &bytes);
        prop_assert!(!answer.to_string().contains(char::is_control));
        let wrapped = format!("<Error><Code>{text}</Code><Message>{text}");
        prop_assert!(!crate::errors::Answer::new(400, wrapped.as_bytes()).to_string().contains(char::is_control));
    }

    #[test]
    fn keys_of_an_address_are_its_own(prefix in "[a-z]{1,5}(/[^/\\pC]{1,5}x)?", name in "[a-z]{1,5}/[0-9]{1,5}") {
        let address = Address::parse(&format!("s3://bucket/{prefix}")).unwrap();
        let key = address.key(&name);
        prop_assert_eq!(address.name(&key), Some(name.as_str()));
        let path = object_store::path::Path::parse(&key).unwrap();
        prop_assert_eq!(path.as_ref(), key.as_str());
    }
}

/// A store in a bucket, whose address has the scheme `scheme`, which only this test uses.
fn register(scheme: &str, server: &Server) {
    let server = server.clone();
    bucket::register(scheme, Arc::new(move |_, _| Ok(connected(&server))));
}

fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

fn attributes() -> Attributes {
    Attributes::of_file(Time { seconds: 1, nanoseconds: 0 })
}

#[test]
fn a_store_lives_in_a_bucket() {
    for (kind, scheme) in [(Kind::Documented, "testdocumented"), (Kind::Ceph, "testceph")] {
        let server = Server::start(kind);
        register(scheme, &server);
        let address = format!("{scheme}://bucket/some/store");
        let home = address.as_ref();
        let store = Store::create(home, &Plan::default()).unwrap();
        let large: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        store.put(&key("small"), &attributes(), b"content").unwrap();
        store.put(&key("large"), &attributes(), &large).unwrap();
        drop(store);
        let reader = Store::open_read_only(home).unwrap();
        assert_eq!(reader.get(&key("small")).unwrap().unwrap(), b"content");
        assert_eq!(reader.get(&key("large")).unwrap().unwrap(), large);

        let writer = Store::open_with(home, &OpenOptions::default()).unwrap();
        server.requests();
        writer.put(&key("more"), &attributes(), b"one put").unwrap();
        assert_eq!(server.requests(), ["PUT some/store/manifest"], "a small batch is one request");
        assert!(writer.remove(&key("small")).unwrap());
        drop(writer);
        let reader = Store::open_read_only(home).unwrap();
        assert_eq!(reader.get(&key("more")).unwrap().unwrap(), b"one put");
        assert_eq!(reader.get(&key("small")).unwrap(), None);
    }
}

#[test]
fn lost_answers_lose_no_batch() {
    let server = Server::start(Kind::Ceph);
    register("testfaults", &server);
    let home = "testfaults://bucket/some/store".as_ref();
    let store = Store::create(home, &Plan::default()).unwrap();
    let faults = [
        Fault::CutAfter,
        Fault::CutBefore,
        Fault::HalfAnswer,
        Fault::StatusAfter(500, "InternalError"),
        Fault::Status(503, "SlowDown"),
        Fault::Twice,
        Fault::StatusAfter(409, "ConditionalRequestConflict"),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        server.fail_next(&[Some(fault)]);
        store.put(&key(&number.to_string()), &attributes(), format!("{fault:?}").as_bytes()).unwrap();
    }
    drop(store);
    let reader = Store::open_read_only(home).unwrap();
    for (number, fault) in faults.into_iter().enumerate() {
        let found = reader.get(&key(&number.to_string())).unwrap().unwrap();
        assert_eq!(found, format!("{fault:?}").into_bytes());
    }
}
