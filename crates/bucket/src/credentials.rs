//! What the tools of AWS keep in files: `~/.aws/credentials` and `~/.aws/config`, of the profile in `AWS_PROFILE`.
//!
//! What is in the environment has precedence over what is in these files. Profiles that get their keys from a program,
//! from a login or from a role are refused with what to do: the command of AWS can resolve them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use granulo_core::error::{Error, ErrorKind, Result};

use crate::variables::Variables;

const READ: &str = "read the credentials in";

/// Variables that say where credentials come from, before any file.
const SOURCES: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
];
/// Settings of profiles whose keys are elsewhere.
const ELSEWHERE: [&str; 5] = ["credential_process", "sso_session", "sso_start_url", "role_arn", "login_session"];

/// Settings of one profile.
type Settings = BTreeMap<String, String>;

/// What a profile says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) keys: Option<Keys>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

/// Long-term keys, or temporary ones with a token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

// Secrets are in no log.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Profile {
    /// The profile that the environment selects.
    ///
    /// # Errors
    /// [`Usage`](ErrorKind::Usage) if it is in no file, or its keys are elsewhere and nothing in the environment has
    /// precedence; a file cannot be read.
    pub(crate) fn find(variables: &Variables) -> Result<Profile> {
        let selected = variables.get("AWS_PROFILE").or_else(|| variables.get("AWS_DEFAULT_PROFILE"));
        let name = selected.unwrap_or("default");
        let files = [("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")];
        let [credentials, config] = files.map(|(variable, name)| place(variables, variable, name));
        let in_config = settings(config.as_deref(), &section_in_config(name))?;
        let in_credentials = settings(credentials.as_deref(), name)?;
        if in_config.is_none() && in_credentials.is_none() && selected.is_some() {
            let error =
                Error::new(ErrorKind::Usage, READ, format!("there is no profile {name} in it, nor in the other file"));
            return Err(error
                .at(&credentials.unwrap_or_default())
                .advise("set AWS_PROFILE to one of those in these files"));
        }
        let mut all = in_config.unwrap_or_default();
        all.extend(in_credentials.unwrap_or_default());
        let is_decided = SOURCES.iter().any(|source| variables.get(source).is_some());
        let keys = if is_decided { None } else { keys(&all, name, &credentials.unwrap_or_default())? };
        Ok(Profile { keys, region: all.remove("region"), endpoint: all.remove("endpoint_url") })
    }
}

/// Sections in the configuration are named otherwise than those with credentials.
fn section_in_config(profile: &str) -> String {
    if profile == "default" { profile.to_owned() } else { format!("profile {profile}") }
}

fn place(variables: &Variables, variable: &str, name: &str) -> Option<PathBuf> {
    variables.path(variable).or_else(|| Some(variables.path("HOME")?.join(".aws").join(name)))
}

/// The settings in a section of a file; `None` if there is no such file or section.
fn settings(path: Option<&Path>, section: &str) -> Result<Option<Settings>> {
    let Some(path) = path else { return Ok(None) };
    match fs::read(path) {
        Ok(bytes) => Ok(section_of(&String::from_utf8_lossy(&bytes), section)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(READ, path, error)),
    }
}

/// The settings in a section, if it exists. Indented lines belong to the setting above, and are none.
fn section_of(text: &str, section: &str) -> Option<Settings> {
    let mut found = None;
    let mut is_inside = false;
    for line in text.lines() {
        if line.starts_with(['#', ';', ' ', '\t']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(name, _)| name) {
            is_inside = name.split_whitespace().eq(section.split_whitespace());
            if is_inside {
                found.get_or_insert_with(Settings::new);
            }
        } else if let (true, Some((key, value)), Some(found)) = (is_inside, line.split_once('='), &mut found) {
            found.insert(key.trim().to_ascii_lowercase(), without_comment(value).to_owned());
        }
    }
    found
}

/// A comment in a line with a setting begins behind a space.
fn without_comment(value: &str) -> &str {
    let end = [" #", " ;", "\t#", "\t;"].into_iter().filter_map(|start| value.find(start)).min();
    value.get(..end.unwrap_or(value.len())).unwrap_or(value).trim()
}

fn keys(settings: &Settings, profile: &str, path: &Path) -> Result<Option<Keys>> {
    let get = |name: &str| settings.get(name).filter(|value| !value.is_empty()).cloned();
    let wrong = |cause: String| Error::new(ErrorKind::Usage, READ, cause).at(path);
    match (get("aws_access_key_id"), get("aws_secret_access_key")) {
        (Some(id), Some(secret)) => Ok(Some(Keys { id, secret, token: get("aws_session_token") })),
        (None, None) => match ELSEWHERE.iter().find(|name| get(name).is_some()) {
            None => Ok(None),
            Some(name) => {
                let error = wrong(format!("the profile {profile} has no keys, but {name}, which granulo does not use"));
                let command = format!("eval \"$(aws configure export-credentials --profile {profile} --format env)\"");
                Err(error.advise(format!("run {command} first")))
            }
        },
        _ => Err(wrong(format!("the profile {profile} has only one of aws_access_key_id and aws_secret_access_key"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = AKDEFAULT\naws_secret_access_key=s/e=cret # mine\n\n\
        [ other ]\nAWS_ACCESS_KEY_ID=AKOTHER\naws_secret_access_key=two\naws_session_token=token#1\n[half]\n\
        aws_access_key_id=AK\n";
    const CONFIG: &str = "[default]\nregion = eu-central-1\ns3 =\n    region = nested\n[profile other]\n\
        endpoint_url = http://127.0.0.1:9\n[profile  login]\nsso_session = mine\n[services x]\nregion=no\n";

    fn find(more: &[(&str, &str)]) -> Result<Profile> {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join(".aws")).unwrap();
        std::fs::write(place.path().join(".aws/credentials"), CREDENTIALS).unwrap();
        std::fs::write(place.path().join(".aws/config"), CONFIG).unwrap();
        let home = place.path().to_str().unwrap().to_owned();
        let mut pairs = vec![("HOME", home.as_str())];
        pairs.extend(more);
        Profile::find(&Variables::of(&pairs))
    }

    fn keys(id: &str, secret: &str, token: Option<&str>) -> Option<Keys> {
        Some(Keys { id: id.to_owned(), secret: secret.to_owned(), token: token.map(str::to_owned) })
    }

    #[test]
    fn the_default_profile_needs_no_selection() {
        let found = find(&[]).unwrap();
        assert_eq!(found.keys, keys("AKDEFAULT", "s/e=cret", None));
        assert_eq!((found.region.as_deref(), found.endpoint), (Some("eu-central-1"), None));
    }

    #[test]
    fn a_profile_is_in_both_files() {
        let found = find(&[("AWS_PROFILE", "other")]).unwrap();
        assert_eq!(found.keys, keys("AKOTHER", "two", Some("token#1")));
        assert_eq!((found.region, found.endpoint.as_deref()), (None, Some("http://127.0.0.1:9")));
    }

    #[test]
    fn the_environment_has_precedence() {
        let found = find(&[("AWS_PROFILE", "login"), ("AWS_ACCESS_KEY_ID", "AK")]).unwrap();
        assert_eq!(found.keys, None);
    }

    #[test]
    fn profiles_without_keys_of_their_own_are_explained() {
        let error = find(&[("AWS_PROFILE", "login")]).unwrap_err();
        assert!(
            error.to_string().contains("sso_session") && error.to_string().contains("export-credentials"),
            "{error}"
        );
        assert!(find(&[("AWS_PROFILE", "half")]).unwrap_err().to_string().contains("only one of"));
        assert!(find(&[("AWS_PROFILE", "none")]).unwrap_err().to_string().contains("no profile none"));
    }

    #[test]
    fn without_files_there_is_no_profile() {
        assert_eq!(Profile::find(&Variables::default()).unwrap(), Profile::default());
        let elsewhere = [("HOME", "/nowhere"), ("AWS_CONFIG_FILE", "/nowhere/config")];
        assert_eq!(Profile::find(&Variables::of(&elsewhere)).unwrap(), Profile::default());
    }

    #[test]
    fn secrets_are_not_printed() {
        assert!(!format!("{:?}", keys("AK", "hidden", Some("hidden"))).contains("hidden"));
    }
}
