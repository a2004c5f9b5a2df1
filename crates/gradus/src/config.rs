//! Settings from the environment and from `gradus.toml`. A flag wins over the environment, the environment over the
//! file, the file over the default. No other module reads the environment.
//!
//! A repository can contain a `gradus.toml`, so a file that was found in the working directory and not named by the
//! user is untrusted input: keys that run programs, send data or delete traces are refused until the user trusts the
//! file (`consent` classifies the keys, `trust` records the consent).

mod consent;
mod trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gradus_eval::annotation::{AnnotationNamePreset, AnnotationSettings, TrajectoryTarget};
use gradus_eval::judge_selection::{JudgeConfig, JudgeCredentials};
use gradus_http::SecretString;
use gradus_phoenix::client::PhoenixClientSettings;
use gradus_server::alert::AlertSection;
use gradus_server::{RuleSection, ServeSection};
use serde::Deserialize;

pub(crate) use consent::ConsentRequest;
pub(crate) use trust::{TrustError, TrustStore, canonical_name, digest_bytes};

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

/// The contents of `gradus.toml`; without a file, all fields have their defaults. Unknown keys are errors, so that a
/// misspelled setting does not silently fall back to its default. Each section is also classified in `consent`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    /// The file that was read; `None` when there is no file.
    #[serde(skip)]
    pub(crate) path: Option<PathBuf>,
    /// The folder of runs, verdict cache and store; `.gradus` by default.
    pub(crate) state_dir: Option<PathBuf>,
    #[serde(default)]
    pub(crate) judge: JudgeSection,
    #[serde(default)]
    pub(crate) eval: EvalSection,
    #[serde(default)]
    pub(crate) phoenix: PhoenixSection,
    #[serde(default)]
    pub(crate) serve: ServeSection,
    /// How the server grades incoming traces, by project.
    #[serde(default)]
    pub(crate) rule: Vec<RuleSection>,
    #[serde(default)]
    pub(crate) alert: Vec<AlertSection>,
}

/// `[judge]`: the same settings as the options in `cli::judge_options`, with the same units and defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JudgeSection {
    /// As `--judge`.
    pub(crate) name: Option<String>,
    pub(crate) base_url: Option<String>,
    /// Questions in flight at most.
    pub(crate) concurrency: Option<usize>,
    /// Timeout of one call, in seconds.
    pub(crate) timeout_s: Option<f64>,
    /// How long to wait for a model server that is still loading its model, in seconds.
    pub(crate) load_wait_s: Option<f64>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) temperature: Option<f64>,
    pub(crate) context_tokens: Option<usize>,
}

/// `[eval]`: defaults of `gradus eval` and `gradus bench`; `gradus serve` uses the evaluators, rubrics and tools.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EvalSection {
    /// Names of evaluators and of sets; `None` means the set `core`.
    pub(crate) evaluators: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) rubrics: Vec<PathBuf>,
    pub(crate) tools: Option<PathBuf>,
    pub(crate) tool_notes: Option<PathBuf>,
    pub(crate) prices: Option<PathBuf>,
    /// As `--calibration`; for `gradus report`, too.
    pub(crate) calibration: Option<PathBuf>,
    /// Gates as text, parsed when the metrics of the run are known. Gates on the command line replace them.
    #[serde(default)]
    pub(crate) gates: Vec<String>,
}

/// `[phoenix]`: how the client sends requests, and how verdicts appear in Phoenix. There is no address here on purpose:
/// PHOENIX_API_KEY is sent to the address, so only flags and the environment may set it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhoenixSection {
    /// How long a request may go without an answer, in seconds.
    pub(crate) timeout_s: Option<f64>,
    /// How long requests are retried while Phoenix is unreachable or fails, in seconds. Also used for OTLP exports.
    pub(crate) retry_s: Option<f64>,
    /// Whether verdicts on a whole trajectory are attached to its root span or to its trace.
    #[serde(default)]
    pub(crate) trajectory_target: TrajectoryTarget,
    /// Whether outcomes that the judge cannot decide are written to Phoenix.
    #[serde(default)]
    pub(crate) abstentions: bool,
    /// Which names annotations have where `names` gives none.
    #[serde(default)]
    pub(crate) names_preset: AnnotationNamePreset,
    /// Annotation names in Phoenix, by evaluator name.
    #[serde(default)]
    pub(crate) names: BTreeMap<String, String>,
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

    /// How outcomes become annotations, for exports to Phoenix and for the server.
    pub(crate) fn annotation_settings(&self) -> AnnotationSettings {
        let mut names = self.names_preset.to_names();
        names.extend(self.names.clone());
        AnnotationSettings { trajectory_target: self.trajectory_target, include_abstentions: self.abstentions, names }
    }
}

/// All environment variables that Gradus reads, except tokens in variables that the user names (`read_secret`). Keys
/// are `SecretString`s, which register themselves for masking: no message prints them.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnvironmentVariables {
    pub(crate) openai_key: Option<SecretString>,
    pub(crate) openai_base_url: Option<String>,
    pub(crate) openai_model: Option<String>,
    pub(crate) anthropic_key: Option<SecretString>,
    pub(crate) anthropic_base_url: Option<String>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) config: Option<PathBuf>,
    /// GRADUS_API_KEY: the key for `gradus://` sources.
    pub(crate) gradus_key: Option<SecretString>,
    /// The PHOENIX_* variables have the names and the format of Phoenix's own clients.
    pub(crate) phoenix_url: Option<String>,
    pub(crate) phoenix_key: Option<SecretString>,
    pub(crate) phoenix_headers: Option<SecretString>,
    pub(crate) phoenix_project: Option<String>,
    /// The OTEL_EXPORTER_OTLP_* variables of the OpenTelemetry specification. The headers can hold a key.
    pub(crate) otlp_headers: Option<SecretString>,
    pub(crate) otlp_endpoint: Option<String>,
    /// GITHUB_API_URL, as GitHub Actions sets it.
    pub(crate) github_url: Option<String>,
    /// GRADUS_TRUST_CONFIG: trusts whatever `gradus.toml` is found, for CI jobs where nobody can confirm it.
    pub(crate) trusts_found_config: bool,
    /// XDG_STATE_HOME and HOME: where the list of trusted files is kept.
    state_home: Option<PathBuf>,
    home: Option<PathBuf>,
    /// USER: who labels.
    pub(crate) user_name: Option<String>,
}

impl EnvironmentVariables {
    /// Reads the environment now; nothing is cached.
    pub(crate) fn read() -> EnvironmentVariables {
        // An empty variable counts as unset: CI systems set variables of missing secrets to the empty string.
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        EnvironmentVariables {
            openai_key: text("OPENAI_API_KEY").map(SecretString::new),
            openai_base_url: text("OPENAI_BASE_URL"),
            openai_model: text("OPENAI_MODEL"),
            anthropic_key: text("ANTHROPIC_API_KEY").map(SecretString::new),
            anthropic_base_url: text("ANTHROPIC_BASE_URL"),
            state_dir: text("GRADUS_STATE_DIR").map(PathBuf::from),
            config: text("GRADUS_CONFIG").map(PathBuf::from),
            gradus_key: text("GRADUS_API_KEY").map(SecretString::new),
            phoenix_url: text("PHOENIX_COLLECTOR_ENDPOINT"),
            phoenix_key: text("PHOENIX_API_KEY").map(SecretString::new),
            phoenix_headers: text("PHOENIX_CLIENT_HEADERS").map(SecretString::new),
            phoenix_project: text("PHOENIX_PROJECT_NAME"),
            otlp_headers: text("OTEL_EXPORTER_OTLP_HEADERS").map(SecretString::new),
            otlp_endpoint: text("OTEL_EXPORTER_OTLP_ENDPOINT"),
            github_url: text("GITHUB_API_URL"),
            trusts_found_config: text("GRADUS_TRUST_CONFIG")
                .is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true")),
            state_home: text("XDG_STATE_HOME").map(PathBuf::from),
            home: text("HOME").map(PathBuf::from),
            user_name: text("USER"),
        }
    }

    /// The part of the environment that selects a judge. `eval` does not read the environment itself.
    pub(crate) fn judge_credentials(&self) -> JudgeCredentials {
        JudgeCredentials {
            openai_key: self.openai_key.clone(),
            openai_base_url: self.openai_base_url.clone(),
            openai_model: self.openai_model.clone(),
            anthropic_key: self.anthropic_key.clone(),
            anthropic_base_url: self.anthropic_base_url.clone(),
        }
    }

    /// The list of trusted files. Fails when neither XDG_STATE_HOME nor HOME is an absolute path.
    pub(crate) fn trust_store(&self) -> Result<TrustStore, TrustError> {
        TrustStore::from_folders(self.state_home.as_deref(), self.home.as_deref())
    }

    /// A key or token in a variable that the user named with an option; `None` if it is unset or empty.
    pub(crate) fn read_secret(name: &str) -> Option<SecretString> {
        std::env::var(name).ok().map(SecretString::new).filter(|secret| !secret.is_empty())
    }
}

/// The state folder: the given one, else GRADUS_STATE_DIR, else `state_dir` of the settings file, else `.gradus`. With
/// a given folder no file is read, so that a broken `gradus.toml` does not stop commands that do not need it.
pub(crate) fn data_folder(given: Option<&Path>) -> Result<PathBuf, ConfigError> {
    if let Some(folder) = given {
        return Ok(folder.to_owned());
    }
    let environment = EnvironmentVariables::read();
    let file = ConfigFile::read(environment.config.as_deref())?;
    Ok(environment.state_dir.or(file.state_dir).unwrap_or_else(|| PathBuf::from(".gradus")))
}

/// The name that is looked for in the working directory. Parent folders are not searched.
pub(crate) const FILE_NAME: &str = "gradus.toml";
/// Refused keys that one message lists at most; `gradus trust` shows all.
const MAX_NAMED_KEYS: usize = 20;

impl ConfigFile {
    /// Reads a file that the user named, or `gradus.toml` in the working directory if it exists. Naming a file is
    /// consent to its contents; a file that was only found must be trusted if one of its keys needs consent.
    pub(crate) fn read(named: Option<&Path>) -> Result<ConfigFile, ConfigError> {
        let (path, is_found) = match named {
            Some(path) => (path, false),
            None if Path::new(FILE_NAME).is_file() => (Path::new(FILE_NAME), true),
            None => return Ok(ConfigFile::default()),
        };
        let unchecked = UncheckedFile::read(path)?;
        if is_found {
            unchecked.check_trust(&EnvironmentVariables::read())?;
        }
        Ok(unchecked.into_settings())
    }

    /// The judge by the file alone. Its name and address go into the `fallback_*` fields, because flags and the
    /// environment take precedence over them.
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
        for named in named.chain(rubrics) {
            *named = folder.join(&named);
        }
    }
}

/// A file that was read and whose trust was not checked yet. The bytes are read once: the bytes that are checked, shown
/// and trusted are the bytes that are used, even if the file changes meanwhile.
pub(crate) struct UncheckedFile {
    path: PathBuf,
    /// BLAKE3 of the bytes, in hexadecimal.
    pub(crate) digest: String,
    /// Keys that need consent, in the order of the sections.
    pub(crate) requests: Vec<ConsentRequest>,
    file: ConfigFile,
}

impl UncheckedFile {
    /// Parses a file and finds the keys that need consent. Nothing in it takes effect yet.
    pub(crate) fn read(path: &Path) -> Result<UncheckedFile, ConfigError> {
        let bytes = std::fs::read(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let text =
            std::str::from_utf8(&bytes).map_err(|source| ConfigError::NotUtf8 { path: path.to_owned(), source })?;
        let file: ConfigFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            ConfigError::Format { path: path.to_owned(), line, source: Box::new(error) }
        })?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let requests = consent::find_consent_requests(&file, folder);
        Ok(UncheckedFile { path: path.to_owned(), digest: digest_bytes(&bytes), requests, file })
    }

    /// Passes if nothing needs consent, or if the user consented to exactly these bytes.
    fn check_trust(&self, environment: &EnvironmentVariables) -> Result<(), ConfigError> {
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

    /// Paths are joined here and not before: consent is about paths as the file has them.
    fn into_settings(mut self) -> ConfigFile {
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
        std::fs::write(&path, "[eval]\nrubrics = [\"mine\"]\nprices = \"/p.toml\"\n").expect("written");
        let file = ConfigFile::read(Some(&path)).expect("a file");
        assert_eq!(file.eval.rubrics, [folder.path().join("mine")]);
        assert_eq!(file.eval.prices.as_deref(), Some(Path::new("/p.toml")));
    }
}
