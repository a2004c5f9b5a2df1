//! Every environment variable that Gradus reads, and those that it sets for programs. The reference page is made from
//! these tables. A test searches the source for variables that are missing here.

use gradus_import::SESSION_LOCATIONS;

/// Variables of GitHub, GitLab, Buildkite, CircleCI, Bitbucket, Azure, Travis and Jenkins.
pub(crate) const COMMIT_VARIABLES: [&str; 8] = [
    "GITHUB_SHA",
    "CI_COMMIT_SHA",
    "BUILDKITE_COMMIT",
    "CIRCLE_SHA1",
    "BITBUCKET_COMMIT",
    "BUILD_SOURCEVERSION",
    "TRAVIS_COMMIT",
    "GIT_COMMIT",
];
/// The source branch of a pull request comes before the name of its merge.
pub(crate) const BRANCH_VARIABLES: [&str; 9] = [
    "GITHUB_HEAD_REF",
    "GITHUB_REF_NAME",
    "CI_COMMIT_REF_NAME",
    "BUILDKITE_BRANCH",
    "CIRCLE_BRANCH",
    "BITBUCKET_BRANCH",
    "BUILD_SOURCEBRANCHNAME",
    "TRAVIS_BRANCH",
    "GIT_BRANCH",
];

/// Variables with one meaning.
#[derive(Clone, Debug)]
pub(crate) struct VariableEntry {
    /// The first one that is set counts.
    pub(crate) names: Vec<&'static str>,
    pub(crate) meaning: &'static str,
    /// The option that wins over the variable.
    pub(crate) option: Option<&'static str>,
    /// The value is a key, or may contain one.
    pub(crate) is_secret: bool,
}

/// A heading of the reference, with its variables.
#[derive(Clone, Debug)]
pub(crate) struct VariableGroup {
    pub(crate) title: &'static str,
    pub(crate) entries: Vec<VariableEntry>,
}

impl VariableEntry {
    fn new(name: &'static str, meaning: &'static str) -> VariableEntry {
        VariableEntry::with_names(&[name], meaning)
    }

    fn with_names(names: &[&'static str], meaning: &'static str) -> VariableEntry {
        VariableEntry { names: names.to_vec(), meaning, option: None, is_secret: false }
    }

    fn option(self, option: &'static str) -> VariableEntry {
        VariableEntry { option: Some(option), ..self }
    }

    fn secret(self) -> VariableEntry {
        VariableEntry { is_secret: true, ..self }
    }
}

/// Whether the reference has a variable.
pub(super) fn is_listed(name: &str) -> bool {
    list_variable_groups().iter().flat_map(|group| &group.entries).any(|entry| entry.names.contains(&name))
}

/// Lists all variables that are read, in the order of the reference.
pub(crate) fn list_variable_groups() -> Vec<VariableGroup> {
    let group = |title, entries| VariableGroup { title, entries };
    vec![
        group("Gradus", gradus_entries()),
        group("Models", model_entries()),
        group("Phoenix and OTLP", phoenix_entries()),
        group("S3", s3_entries()),
        group("GitHub", github_entries()),
        group("Code version", code_version_entries()),
        group("Sessions of coding agents", session_entries()),
        group("Network", network_entries()),
        group("System and terminal", system_entries()),
    ]
}

fn gradus_entries() -> Vec<VariableEntry> {
    vec![
        VariableEntry::new("GRADUS_CONFIG", "the configuration file. A file named here is trusted").option("--config"),
        VariableEntry::new("GRADUS_STATE_DIR", "the state folder; wins over `state_dir`").option("--state-dir, --data"),
        VariableEntry::new("GRADUS_STORE", "the address of a store in PostgreSQL, `postgres://USER@HOST/DATABASE`")
            .option("--store")
            .secret(),
        VariableEntry::new("PGPASSWORD", "password for a store in PostgreSQL").secret(),
        VariableEntry::new("PGPASSFILE", "file with passwords for PostgreSQL; `~/.pgpass` without it"),
        VariableEntry::new("PGSERVICEFILE", "file with services of PostgreSQL; `~/.pg_service.conf` without it"),
        VariableEntry::new("GRADUS_API_KEY", "key for `gradus://` sources").secret(),
        VariableEntry::new("GRADUS_URL", "the server that [gradus health](health.md) asks").option("URL"),
        VariableEntry::new(
            "GRADUS_TRUST_CONFIG",
            "`1` or `true` trusts any configuration file that is found; see [gradus trust](trust.md)",
        ),
    ]
}

fn model_entries() -> Vec<VariableEntry> {
    vec![
        VariableEntry::new("OPENAI_API_KEY", "key of the OpenAI-compatible endpoint").secret(),
        VariableEntry::new("OPENAI_BASE_URL", "its address; wins over `[judge] base_url`").option("--base-url"),
        VariableEntry::new(
            "OPENAI_MODEL",
            "the judge of `gradus eval`, wins over `[judge] name`; the model of `gradus agent`",
        )
        .option("--judge, --model"),
        VariableEntry::new("ANTHROPIC_API_KEY", "key of Anthropic").secret(),
        VariableEntry::new("ANTHROPIC_BASE_URL", "address for Anthropic's API").option("--base-url"),
    ]
}

fn phoenix_entries() -> Vec<VariableEntry> {
    vec![
        VariableEntry::new("PHOENIX_COLLECTOR_ENDPOINT", "address of Phoenix").option("--phoenix"),
        VariableEntry::new("PHOENIX_PROJECT_NAME", "project of Phoenix").option("--project"),
        VariableEntry::new("PHOENIX_API_KEY", "sent as a bearer token, never shown").secret(),
        VariableEntry::new("PHOENIX_CLIENT_HEADERS", "`name=value,name=value`, sent with every request").secret(),
        VariableEntry::new(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "headers of `--log-to-otlp` and of the traces of `gradus agent`",
        )
        .secret(),
        VariableEntry::new("OTEL_EXPORTER_OTLP_ENDPOINT", "where `gradus agent` sends its traces").option("--otlp"),
        VariableEntry::with_names(
            &["PHOENIX_*", "OTEL_*"],
            "`gradus init` notes the names of those that are set, not their values",
        ),
    ]
}

fn s3_entries() -> Vec<VariableEntry> {
    vec![
        VariableEntry::new("AWS_ACCESS_KEY_ID", "key for [archives](store-and-keys.md#archives) in `s3://`").secret(),
        VariableEntry::new("AWS_SECRET_ACCESS_KEY", "the secret of the key").secret(),
        VariableEntry::new("AWS_SESSION_TOKEN", "token of temporary credentials").secret(),
        VariableEntry::with_names(
            &["AWS_REGION", "AWS_DEFAULT_REGION"],
            "region of the bucket; `us-east-1` without it",
        ),
        VariableEntry::with_names(
            &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"],
            "address of an S3-compatible server; Amazon's without it. `http://` only on this machine",
        ),
        VariableEntry::new("AWS_ALLOW_HTTP", "`1` or `true` allows `http://` endpoints on other machines"),
    ]
}

fn github_entries() -> Vec<VariableEntry> {
    vec![
        VariableEntry::new("GITHUB_API_URL", "address of the API for `gradus agent`").option("--github-url"),
        VariableEntry::new("GITHUB_TOKEN", "token of `gradus agent`; `--token-env` names another variable").secret(),
    ]
}

fn code_version_entries() -> Vec<VariableEntry> {
    vec![
        VariableEntry::with_names(&COMMIT_VARIABLES, "commit of the code under test, stored with a run"),
        VariableEntry::with_names(&BRANCH_VARIABLES, "branch of the code under test, stored with a run"),
    ]
}

fn session_entries() -> Vec<VariableEntry> {
    let mut names: Vec<&'static str> = SESSION_LOCATIONS.iter().filter_map(|location| location.variable).collect();
    names.sort_unstable();
    names.dedup();
    let meaning = "folder of a tool, for `gradus discover` and `gradus init`";
    names.into_iter().map(|name| VariableEntry::new(name, meaning)).collect()
}

fn network_entries() -> Vec<VariableEntry> {
    vec![
        VariableEntry::with_names(
            &["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
            "proxies for requests to other machines; may contain a password. This machine is always reached directly",
        )
        .secret(),
        VariableEntry::with_names(
            &["no_proxy", "NO_PROXY"],
            "hosts that are reached without a proxy; programs that Gradus starts get it with this machine added",
        ),
        VariableEntry::new("REQUEST_METHOD", "if set (CGI), `HTTP_PROXY` in capitals is ignored"),
        VariableEntry::with_names(
            &["SSL_CERT_FILE", "SSL_CERT_DIR"],
            "certificate authorities, instead of the system's",
        ),
    ]
}

fn system_entries() -> Vec<VariableEntry> {
    vec![
        VariableEntry::with_names(
            &["XDG_STATE_HOME", "HOME"],
            "folder of the list of trusted files; `HOME` is also where sessions are looked for",
        ),
        VariableEntry::new("USER", "who labels, where no name is given"),
        VariableEntry::new("TMPDIR", "folder of temporary files"),
        VariableEntry::with_names(
            &["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM", "CI"],
            "whether output has colours; `NO_COLOR=1` is without",
        ),
        VariableEntry::new("COLUMNS", "width of help texts"),
    ]
}

/// Variables that a kind of program gets from Gradus: name of the kind, variables, and where they are described.
pub(crate) const PROGRAM_VARIABLES: &[(&str, &[&str], &str)] = &[
    (
        "agent of `gradus experiment`",
        &[
            "GRADUS_REQUEST",
            "GRADUS_MESSAGES",
            "GRADUS_ITEM_ID",
            "GRADUS_TRIAL",
            "GRADUS_EXPERIMENT_ID",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "PHOENIX_COLLECTOR_ENDPOINT",
            "PHOENIX_GRPC_PORT",
            "OTEL_RESOURCE_ATTRIBUTES",
        ],
        "[gradus experiment](experiment.md#programs)",
    ),
    (
        "`--agent` of `gradus bench`",
        &[
            "GRADUS_REQUEST",
            "GRADUS_TASK",
            "GRADUS_TRIAL",
            "GITHUB_API_URL",
            "GITHUB_TOKEN",
            "GH_TOKEN",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "PHOENIX_COLLECTOR_ENDPOINT",
            "PHOENIX_GRPC_PORT",
        ],
        "[gradus bench](bench.md#programs-of-your-own)",
    ),
    (
        "`command` of an `[[alert]]`",
        &[
            "GRADUS_ALERT_NAME",
            "GRADUS_ALERT_KIND",
            "GRADUS_ALERT_PROJECT",
            "GRADUS_ALERT_CONDITION",
            "GRADUS_ALERT_VALUE",
            "GRADUS_ALERT_COUNT",
            "GRADUS_ALERT_SINCE",
            "GRADUS_ALERT_AT",
        ],
        "[Alerts](alerts.md)",
    ),
];
