//! Settings from the environment and from `gradus.toml`. A flag wins over the environment, the environment over the
//! file, the file over the default. Nothing else reads the environment. A file that was only found, and not named, gets
//! what it asks for only if the user trusts it.

mod consent;
mod trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gradus_eval::annotation::{AnnotationSettings, TrajectoryTarget};
use gradus_eval::judge_selection::{JudgeConfig, JudgeCredentials};
use gradus_http::SecretString;
use gradus_phoenix::client::PhoenixClientSettings;
use gradus_server::alert::AlertSection;
use gradus_server::{RuleSection, ServeSection};
use serde::Deserialize;

pub(crate) use consent::ConsentRequest;
pub(crate) use trust::{TrustError, TrustStore, canonical_name, digest_bytes};

/// The file, if there is one.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    /// Where it was read from; `None` when there is no file.
    #[serde(skip)]
    pub(crate) path: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    #[serde(default)]
    pub(crate) judge: JudgeSection,
    #[serde(default)]
    pub(crate) eval: EvalSection,
    #[serde(default)]
    pub(crate) phoenix: PhoenixSection,
    #[serde(default)]
    pub(crate) serve: ServeSection,
    /// How projects are judged while traces come in.
    #[serde(default)]
    pub(crate) rule: Vec<RuleSection>,
    #[serde(default)]
    pub(crate) alert: Vec<AlertSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JudgeSection {
    /// As `--judge`.
    pub(crate) name: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) timeout_s: Option<f64>,
    /// How long to wait for a model server that is still loading its model.
    pub(crate) load_wait_s: Option<f64>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) temperature: Option<f64>,
    pub(crate) context_tokens: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EvalSection {
    pub(crate) evaluators: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) rubrics: Vec<PathBuf>,
    pub(crate) tools: Option<PathBuf>,
    pub(crate) tool_notes: Option<PathBuf>,
    pub(crate) prices: Option<PathBuf>,
    #[serde(default)]
    pub(crate) gates: Vec<String>,
}

/// How Phoenix is asked, and how verdicts look there. Where it is, a folder from elsewhere must not say: the key goes there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhoenixSection {
    /// How long it may say nothing.
    pub(crate) timeout_s: Option<f64>,
    /// How long to try again while it cannot be reached or fails.
    pub(crate) retry_s: Option<f64>,
    #[serde(default)]
    pub(crate) trajectory_target: TrajectoryTarget,
    /// What evaluations are called there, by their names here.
    #[serde(default)]
    pub(crate) names: BTreeMap<String, String>,
}

impl PhoenixSection {
    pub(crate) fn client_settings(&self, environment: &EnvironmentVariables) -> PhoenixClientSettings {
        PhoenixClientSettings {
            timeout_s: self.timeout_s,
            retry_s: self.retry_s,
            api_key: environment.phoenix_key.clone(),
            headers: environment.phoenix_headers.clone(),
        }
    }

    pub(crate) fn annotation_settings(&self) -> AnnotationSettings {
        AnnotationSettings { trajectory_target: self.trajectory_target, names: self.names.clone() }
    }
}

/// What the environment says.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnvironmentVariables {
    pub(crate) openai_key: Option<SecretString>,
    pub(crate) openai_base_url: Option<String>,
    pub(crate) openai_model: Option<String>,
    pub(crate) anthropic_key: Option<SecretString>,
    pub(crate) anthropic_base_url: Option<String>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) config: Option<PathBuf>,
    /// For servers that are read from.
    pub(crate) gradus_key: Option<SecretString>,
    /// As Phoenix's own clients are told where it is.
    pub(crate) phoenix_url: Option<String>,
    pub(crate) phoenix_key: Option<SecretString>,
    pub(crate) phoenix_headers: Option<SecretString>,
    pub(crate) phoenix_project: Option<String>,
    /// As OpenTelemetry's exporters are told what to send along.
    pub(crate) otlp_headers: Option<SecretString>,
    pub(crate) otlp_endpoint: Option<String>,
    /// As GitHub's own runners are told where its API is.
    pub(crate) github_url: Option<String>,
    /// Whether found settings are trusted, for unattended use.
    pub(crate) trusts_found_config: bool,
    state_home: Option<PathBuf>,
    home: Option<PathBuf>,
}

impl EnvironmentVariables {
    pub(crate) fn read() -> EnvironmentVariables {
        // Empty is as good as not set: CI systems set variables of missing secrets to nothing.
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
        }
    }

    pub(crate) fn judge_credentials(&self) -> JudgeCredentials {
        JudgeCredentials {
            openai_key: self.openai_key.clone(),
            openai_base_url: self.openai_base_url.clone(),
            openai_model: self.openai_model.clone(),
            anthropic_key: self.anthropic_key.clone(),
            anthropic_base_url: self.anthropic_base_url.clone(),
        }
    }

    /// Where it is recorded which found settings the user trusts.
    pub(crate) fn trust_store(&self) -> Result<TrustStore, TrustError> {
        TrustStore::from_folders(self.state_home.as_deref(), self.home.as_deref())
    }

    /// A key or token in a variable that the user named.
    pub(crate) fn read_secret(name: &str) -> Option<SecretString> {
        std::env::var(name).ok().map(SecretString::new).filter(|secret| !secret.is_empty())
    }
}

/// Where runs and the store are: as given, else as the environment or the file has it.
pub(crate) fn data_folder(given: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(folder) = given {
        return Ok(folder.to_owned());
    }
    let environment = EnvironmentVariables::read();
    let file = ConfigFile::read(environment.config.as_deref())?;
    Ok(environment.state_dir.or(file.state_dir).unwrap_or_else(|| PathBuf::from(".gradus")))
}

/// The file's usual name.
pub(crate) const FILE_NAME: &str = "gradus.toml";
/// So many refused keys are named at most; `gradus trust` shows all.
const MAX_NAMED_KEYS: usize = 20;

impl ConfigFile {
    /// Reads a file that was named, or `gradus.toml` here if there is one. What was only found must be trusted if it asks
    /// for anything that needs it.
    pub(crate) fn read(named: Option<&Path>) -> Result<ConfigFile, String> {
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

    /// The judge as the file alone has it: flags and the environment win over what it names.
    pub(crate) fn judge_config(&self) -> JudgeConfig {
        let default = JudgeConfig::default();
        JudgeConfig {
            fallback_judge: self.judge.name.clone(),
            fallback_base_url: self.judge.base_url.clone(),
            concurrency: self.judge.concurrency.unwrap_or(default.concurrency),
            timeout_s: self.judge.timeout_s.unwrap_or(default.timeout_s),
            load_wait_s: self.judge.load_wait_s,
            max_tokens: self.judge.max_tokens.unwrap_or(default.max_tokens),
            context_tokens: self.judge.context_tokens.unwrap_or(default.context_tokens),
            temperature: self.judge.temperature.or(default.temperature),
            prices: self.eval.prices.clone(),
            ..default
        }
    }

    /// What a file names is found from where the file is.
    fn join_paths(&mut self, folder: &Path) {
        let paths = [&mut self.state_dir, &mut self.eval.tools, &mut self.eval.tool_notes, &mut self.eval.prices];
        let of_rules = self.rule.iter_mut().flat_map(|rule| [&mut rule.tools, &mut rule.tool_notes]);
        let named = paths.into_iter().chain(of_rules).flatten();
        for named in named.chain(&mut self.eval.rubrics) {
            *named = folder.join(&named);
        }
    }
}

/// A file that was read and not yet used. What is checked, shown and trusted are the same bytes that are used.
pub(crate) struct UncheckedFile {
    path: PathBuf,
    pub(crate) digest: String,
    pub(crate) requests: Vec<ConsentRequest>,
    file: ConfigFile,
}

impl UncheckedFile {
    pub(crate) fn read(path: &Path) -> Result<UncheckedFile, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = std::str::from_utf8(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        let file: ConfigFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            format!("{}, line {line}: {}", path.display(), error.message().replace('\n', " "))
        })?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let requests = consent::find_consent_requests(&file, folder);
        Ok(UncheckedFile { path: path.to_owned(), digest: digest_bytes(&bytes), requests, file })
    }

    fn check_trust(&self, environment: &EnvironmentVariables) -> Result<(), String> {
        if self.requests.is_empty() || environment.trusts_found_config {
            return Ok(());
        }
        let is_trusted = match environment.trust_store() {
            Ok(store) => store.is_trusted(&self.path, &self.digest, &self.requests),
            Err(TrustError::NoFolder) => Ok(false),
            Err(error) => Err(error),
        };
        if is_trusted.map_err(|error| error.to_string())? {
            return Ok(());
        }
        let named = self.requests.iter().take(MAX_NAMED_KEYS);
        let mut keys: Vec<String> = named.map(|request| format!("{} ({})", request.key, request.effect)).collect();
        if let Some(more @ 1..) = self.requests.len().checked_sub(MAX_NAMED_KEYS) {
            keys.push(format!("{more} more"));
        }
        Err(format!(
            "settings refused: {}: found in this folder and not trusted, and it sets {}; hint: read the file, then run `gradus trust`; where nobody can confirm it, set GRADUS_TRUST_CONFIG=1",
            self.path.display(),
            keys.join(", ")
        ))
    }

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
    fn refuses_unknown_keys_with_their_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gradus.toml");
        std::fs::write(&path, "[judge]\nname = \"m\"\nconcurency = 3\n").expect("written");
        let error = ConfigFile::read(Some(&path)).expect_err("a wrong key");
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
