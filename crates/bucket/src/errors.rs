//! What an answer, or its absence, means: whether a request took effect, did not, or may have.
//!
//! | answer | meaning |
//! | --- | --- |
//! | 412, 304; 404 of a conditional put; 409 `BlobAlreadyExists` | `Refused` |
//! | 404, unless of the bucket | `NotFound` |
//! | other 3xx and 4xx, 501, a 404 of the bucket, no credentials | `Failed`, and would again |
//! | 429; 503 of a server that limits its load; no connection | `Failed`, and may succeed later |
//! | 408, 409, other 5xx; a timeout, a connection that broke | `Unknown` |

use std::error::Error;
use std::fmt;
use std::io;

use granulo_store::objects::ObjectError;
use object_store::client::{HttpError, HttpErrorKind};

/// Codes of servers that limit their load, in answers with status 503 or 500.
const SLOWED: [&str; 5] = ["SlowDown", "ServerBusy", "ServiceUnavailable", "Throttl", "RequestLimitExceeded"];
/// Codes of buckets that do not exist.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];
/// Longest text of a server in a message, in characters.
const LONGEST_TEXT: usize = 300;

/// An answer that is no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The word of the server for it; empty if it has none.
    pub(crate) code: String,
    /// What the server says about it.
    pub(crate) text: String,
    /// Its clock minus ours, if it has said.
    pub(crate) ahead_seconds: Option<i64>,
    /// The region of the bucket, if that is the matter.
    pub(crate) region: Option<String>,
}

/// Nobody has credentials for this process.
#[derive(Debug)]
pub(crate) struct NoCredentials {
    pub(crate) cause: String,
    /// It had some before, which could not be renewed.
    pub(crate) had_some: bool,
}

/// What was requested, as far as the meaning of an answer depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    ConditionalPut,
    Other,
}

impl Answer {
    /// Reads the body of an answer: XML, or nothing.
    pub(crate) fn new(status: u16, body: &[u8]) -> Answer {
        let body = String::from_utf8_lossy(body);
        let code = element(&body, "Code").unwrap_or_default();
        let text = element(&body, "Message").unwrap_or_default();
        Answer { status, code: printable(code), text: printable(text), ahead_seconds: None, region: None }
    }

    fn meaning(&self, request: Request) -> ObjectError {
        let is = |codes: &[&str]| codes.iter().any(|code| self.code.starts_with(code));
        match self.status {
            304 | 412 => ObjectError::Refused,
            404 if is(&NO_BUCKET) => self.failed(io::ErrorKind::InvalidInput),
            404 if request == Request::ConditionalPut => ObjectError::Refused,
            404 => ObjectError::NotFound,
            409 if is(&["BlobAlreadyExists"]) => ObjectError::Refused,
            401 | 403 => self.failed(io::ErrorKind::PermissionDenied),
            // Where a range may begin; the caller asks for the length.
            416 => self.failed(io::ErrorKind::UnexpectedEof),
            429 => self.failed(io::ErrorKind::ResourceBusy),
            500 | 503 if is(&SLOWED) => self.failed(io::ErrorKind::ResourceBusy),
            // S3 has waited too long for what was sent.
            400 if is(&["RequestTimeout"]) => ObjectError::Unknown(self.error(io::ErrorKind::Other)),
            200 | 408 | 409 => ObjectError::Unknown(self.error(io::ErrorKind::Other)),
            501 | 300..=499 => self.failed(io::ErrorKind::InvalidInput),
            _ => ObjectError::Unknown(self.error(io::ErrorKind::Other)),
        }
    }

    fn failed(&self, kind: io::ErrorKind) -> ObjectError {
        ObjectError::Failed(self.error(kind))
    }

    fn error(&self, kind: io::ErrorKind) -> io::Error {
        io::Error::new(kind, self.to_string())
    }

    /// What to do about it, if that is known.
    fn advice(&self) -> Option<String> {
        if self.code == "RequestTimeTooSkewed" {
            let off = self
                .ahead_seconds
                .map_or_else(String::new, |ahead| format!(", which is off by {} seconds", ahead.abs()));
            return Some(format!("set the clock of this machine{off}"));
        }
        if let Some(region) = &self.region {
            return Some(format!("the bucket is in the region {region}: name it with --region, or in AWS_REGION"));
        }
        NO_BUCKET.contains(&self.code.as_str()).then(|| "create the bucket first".to_owned())
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answer { status, code, text, .. } = self;
        match code.as_str() {
            "" => write!(f, "the server answered with HTTP status {status}")?,
            code => write!(f, "the server answered {code} (HTTP status {status})")?,
        }
        if !text.is_empty() {
            write!(f, ": {text}")?;
        }
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl Error for Answer {}

impl fmt::Display for NoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.had_some {
            return write!(f, "its credentials could not be renewed: {}", self.cause);
        }
        write!(
            f,
            "there are no credentials for it: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or GOOGLE_…, AZURE_…), or \
             AWS_PROFILE; as a last resort, the metadata of the machine were asked for: {}",
            self.cause
        )
    }
}

impl Error for NoCredentials {}

/// What an error of a request means.
pub(crate) fn meaning(error: &object_store::Error, request: Request) -> ObjectError {
    if let Some(answer) = cause::<Answer>(error) {
        return answer.meaning(request);
    }
    if let Some(none) = cause::<NoCredentials>(error) {
        // What gave some before may do so again; nothing was sent.
        let kind = if none.had_some { io::ErrorKind::ResourceBusy } else { io::ErrorKind::PermissionDenied };
        return ObjectError::Failed(io::Error::new(kind, none.to_string()));
    }
    match (cause::<HttpError>(error), error) {
        (Some(http), _) => of_connection(http),
        (None, object_store::Error::NotFound { .. }) => ObjectError::NotFound,
        // What was not sent, or has an answer that makes no sense.
        (None, error) => ObjectError::Unknown(io::Error::other(innermost(error))),
    }
}

fn of_connection(error: &HttpError) -> ObjectError {
    let text = innermost(error);
    match error.kind() {
        HttpErrorKind::Connect => ObjectError::Failed(io::Error::new(io::ErrorKind::NotConnected, text)),
        HttpErrorKind::Timeout => ObjectError::Unknown(io::Error::new(io::ErrorKind::TimedOut, text)),
        _ => ObjectError::Unknown(io::Error::other(text)),
    }
}

/// The first cause of a type.
fn cause<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let below = |error: &&'e (dyn Error + 'static)| -> Option<&'e (dyn Error + 'static)> { (*error).source() };
    std::iter::successors(Some(error), below)
}

/// The cause that has no other: what says most in the fewest words.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    printable(&causes(error).last().map_or_else(String::new, ToString::to_string))
}

/// The text in the first element of a name.
fn element<'x>(xml: &'x str, name: &str) -> Option<&'x str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(text, _)| text.trim())
}

/// Text of others, for a message.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(code: &str) -> String {
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>Because.</Message></Error>")
    }

    #[test]
    fn every_status_has_a_meaning() {
        assert!(matches!(
            Answer::new(416, b"").meaning(Request::Other),
            ObjectError::Failed(error) if error.kind() == io::ErrorKind::UnexpectedEof
        ));
        let word = |status: u16, code: &str, request: Request| match Answer::new(status, body(code).as_bytes())
            .meaning(request)
        {
            ObjectError::NotFound => "not found",
            ObjectError::Refused => "refused",
            ObjectError::Failed(error) if error.kind() == io::ErrorKind::ResourceBusy => "later",
            ObjectError::Failed(_) => "failed",
            ObjectError::Unknown(_) => "unknown",
        };
        for (status, code, of_put, of_others) in [
            (412, "PreconditionFailed", "refused", "refused"),
            (304, "", "refused", "refused"),
            (404, "NoSuchKey", "refused", "not found"),
            (404, "", "refused", "not found"),
            (404, "NoSuchBucket", "failed", "failed"),
            (404, "ContainerNotFound", "failed", "failed"),
            (409, "ConditionalRequestConflict", "unknown", "unknown"),
            (409, "BlobAlreadyExists", "refused", "refused"),
            (403, "AccessDenied", "failed", "failed"),
            (401, "", "failed", "failed"),
            (400, "InvalidArgument", "failed", "failed"),
            (301, "PermanentRedirect", "failed", "failed"),
            (411, "", "failed", "failed"),
            (501, "NotImplemented", "failed", "failed"),
            (429, "", "later", "later"),
            (503, "SlowDown", "later", "later"),
            (503, "", "unknown", "unknown"),
            (500, "InternalError", "unknown", "unknown"),
            (504, "", "unknown", "unknown"),
            (408, "", "unknown", "unknown"),
            (400, "RequestTimeout", "unknown", "unknown"),
            (200, "InternalError", "unknown", "unknown"),
        ] {
            assert_eq!(word(status, code, Request::ConditionalPut), of_put, "{status} {code}");
            assert_eq!(word(status, code, Request::Other), of_others, "{status} {code}");
        }
    }

    #[test]
    fn credentials_that_there_were_may_come_back() {
        let kind = |had_some| {
            let none = NoCredentials { cause: "HTTP status 503".to_owned(), had_some };
            let source = Box::new(none) as Box<dyn Error + Send + Sync>;
            match meaning(&object_store::Error::Generic { store: "S3", source }, Request::Other) {
                ObjectError::Failed(error) => error.kind(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((kind(true), kind(false)), (io::ErrorKind::ResourceBusy, io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn an_answer_says_what_to_do() {
        let skewed = Answer { ahead_seconds: Some(-900), ..Answer::new(403, body("RequestTimeTooSkewed").as_bytes()) };
        let text = skewed.to_string();
        assert!(text.contains("Because.") && text.contains("off by 900 seconds"), "{text}");
        let elsewhere = Answer { region: Some("eu-west-3".to_owned()), ..Answer::new(301, b"") };
        assert!(elsewhere.to_string().contains("--region"), "{elsewhere}");
    }

    #[test]
    fn text_of_servers_cannot_reach_a_terminal_as_it_is() {
        let answer = Answer::new(400, b"<Error><Code>a\x1b[31m</Code><Message>b\x07\n</Message>");
        assert!(!answer.to_string().contains(char::is_control), "{answer}");
    }
}
