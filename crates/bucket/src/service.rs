//! The client under all requests: sees every answer before anybody interprets it.
//!
//! - **Whose server it is.** Ceph's gateway compares `If-Match` with the tag without quotes, up to release 17, and
//!   accepts that later too; all others expect it as they sent it. The gateway shows itself in every answer.
//! - **Answers that are no success** become errors with all that is known (`errors::Answer`), as a whole: no text is
//!   searched for it later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::HeaderMap;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use crate::errors::{Answer, NoCredentials, innermost};

/// Beginnings of the hosts that are asked for credentials.
const CREDENTIAL_HOSTS: [&str; 6] =
    ["169.254.", "metadata.google.internal", "sts.", "oauth2.", "login.", "iamcredentials."];
/// How Ceph's gateway names requests: this, 21 hexadecimal digits and a hyphen.
const CEPH_REQUEST: &str = "tx";
const CEPH_REQUEST_DIGITS: usize = 21;

/// What the answers of a server show.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    is_ceph: Arc<AtomicBool>,
    /// Whether a request succeeded: then there were credentials for it.
    has_succeeded: Arc<AtomicBool>,
    /// The `Date` of the last answer, in seconds since 1970; 0 if none had one.
    now_seconds: Arc<AtomicI64>,
}

impl Seen {
    /// Whether it is Ceph's gateway.
    pub(crate) fn is_ceph(&self) -> bool {
        self.is_ceph.load(Ordering::Relaxed)
    }

    /// The time there, as of the last answer, in seconds since 1970.
    pub(crate) fn now_seconds(&self) -> Option<i64> {
        Some(self.now_seconds.load(Ordering::Relaxed)).filter(|seconds| *seconds != 0)
    }

    fn look(&self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(seconds) = text("date").and_then(seconds_since_1970) {
            self.now_seconds.store(seconds, Ordering::Relaxed);
        }
        let is_ceph_request = |id: &str| {
            let digits = id.strip_prefix(CEPH_REQUEST).and_then(|rest| rest.split_once('-')).map_or("", |(it, _)| it);
            digits.len() == CEPH_REQUEST_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        if text("x-rgw-object-type").is_some() || text("x-amz-request-id").is_some_and(is_ceph_request) {
            self.is_ceph.store(true, Ordering::Relaxed);
        }
    }
}

/// Makes clients that watch answers.
#[derive(Debug)]
pub(crate) struct WatchingConnector {
    pub(crate) seen: Seen,
}

impl HttpConnector for WatchingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(WatchingClient { client, seen: self.seen.clone() }))
    }
}

#[derive(Debug)]
struct WatchingClient {
    client: HttpClient,
    seen: Seen,
}

#[async_trait]
impl HttpService for WatchingClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_for_credentials = request.uri().host().is_some_and(is_asked_for_credentials);
        let response = match self.client.execute(request).await {
            Err(error) if is_for_credentials => return Err(self.without_credentials(innermost(&error))),
            other => other?,
        };
        let status = response.status();
        if is_for_credentials && !status.is_success() {
            return Err(self.without_credentials(format!("HTTP status {}", status.as_u16())));
        }
        if status.is_success() && !is_for_credentials {
            self.seen.has_succeeded.store(true, Ordering::Relaxed);
        }
        self.seen.look(response.headers());
        if status.is_success() { Ok(response) } else { Err(refused(response).await) }
    }
}

fn is_asked_for_credentials(host: &str) -> bool {
    CREDENTIAL_HOSTS.iter().any(|start| host.starts_with(start))
}

impl WatchingClient {
    fn without_credentials(&self, cause: String) -> HttpError {
        let had_some = self.seen.has_succeeded.load(Ordering::Relaxed);
        HttpError::new(HttpErrorKind::Connect, NoCredentials { cause, had_some })
    }
}

async fn refused(response: HttpResponse) -> HttpError {
    let (parts, body) = response.into_parts();
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let region = text("x-amz-bucket-region").filter(|_| parts.status.is_redirection() || parts.status.as_u16() == 400);
    let (region, ahead_seconds) = (region.map(str::to_owned), text("date").and_then(ahead_of_us));
    // The status says enough without it.
    let body = body.bytes().await.unwrap_or_default();
    let answer = Answer { ahead_seconds, region, ..Answer::new(parts.status.as_u16(), &body) };
    HttpError::new(HttpErrorKind::Unknown, answer)
}

/// How much later than here it is there, by the `Date` of an answer.
fn ahead_of_us(date: &str) -> Option<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs() as i64;
    seconds_since_1970(date).map(|then| then - now)
}

/// Reads a date as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_since_1970(date: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = date.split_once(", ")?.1.split_ascii_whitespace();
    let two_digits = |text: &str| text.parse::<u8>().ok().filter(|number| *number < 100).map(i64::from);
    let day = two_digits(words.next()?)?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64 + 1;
    let year: i64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut time = words.next()?.split(':').map(two_digits);
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    // Years begin in March: a leap day is the last one.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use object_store::HeaderValue;

    use super::*;

    fn is_ceph(headers: &[(&'static str, &'static str)]) -> bool {
        let seen = Seen::default();
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        seen.look(&headers.collect());
        seen.is_ceph()
    }

    #[test]
    fn the_gateway_of_ceph_shows_itself() {
        assert!(is_ceph(&[("x-rgw-object-type", "Normal")]));
        assert!(is_ceph(&[("x-amz-request-id", "tx000003e1b4a2c5f6d7e89-00692b1e2a-1037-default")]));
        for other in ["4442587FB7D0A2F9", "tx-ray", "txyz00000000000000000000-1", ""] {
            assert!(!is_ceph(&[("x-amz-request-id", other)]), "{other}");
        }
        assert!(!is_ceph(&[("server", "MinIO")]));
    }

    #[test]
    fn dates_are_read() {
        assert_eq!(seconds_since_1970("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds_since_1970("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds_since_1970("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
        for wrong in [
            "",
            "now",
            "Sun, 9223372036854775807 Nov 1994 08:49:37 GMT",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994",
            "Sun, 06 Nov 1 08:49:37 GMT",
        ] {
            assert_eq!(seconds_since_1970(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn metadata_are_not_in_the_bucket() {
        assert!(is_asked_for_credentials("169.254.169.254") && is_asked_for_credentials("sts.eu-west-3.amazonaws.com"));
        assert!(!is_asked_for_credentials("metadatabackup.blob.core.windows.net"));
        assert!(!is_asked_for_credentials("127.0.0.1") && !is_asked_for_credentials("s3.eu-west-3.amazonaws.com"));
    }
}
