//! A server that speaks as much of S3 as a store uses, on a port of its own of the loopback interface: one bucket, in
//! memory. It does what the documents of S3 say, or what Ceph's gateway does instead, and whatever fault is requested.
//!
//! Used by the tests of this package, and of the command.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

pub const BUCKET: &str = "bucket";
pub const KEY_ID: &str = "AKTEST";
pub const SECRET: &str = "secret";

/// How it differs from what the documents say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Documented,
    /// Compares `If-Match` with the tag without quotes, and answers 412 to it for an object that does not exist.
    Ceph,
    /// A bucket of Ceph's gateway with versioning: conditions of puts do nothing.
    Versioned,
}

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection ends before the request has an effect.
    CutBefore,
    /// The connection ends after it has taken effect.
    CutAfter,
    /// The connection ends in the middle of the answer.
    HalfAnswer,
    /// It has this status, and no effect.
    Status(u16, &'static str),
    /// It takes effect, and has this status.
    StatusAfter(u16, &'static str),
    /// It arrives twice; the answer is that to the second one.
    Twice,
}

#[derive(Debug, Clone)]
pub struct Stored {
    pub bytes: Vec<u8>,
    pub class: Option<String>,
    /// When it was put, as HTTP writes it; the time of every answer is [`NOW`].
    pub modified: &'static str,
}

/// The time there, always.
pub const NOW: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

#[derive(Debug, Default)]
pub struct State {
    pub kind: Kind,
    pub objects: BTreeMap<String, Stored>,
    /// Names in one page of a listing.
    pub page: usize,
    /// For the next requests, in order; `None` for one without a fault.
    pub faults: VecDeque<Option<Fault>>,
    /// Method and key of each request.
    pub requests: Vec<String>,
}

/// The server; ends with the process.
#[derive(Debug, Clone)]
pub struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub fn start(kind: Kind) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            state: Arc::new(Mutex::new(State { kind, page: 1000, ..State::default() })),
        };
        let state = Arc::clone(&server.state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                thread::spawn(move || while serve(&stream, &state).is_some() {});
            }
        });
        server
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state().requests)
    }

    pub fn fail_next(&self, faults: &[Option<Fault>]) {
        self.state().faults = faults.iter().copied().collect();
    }
}

/// A request.
struct Asked {
    method: String,
    /// Without the bucket; `None` for another bucket.
    key: Option<String>,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// An answer.
struct Answered {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

/// Answers one request; `None` if the connection has ended.
fn serve(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let asked = read_request(stream)?;
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let key = asked.key.as_deref().unwrap_or("?");
    state.requests.push(format!("{} {key}{}", asked.method, if asked.query.is_empty() { "" } else { "?" }));
    let is_ceph = state.kind != Kind::Documented;
    let answer = match state.faults.pop_front().flatten() {
        Some(Fault::CutBefore) => {
            let _ = stream.shutdown(Shutdown::Both);
            return None;
        }
        Some(Fault::Status(status, code)) => error(status, code),
        Some(Fault::StatusAfter(status, code)) => {
            state.answer(&asked);
            error(status, code)
        }
        Some(Fault::CutAfter) => {
            state.answer(&asked);
            let _ = stream.shutdown(Shutdown::Both);
            return None;
        }
        Some(Fault::Twice) => {
            state.answer(&asked);
            state.answer(&asked)
        }
        Some(Fault::HalfAnswer) => {
            let bytes = encode(&asked, &state.answer(&asked), is_ceph);
            let mut stream = stream;
            let _ = stream.write_all(&bytes[..bytes.len() - 1]);
            let _ = stream.shutdown(Shutdown::Both);
            return None;
        }
        None => state.answer(&asked),
    };
    drop(state);
    let mut stream = stream;
    stream.write_all(&encode(&asked, &answer, is_ceph)).ok()
}

fn read_request(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = || -> Option<String> {
        let mut line = String::new();
        let count = reader.read_line(&mut line).ok()?;
        (count > 0).then(|| line.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let line = line()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (bucket, key) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    };
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect();
    let key = (bucket == BUCKET).then(|| decode(key));
    Some(Asked { method, key, query, headers, body })
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || (rest.next().unwrap() as char).to_digit(16).unwrap() as u8;
        bytes.push(match byte {
            b'%' => digit() * 16 + digit(),
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).unwrap()
}

fn encode(asked: &Asked, answer: &Answered, is_ceph: bool) -> Vec<u8> {
    let Answered { status, headers, body } = answer;
    let mut text = format!("HTTP/1.1 {status} X\r\ndate: {NOW}\r\n");
    let id = if is_ceph { "tx000000000000000000001-0000000001-1-default" } else { "0000000000000001" };
    text += &format!("x-amz-request-id: {id}\r\n");
    let is_sent = headers.iter().any(|(name, _)| *name == "content-length");
    if !is_sent {
        text += &format!("content-length: {}\r\n", body.len());
    }
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    text += "\r\n";
    let mut bytes = text.into_bytes();
    if asked.method != "HEAD" && *status != 304 {
        bytes.extend_from_slice(body);
    }
    bytes
}

fn error(status: u16, code: &str) -> Answered {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}.</Message></Error>");
    Answered { status, headers: Vec::new(), body: body.into_bytes() }
}

fn empty(status: u16) -> Answered {
    Answered { status, headers: Vec::new(), body: Vec::new() }
}

pub fn tag_of(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("\"{:032x}\"", hasher.finish())
}

impl State {
    fn answer(&mut self, asked: &Asked) -> Answered {
        let is_known =
            asked.headers.get("authorization").is_some_and(|it| it.contains(&format!("Credential={KEY_ID}/")));
        if !is_known {
            return error(403, "InvalidAccessKeyId");
        }
        let Some(key) = &asked.key else { return error(404, "NoSuchBucket") };
        match (asked.method.as_str(), key.as_str()) {
            ("GET", "") => self.list(&asked.query),
            ("POST", "") => self.delete_many(&String::from_utf8_lossy(&asked.body)),
            ("PUT", _) => self.put(key, asked),
            ("GET" | "HEAD", _) => self.get(key, asked),
            ("DELETE", _) => {
                self.objects.remove(key);
                empty(204)
            }
            _ => error(405, "MethodNotAllowed"),
        }
    }

    fn put(&mut self, key: &str, asked: &Asked) -> Answered {
        let found = self.objects.get(key).map(|stored| tag_of(&stored.bytes));
        let header = |name: &str| asked.headers.get(name).cloned();
        if self.kind != Kind::Versioned {
            let is_there = header("if-none-match").is_some() && found.is_some();
            let is_other = header("if-match").is_some_and(|expected| match self.kind {
                Kind::Ceph => found.as_deref().map(|tag| tag.trim_matches('"')) != Some(expected.as_str()),
                _ => found.as_deref() != Some(expected.as_str()),
            });
            if is_other && found.is_none() && self.kind == Kind::Documented {
                return error(404, "NoSuchKey");
            }
            if is_there || is_other {
                return error(412, "PreconditionFailed");
            }
        }
        let stored = Stored { bytes: asked.body.clone(), class: header("x-amz-storage-class"), modified: NOW };
        let tag = tag_of(&stored.bytes);
        self.objects.insert(key.to_owned(), stored);
        Answered { headers: vec![("etag", tag)], ..empty(200) }
    }

    fn get(&self, key: &str, asked: &Asked) -> Answered {
        let Some(Stored { bytes, modified, .. }) = self.objects.get(key) else { return error(404, "NoSuchKey") };
        let tag = tag_of(bytes);
        let mut headers = vec![("etag", tag.clone()), ("last-modified", (*modified).to_owned())];
        if asked.headers.get("if-none-match") == Some(&tag) {
            return Answered { status: 304, headers, body: Vec::new() };
        }
        if asked.method == "HEAD" {
            headers.push(("content-length", bytes.len().to_string()));
            return Answered { status: 200, headers, body: Vec::new() };
        }
        let Some(range) = asked.headers.get("range") else {
            return Answered { status: 200, headers, body: bytes.clone() };
        };
        let (from, to) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let from: usize = from.parse().unwrap();
        let end = to.parse::<usize>().unwrap().saturating_add(1).min(bytes.len());
        if from >= end {
            return error(416, "InvalidRange");
        }
        headers.push(("content-range", format!("bytes {from}-{}/{}", end - 1, bytes.len())));
        Answered { status: 206, headers, body: bytes[from..end].to_vec() }
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Answered {
        let get = |name: &str| query.get(name).map_or("", String::as_str);
        let after = get("start-after").max(get("continuation-token"));
        let found = self.objects.iter().filter(|(key, _)| key.starts_with(get("prefix")) && key.as_str() > after);
        let all: Vec<(&String, &Stored)> = found.collect();
        let page = &all[..all.len().min(self.page)];
        let mut text = "<?xml version=\"1.0\"?><ListBucketResult>".to_owned();
        for (key, stored) in page {
            text += &format!(
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>{}</ETag><Size>{}</Size></Contents>",
                tag_of(&stored.bytes),
                stored.bytes.len()
            );
        }
        if page.len() < all.len() {
            let last = page.last().map_or("", |(key, _)| key.as_str());
            text += &format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>");
        }
        text += "</ListBucketResult>";
        Answered { body: text.into_bytes(), ..empty(200) }
    }

    fn delete_many(&mut self, body: &str) -> Answered {
        let mut text = "<?xml version=\"1.0\"?><DeleteResult>".to_owned();
        for part in body.split("<Key>").skip(1) {
            let key = part.split("</Key>").next().unwrap();
            self.objects.remove(key);
            text += &format!("<Deleted><Key>{key}</Key></Deleted>");
        }
        Answered { body: (text + "</DeleteResult>").into_bytes(), ..empty(200) }
    }
}
