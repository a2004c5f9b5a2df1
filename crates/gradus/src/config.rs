//! Settings from the environment and from `gradus.toml`. A flag wins over the environment, the environment over the
//! file, the file over the default. No other module reads the environment.
//!
//! A repository can contain a `gradus.toml`, so a file that was found in the working directory and not named by the
//! user is untrusted input: keys that run programs, send data or delete traces are refused until the user trusts the
//! file (`consent` classifies the keys, `trust` records the consent).

mod consent;
mod effective;
mod environment;
mod keys;
mod reference;
mod sections;
mod trust;
mod variables;

use gradus_store::StoreLocation;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use gradus_eval::annotation::AnnotationSettings;
use gradus_eval::judge_selection::JudgeConfig;
use gradus_phoenix::client::PhoenixClientSettings;

pub(crate) use consent::ConsentRequest;
pub(crate) use effective::{ConfigOverride, EffectiveConfig, EffectiveValue, LocatedValues, ShownValue, ValueSource};
pub(crate) use environment::EnvironmentVariables;
#[cfg(feature = "s3")]
pub(crate) use environment::S3Variables;
pub(crate) use reference::{format_value, render_reference};
pub(crate) use sections::{ConfigFile, DEFAULT_STATE_DIR, EvalSection, JudgeSection, PhoenixSection};
pub(crate) use trust::{TrustError, TrustStore, canonical_name, digest_bytes};
pub(crate) use variables::{BRANCH_VARIABLES, COMMIT_VARIABLES, list_variable_groups};

/// Why settings could not be read or may not be used. Each message is one line with the path of the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    NotUtf8 { path: PathBuf, source: std::str::Utf8Error },
    /// Not TOML, a key that does not exist, or a value of the wrong type. The parser's message can have several lines.
    #[error("{}, line {line}: {}", path.display(), source.message().replace('\n', " "))]
    Format { path: PathBuf, line: usize, source: Box<toml::de::Error> },
    /// The list of trusted files could not be read, so trust cannot be decided.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// `keys` are the refused keys with their effects. Values are left out, as they may hold secrets.
    #[error(
        "settings refused: {}: found in this folder and not trusted, and it sets {}; hint: read the file, then run `gradus trust`; where nobody can confirm it, set GRADUS_TRUST_CONFIG=1",
        path.display(),
        keys.join(", ")
    )]
    Untrusted { path: PathBuf, keys: Vec<String> },
}

/// Returns the state folder: the given one, else GRADUS_STATE_DIR, else `state_dir` of the settings file, else
/// `.gradus`. With a given folder no file is read, so that a broken `gradus.toml` does not stop commands that do not
/// need it.
pub(crate) fn resolve_data_folder(given: Option<&Path>) -> Result<PathBuf, ConfigError> {
    if let Some(folder) = given {
        return Ok(folder.to_owned());
    }
    let environment = EnvironmentVariables::read();
    let file = ConfigFile::read(environment.config.as_deref())?;
    Ok(environment.state_dir.or(file.state_dir).unwrap_or_else(|| PathBuf::from(DEFAULT_STATE_DIR)))
}

/// Returns where the store is: at the address of `--store`, in the folder of `--data`, at the address in
/// `GRADUS_STORE`, or in the state folder.
pub(crate) fn store_location(address: Option<&str>, data: Option<&Path>) -> Result<StoreLocation, StoreLocationError> {
    match store_address(address, data) {
        Some(address) => Ok(StoreLocation::from_address(&address)?),
        None => Ok(StoreLocation::Folder(resolve_data_folder(data)?)),
    }
}

/// Returns the address of a store outside of the state folder. A folder on the command line wins over the
/// environment.
pub(crate) fn store_address(address: Option<&str>, data: Option<&Path>) -> Option<String> {
    match (address, data) {
        (Some(address), _) => Some(address.to_owned()),
        (None, Some(_)) => None,
        (None, None) => EnvironmentVariables::read().store.map(|store| store.expose().to_owned()),
    }
}

/// Why the store of a command cannot be determined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreLocationError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] gradus_store::StoreError),
}

/// The name that is looked for in the working directory. Parent folders are not searched.
pub(crate) const CONFIG_FILE_NAME: &str = "gradus.toml";
/// Maximum number of refused keys in one message; `gradus trust` shows all.
const MAX_NAMED_KEYS: usize = 20;
/// Maximum size of a configuration file in bytes. A found file may be a link to anything.
const MAX_FILE_BYTES: u64 = 4 << 20;

impl ConfigFile {
    /// Reads a file that the user named, or `gradus.toml` in the working directory if it exists. Naming a file is
    /// consent to its contents; a file that was only found must be trusted if one of its keys needs consent.
    pub(crate) fn read(named: Option<&Path>) -> Result<ConfigFile, ConfigError> {
        let Some(unchecked) = UncheckedFile::find(named)? else { return Ok(ConfigFile::default()) };
        if named.is_none() {
            unchecked.check_trust(&EnvironmentVariables::read())?;
        }
        Ok(unchecked.into_settings())
    }

    /// Returns the judge by the file alone. Its name and address go into the `fallback_*` fields, because flags and
    /// the environment take precedence over them.
    pub(crate) fn judge_config(&self) -> JudgeConfig {
        let default = JudgeConfig::default();
        JudgeConfig {
            fallback_judge: self.judge.name.clone(),
            fallback_base_url: self.judge.base_url.clone(),
            concurrency: self.judge.concurrency,
            timeout_s: self.judge.timeout_s,
            load_wait_s: self.judge.load_wait_s,
            max_tokens: self.judge.max_tokens.unwrap_or(default.max_tokens),
            context_tokens: self.judge.context_tokens.unwrap_or(default.context_tokens),
            temperature: self.judge.temperature.or(default.temperature),
            prices: self.eval.prices.clone(),
            ..default
        }
    }

    /// Makes relative paths relative to the folder of the file instead of the working directory.
    fn join_paths(&mut self, folder: &Path) {
        let EvalSection { rubrics, tools, tool_notes, prices, calibration, .. } = &mut self.eval;
        let paths = [&mut self.state_dir, tools, tool_notes, prices, calibration];
        let of_rules = self.rule.iter_mut().flat_map(|rule| [&mut rule.tools, &mut rule.tool_notes]);
        let named = paths.into_iter().chain(of_rules).flatten();
        for named in named.chain(rubrics).chain(&mut self.serve.calibration) {
            *named = folder.join(&named);
        }
    }
}

impl PhoenixSection {
    /// Combines the section with the credentials, which come from the environment only.
    pub(crate) fn client_settings(&self, environment: &EnvironmentVariables) -> PhoenixClientSettings {
        PhoenixClientSettings {
            timeout_s: self.timeout_s,
            retry_s: self.retry_s,
            api_key: environment.phoenix_key.clone(),
            headers: environment.phoenix_headers.clone(),
        }
    }

    /// Returns how outcomes become annotations, for exports to Phoenix and for the server.
    pub(crate) fn annotation_settings(&self) -> AnnotationSettings {
        let mut names = self.names_preset.to_names();
        names.extend(self.names.clone());
        AnnotationSettings { trajectory_target: self.trajectory_target, include_abstentions: self.abstentions, names }
    }
}

/// A file that was read and whose trust was not checked yet. The bytes are read once: the bytes that are checked, shown
/// and trusted are the bytes that are used, even if the file changes meanwhile.
pub(crate) struct UncheckedFile {
    pub(crate) path: PathBuf,
    /// Where each key is set.
    pub(crate) located: LocatedValues,
    /// BLAKE3 of the bytes, in hexadecimal.
    pub(crate) digest: String,
    /// Keys that need consent, in the order of the sections.
    pub(crate) requests: Vec<ConsentRequest>,
    file: ConfigFile,
}

impl UncheckedFile {
    /// Reads the named file, else the one in the working directory, if there is one.
    pub(crate) fn find(named: Option<&Path>) -> Result<Option<UncheckedFile>, ConfigError> {
        match named {
            Some(path) => UncheckedFile::read(path).map(Some),
            None if Path::new(CONFIG_FILE_NAME).is_file() => UncheckedFile::read(Path::new(CONFIG_FILE_NAME)).map(Some),
            None => Ok(None),
        }
    }

    /// Parses a file and finds the keys that need consent. Nothing in it takes effect yet.
    pub(crate) fn read(path: &Path) -> Result<UncheckedFile, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(unreadable(std::io::Error::other("it is larger than 4 MB")));
        }
        let text =
            std::str::from_utf8(&bytes).map_err(|source| ConfigError::NotUtf8 { path: path.to_owned(), source })?;
        let refused = |error: toml::de::Error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            ConfigError::Format { path: path.to_owned(), line, source: Box::new(error) }
        };
        let file: ConfigFile = toml::from_str(text).map_err(refused)?;
        let located = LocatedValues::parse(path, text).map_err(refused)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let requests = consent::find_consent_requests(&file, folder);
        Ok(UncheckedFile { path: path.to_owned(), digest: digest_bytes(&bytes), requests, located, file })
    }

    /// Passes if nothing needs consent, or if the user consented to exactly these bytes.
    pub(crate) fn check_trust(&self, environment: &EnvironmentVariables) -> Result<(), ConfigError> {
        if self.requests.is_empty() || environment.trusts_found_config {
            return Ok(());
        }
        let is_trusted = match environment.trust_store() {
            Ok(store) => store.is_trusted(&self.path, &self.digest, &self.requests),
            // Without a home directory (containers) nothing can be trusted, and the message about the keys says more.
            Err(TrustError::NoFolder) => Ok(false),
            Err(error) => Err(error),
        };
        if is_trusted? {
            return Ok(());
        }
        let named = self.requests.iter().take(MAX_NAMED_KEYS);
        let mut keys: Vec<String> = named.map(|request| format!("{} ({})", request.key, request.effect)).collect();
        if let Some(more @ 1..) = self.requests.len().checked_sub(MAX_NAMED_KEYS) {
            keys.push(format!("{more} more"));
        }
        Err(ConfigError::Untrusted { path: self.path.clone(), keys })
    }

    /// Returns the settings, with paths joined to the folder of the file. Consent is about paths as the file has
    /// them, so they are joined only here.
    pub(crate) fn into_settings(mut self) -> ConfigFile {
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            self.file.join_paths(folder);
        }
        self.file.path = Some(self.path);
        self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let path = || PathBuf::from("gradus.toml");
        let list = || PathBuf::from("state/trusted.json");
        let denied = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let not_utf8 = String::from_utf8(vec![b'a', 0xff]).expect_err("not UTF-8").utf8_error();
        let not_toml = toml::from_str::<ConfigFile>("[judge").expect_err("not TOML");
        let not_json = serde_json::from_str::<serde_json::Value>("[1,").expect_err("no JSON");
        let errors = [
            ConfigError::Unreadable { path: path(), source: denied() },
            ConfigError::NotUtf8 { path: path(), source: not_utf8 },
            ConfigError::Format { path: path(), line: 1, source: Box::new(not_toml) },
            ConfigError::Trust(TrustError::NoFolder),
            ConfigError::Trust(TrustError::Io { path: list(), source: denied() }),
            ConfigError::Trust(TrustError::Format { path: list(), source: not_json }),
            ConfigError::Trust(TrustError::Writable { path: list() }),
            ConfigError::Untrusted {
                path: path(),
                keys: vec![
                    "judge.base_url (sends traces there)".to_owned(),
                    "alert.command (runs a program)".to_owned(),
                ],
            },
        ];
        insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"));
    }

    /// The reference marks exactly the keys that can need consent.
    #[test]
    fn the_reference_marks_these_keys() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut wrong = Vec::new();
        for table in keys::list_config_tables() {
            for key in &table.keys {
                // A value that needs consent wherever one can.
                let value = match key.type_text.as_str() {
                    "list of texts" | "list of URLs" | "list of paths" | "list of networks" => "['/x']",
                    "integer" | "number" => "1",
                    "boolean" => "true",
                    "table of texts" => "{ a = 'b' }",
                    text if text.contains("span") => "'span'",
                    text if text.contains("plain") => "'plain'",
                    _ => "'/x'",
                };
                let mut toml = match (table.path.as_str(), table.is_array) {
                    ("", _) => String::new(),
                    (path, true) => format!("[[{path}]]\n"),
                    (path, false) => format!("[{path}]\n"),
                };
                toml.push_str(&format!("{} = {value}\n", key.name));
                for required in ["name", "when"].iter().filter(|name| table.path == "alert" && key.name != **name) {
                    toml.push_str(&format!("{required} = 'x'\n"));
                }
                let file: ConfigFile = toml::from_str(&toml).unwrap_or_else(|error| panic!("{toml}: {error}"));
                let needs_consent = !consent::find_consent_requests(&file, folder.path()).is_empty();
                if needs_consent != key.trust.is_some() {
                    wrong.push(format!("{}.{}: needs consent: {needs_consent}", table.path, key.name));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn refuses_unknown_keys_with_their_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gradus.toml");
        std::fs::write(&path, "[judge]\nname = \"m\"\nconcurency = 3\n").expect("written");
        let error = ConfigFile::read(Some(&path)).expect_err("a wrong key").to_string();
        assert!(error.contains("line 3") && error.contains("concurency") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn paths_are_found_from_where_the_file_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gradus.toml");
        let text = "[eval]\nrubrics = [\"mine\"]\nprices = \"/p.toml\"\n[serve]\ncalibration = [\"c.json\"]\n";
        std::fs::write(&path, text).expect("written");
        let file = ConfigFile::read(Some(&path)).expect("a file");
        assert_eq!(file.eval.rubrics, [folder.path().join("mine")]);
        assert_eq!(file.serve.calibration, [folder.path().join("c.json")]);
        assert_eq!(file.eval.prices.as_deref(), Some(Path::new("/p.toml")));
    }
}
