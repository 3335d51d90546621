//! The objects below an address: each call is one request, and waits for its answer.
//!
//! Requests run on threads of their own, two for each connection; any number of threads may call at once. Whether a
//! request is repeated is not decided here, so that its outcome is known to whoever decides.
//!
//! A tag is what the server calls it: an `ETag` with its quotes, or the generation of an object in Google's.

use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use granulo_core::error::{Error, ErrorKind, Result};
use granulo_core::locks::lock;
use granulo_store::Class;
use granulo_store::bucket::BucketOptions;
use granulo_store::objects::{Expected, Head, ListedObject, ObjectError, Objects, Page, Piece, Tag};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, ClientOptions, GetOptions, GetRange, HeaderValue, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutOptions, PutPayload, RetryConfig, UpdateVersion,
};
use tokio::runtime::{Builder, Runtime};

use crate::address::{Address, Provider};
use crate::credentials::Profile;
use crate::errors::{Request, innermost, meaning};
use crate::service::{Seen, WatchingConnector};
use crate::variables::Variables;

const CONNECT: &str = "connect to";
const THREADS: usize = 2;
/// Time for a whole request: an object of 64 MiB at 0.5 MB/s.
const LONGEST_REQUEST: Duration = Duration::from_secs(150);
/// Most names that one request deletes: of Azure, and of the others.
const MOST_DELETED_AZURE: usize = 256;
const MOST_DELETED: usize = 1000;
/// Storage classes whose objects must be restored before they can be read.
const OFFLINE_CLASSES: [&str; 3] = ["GLACIER", "DEEP_ARCHIVE", "Archive"];

type Outcome<T> = std::result::Result<T, ObjectError>;

/// What is needed of a client.
trait Client: ObjectStore + PaginatedListStore {}

impl<C: ObjectStore + PaginatedListStore> Client for C {}

/// The objects below an address.
#[derive(Debug)]
pub(crate) struct RemoteObjects {
    address: Address,
    /// Where the bucket is, besides its name.
    endpoint: String,
    client: Arc<dyn Client>,
    seen: Seen,
    /// Of what is read at random, and of the rest.
    classes: Mutex<[Option<String>; 2]>,
    /// Ends last.
    runtime: Runtime,
}

/// How every client is built.
struct Connection<'v> {
    address: &'v Address,
    options: &'v BucketOptions,
    variables: &'v Variables,
    seen: Seen,
}

/// A client, and where its bucket is.
type Built = object_store::Result<(Arc<dyn Client>, String)>;

impl RemoteObjects {
    /// Sends no request.
    ///
    /// # Errors
    /// [`Usage`](ErrorKind::Usage) for settings that cannot be; the system has no threads.
    pub(crate) fn connect(address: Address, options: &BucketOptions, variables: &Variables) -> Result<RemoteObjects> {
        // Of the process, so only the first takes effect; they are all the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let place = PathBuf::from(address.to_string());
        let usage = |cause: String| Error::new(ErrorKind::Usage, CONNECT, cause).at(&place);
        let classes = options.fast_class.iter().chain(&options.slow_class);
        if let Some(class) = classes.into_iter().find(|class| OFFLINE_CLASSES.contains(&class.as_str())) {
            let cause = format!("objects in the storage class {class} cannot be read before they are restored");
            return Err(usage(cause).advise("name one that is read at once, such as GLACIER_IR"));
        }
        let seen = Seen::default();
        let connection = Connection { address: &address, options, variables, seen: seen.clone() };
        let built = match address.provider {
            Provider::S3 => connection.amazon(&Profile::find(variables)?),
            Provider::Google => connection.google(),
            Provider::Azure => connection.azure(),
        };
        let (client, endpoint) = built.map_err(|error| usage(innermost(&error)))?;
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).thread_name("bucket").enable_all().build();
        let runtime = runtime.map_err(|error| Error::io(CONNECT, &place, error))?;
        let named = |class: &Option<String>| class.clone().filter(|class| !class.is_empty());
        let classes = Mutex::new([named(&options.fast_class), named(&options.slow_class)]);
        Ok(RemoteObjects { address, endpoint, client, seen, classes, runtime })
    }

    /// The bucket and the server that it is on.
    pub(crate) fn identity(&self) -> String {
        let Address { bucket, .. } = &self.address;
        format!("{} {bucket}", self.endpoint)
    }

    /// Sends requests, and waits for the outcome.
    fn wait<T>(&self, request: Request, sent: impl Future<Output = object_store::Result<T>>) -> Outcome<T> {
        self.runtime.block_on(sent).map_err(|error| meaning(&error, request))
    }

    /// # Errors
    /// [`ObjectError::Failed`] for a name that cannot be a key.
    fn path(&self, name: &str) -> Outcome<Path> {
        Path::parse(self.address.key(name)).map_err(|error| {
            ObjectError::Failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, error.to_string()))
        })
    }

    fn tag(&self, e_tag: Option<String>, version: Option<String>) -> Outcome<Tag> {
        let tag = if self.address.provider == Provider::Google { version } else { e_tag };
        let missing = || ObjectError::Unknown(std::io::Error::other("the server has not sent the tag of the object"));
        tag.map(Tag).ok_or_else(missing)
    }

    fn meta(&self, name: &str) -> Outcome<ObjectMeta> {
        let path = self.path(name)?;
        self.wait(Request::Other, self.client.head(&path))
    }

    fn head_of(&self, meta: &ObjectMeta) -> Outcome<Head> {
        Ok(Head { size_bytes: meta.size, tag: self.tag(meta.e_tag.clone(), meta.version.clone())? })
    }

    /// The condition of a put, as the server wants it.
    fn mode(&self, expected: &Expected) -> PutMode {
        let Expected::Tagged(Tag(tag)) = expected else { return PutMode::Create };
        let sent = if self.seen.is_ceph() { tag.trim_matches('"') } else { tag };
        PutMode::Update(UpdateVersion { e_tag: Some(sent.to_owned()), version: Some(sent.to_owned()) })
    }

    fn put_in(&self, class: Option<&String>, name: &str, bytes: &[u8], expected: &Expected) -> Outcome<Tag> {
        let mut attributes = Attributes::new();
        class.into_iter().for_each(|class| drop(attributes.insert(Attribute::StorageClass, class.clone().into())));
        let options = PutOptions { mode: self.mode(expected), attributes, ..PutOptions::default() };
        let payload = PutPayload::from(bytes.to_vec());
        let path = self.path(name)?;
        let put = self.wait(Request::ConditionalPut, self.client.put_opts(&path, payload, options))?;
        self.tag(put.e_tag, put.version)
    }

    fn get(&self, name: &str, range: Range<u64>, unless: Option<&Tag>) -> Outcome<Piece> {
        let if_none_match = unless.map(|Tag(tag)| tag.clone());
        let options = GetOptions { range: Some(GetRange::Bounded(range)), if_none_match, ..GetOptions::default() };
        let path = self.path(name)?;
        let got = self.wait(Request::Other, async {
            let got = self.client.get_opts(&path, options).await?;
            let meta = got.meta.clone();
            Ok((meta, got.bytes().await?))
        });
        let (meta, bytes) = got?;
        Ok(Piece { bytes: bytes.into(), head: self.head_of(&meta)? })
    }

    /// Deletes names in one request.
    fn delete_at_once(&self, names: &[String]) -> Vec<Outcome<()>> {
        let paths: Vec<_> = names.iter().map(|name| Ok(Path::parse(self.address.key(name))?)).collect();
        let deleted = self.client.delete_stream(stream::iter(paths).boxed());
        let answers: Vec<object_store::Result<Path>> = self.runtime.block_on(deleted.collect());
        // A request that failed as a whole has one answer.
        let is_whole = answers.len() < names.len();
        let answer = |at: usize| match answers.get(if is_whole { 0 } else { at }) {
            Some(Err(error)) => Err(meaning(error, Request::Other)),
            Some(Ok(_)) | None => Ok(()),
        };
        (0..names.len()).map(answer).collect()
    }
}

impl Objects for RemoteObjects {
    fn place(&self) -> PathBuf {
        self.address.to_string().into()
    }

    fn set_classes(&self, fast: Option<&str>, slow: Option<&str>) {
        let classes = [fast, slow].map(|class| class.map(str::to_owned));
        *lock(&self.classes) = classes;
    }

    fn put_as(&self, class: Class, name: &str, bytes: &[u8]) -> Outcome<Tag> {
        let [fast, slow] = lock(&self.classes).clone();
        let class = if class == Class::Fast { fast } else { slow };
        self.put_in(class.as_ref(), name, bytes, &Expected::Absent)
    }

    fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Outcome<Tag> {
        self.put_in(None, name, bytes, expected)
    }

    fn read(&self, name: &str, range: Range<u64>) -> Outcome<Piece> {
        if !range.is_empty() {
            match self.get(name, range, None) {
                Err(error) if is_beyond_end(&error) => {}
                other => return other,
            }
        }
        self.head(name).map(|head| Piece { bytes: Vec::new(), head })
    }

    fn read_if_changed(&self, name: &str, range: Range<u64>, tag: &Tag) -> Outcome<Option<Piece>> {
        // Google's server compares its `ETag` there, which is not what is kept here.
        if self.address.provider == Provider::Google && self.head(name)?.tag == *tag {
            return Ok(None);
        }
        let unless = (self.address.provider != Provider::Google).then_some(tag);
        match self.get(name, range, unless) {
            Err(ObjectError::Refused) => Ok(None),
            other => other.map(Some),
        }
    }

    fn head(&self, name: &str) -> Outcome<Head> {
        self.head_of(&self.meta(name)?)
    }

    fn age(&self, name: &str) -> Outcome<Option<Duration>> {
        let meta = self.meta(name)?;
        let age = self.seen.now_seconds().map(|now| now.saturating_sub(meta.last_modified.timestamp()));
        Ok(age.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0))))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Outcome<Page> {
        let prefix = self.address.key(prefix);
        let mut options = PaginatedListOptions {
            offset: after.map(|name| self.address.key(name)),
            ..PaginatedListOptions::default()
        };
        loop {
            let listed = self.wait(Request::Other, self.client.list_paginated(Some(&prefix), options.clone()))?;
            let object = |meta: &ObjectMeta| {
                let name = self.address.name(meta.location.as_ref())?.to_owned();
                Some(ListedObject { name, size_bytes: meta.size })
            };
            let objects: Vec<ListedObject> = listed.result.objects.iter().filter_map(object).collect();
            let is_last = listed.page_token.is_none();
            // A page may be empty and not the last.
            if is_last || !objects.is_empty() {
                return Ok(Page { objects, is_last });
            }
            options.page_token = listed.page_token;
        }
    }

    fn delete(&self, name: &str) -> Outcome<()> {
        let path = self.path(name)?;
        self.wait(Request::Other, self.client.delete(&path))
    }

    fn delete_many(&self, names: &[String]) -> Vec<Outcome<()>> {
        let most = if self.address.provider == Provider::Azure { MOST_DELETED_AZURE } else { MOST_DELETED };
        names.chunks(most).flat_map(|names| self.delete_at_once(names)).collect()
    }
}

/// Whether an answer is that a range begins behind the end.
fn is_beyond_end(error: &ObjectError) -> bool {
    matches!(error, ObjectError::Failed(error) if error.kind() == std::io::ErrorKind::UnexpectedEof)
}

impl Connection<'_> {
    fn connector(&self) -> WatchingConnector {
        WatchingConnector { seen: self.seen.clone() }
    }

    fn client(&self) -> ClientOptions {
        ClientOptions::new()
            .with_timeout(LONGEST_REQUEST)
            .with_default_content_type("application/octet-stream")
            .with_user_agent(HeaderValue::from_static(concat!("granulo/", env!("CARGO_PKG_VERSION"))))
    }

    fn retry(&self) -> RetryConfig {
        RetryConfig { max_retries: 0, ..RetryConfig::default() }
    }

    fn amazon(&self, profile: &Profile) -> Built {
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.address.bucket)
            .with_client_options(self.client())
            .with_retry(self.retry())
            .with_http_connector(self.connector());
        if let Some(keys) = &profile.keys {
            builder = builder.with_access_key_id(&keys.id).with_secret_access_key(&keys.secret);
            builder = keys.token.iter().fold(builder, |builder, token| builder.with_token(token));
        }
        let has_region = ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().any(|name| self.variables.get(name).is_some());
        let region = profile.region.iter().filter(|_| !has_region);
        builder = region.fold(builder, |builder, region| builder.with_region(region));
        builder = profile.endpoint.iter().fold(builder, |builder, endpoint| builder.with_endpoint(endpoint));
        for (name, value) in self.variables.beginning_with("AWS_") {
            builder = match name.parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            };
        }
        // The service's own variable has precedence over the general one, but not over an option.
        let endpoint = self.options.endpoint.as_ref();
        builder = endpoint.iter().fold(builder, |builder, it| builder.with_config(AmazonS3ConfigKey::S3Endpoint, *it));
        builder = self.options.region.iter().fold(builder, |builder, region| builder.with_region(region));
        let of = |key| builder.get_config_value(&key);
        let endpoint =
            of(AmazonS3ConfigKey::S3Endpoint).or_else(|| of(AmazonS3ConfigKey::Endpoint)).unwrap_or_default();
        // TLS says already that what arrives is what was sent.
        let builder = match endpoint.starts_with("http://") {
            true => builder.with_allow_http(true),
            false => builder.with_unsigned_payload(true),
        };
        let region = builder.get_config_value(&AmazonS3ConfigKey::Region).unwrap_or_default();
        Ok((Arc::new(builder.build()?), format!("{endpoint} {region}")))
    }

    fn google(&self) -> Built {
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&self.address.bucket)
            .with_client_options(self.client_of_endpoint())
            .with_retry(self.retry())
            .with_http_connector(self.connector());
        for (name, value) in self.variables.beginning_with("GOOGLE_") {
            builder = match name.parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            };
        }
        let endpoint = self.options.endpoint.as_ref();
        builder = endpoint.iter().fold(builder, |builder, it| builder.with_config(GoogleConfigKey::BaseUrl, *it));
        let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl).unwrap_or_default();
        Ok((Arc::new(builder.build()?), endpoint))
    }

    fn azure(&self) -> Built {
        let mut builder = MicrosoftAzureBuilder::new()
            .with_container_name(&self.address.bucket)
            .with_client_options(self.client_of_endpoint())
            .with_retry(self.retry())
            .with_http_connector(self.connector());
        for (name, value) in self.variables.beginning_with("AZURE_") {
            builder = match name.parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            };
        }
        let endpoint = self.options.endpoint.iter();
        builder = endpoint.fold(builder, |builder, it| builder.with_endpoint(it.clone()));
        let account = builder.get_config_value(&AzureConfigKey::AccountName).unwrap_or_default();
        let endpoint = self.options.endpoint.clone().unwrap_or_default();
        Ok((Arc::new(builder.build()?), format!("{account} {endpoint}")))
    }

    fn client_of_endpoint(&self) -> ClientOptions {
        let is_http = self.options.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        self.client().with_allow_http(is_http)
    }
}
