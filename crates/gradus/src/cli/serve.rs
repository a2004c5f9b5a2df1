//! `gradus serve`: options, environment and file become a `ServerConfig`; the server crate does the rest.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use gradus_server::{EphemeralAddresses, LogFormat, ServeSection, ServerConfig};
use serde_json::json;

use super::{CommandExit, print_diagnostic};
use crate::config::{ConfigError, ConfigFile, ConfigOverride, EnvironmentVariables};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ServeArguments {
    #[command(flatten)]
    server: ServerOptions,
    /// Use a temporary store and free ports, print the addresses as JSON, and stop with the parent process; for tests.
    #[arg(long, conflicts_with_all = ["http", "grpc", "phoenix_port", "data", "store"])]
    ephemeral: bool,
    /// How the log on standard error is written.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormatName,
}

/// Where a server is, or will be: what `serve` and `doctor` have in common.
#[derive(Args)]
pub(super) struct ServerOptions {
    /// Where HTTP is answered: OTLP, the API and the page [default: 127.0.0.1:4318].
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// Where OTLP over gRPC is answered [default: 127.0.0.1:4317].
    #[arg(long, value_name = "ADDRESS")]
    grpc: Option<String>,
    /// A second port for HTTP on the same address; 6006 is where Phoenix's clients look by default.
    #[arg(long, value_name = "PORT")]
    phoenix_port: Option<u16>,
    /// Where everything is kept [default: .gradus].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A store in PostgreSQL, which several servers may share: postgres://USER@HOST/DATABASE. The state folder keeps the
    /// rest. GRADUS_STORE keeps a password out of the process list.
    #[arg(long, value_name = "ADDRESS")]
    store: Option<String>,
    /// Settings; else gradus.toml if it is here.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ServerOptions {
    /// Returns the file that `--config` names.
    pub(super) fn config_path(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Returns the settings in the options, by key of the file.
    pub(super) fn overrides(&self) -> Vec<ConfigOverride> {
        let given = [
            ("serve.http", "--http", self.http.as_ref().map(|address| json!(address))),
            ("serve.grpc", "--grpc", self.grpc.as_ref().map(|address| json!(address))),
            ("serve.phoenix_port", "--phoenix-port", self.phoenix_port.map(|port| json!(port))),
            ("state_dir", "--data", self.data.as_ref().map(|folder| json!(folder))),
        ];
        given
            .into_iter()
            .filter_map(|(key, option, value)| Some(ConfigOverride { key, option, value: value? }))
            .collect()
    }

    /// Reads the configuration of the server. Options win over the environment, the environment over the file. The
    /// server calls it again on SIGHUP, so it reads the file and the environment each time.
    pub(super) fn read_config(&self) -> Result<ServerConfig, ConfigError> {
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(self.config.as_deref().or(environment.config.as_deref()))?;
        let judge = file.judge_config();
        let data = self.data.clone().or_else(|| environment.state_dir.clone()).or(file.state_dir);
        Ok(ServerConfig {
            file: file.path,
            // Unlike in other commands, --data does not say where the store is.
            store: crate::config::store_address(self.store.as_deref(), None),
            data: data.unwrap_or_else(|| PathBuf::from(crate::config::DEFAULT_STATE_DIR)),
            serve: ServeSection {
                http: self.http.clone().or(file.serve.http),
                grpc: self.grpc.clone().or(file.serve.grpc),
                phoenix_port: self.phoenix_port.or(file.serve.phoenix_port),
                ..file.serve
            },
            rules: file.rule,
            alerts: file.alert,
            evaluators: file.eval.evaluators,
            rubrics: file.eval.rubrics,
            tools: file.eval.tools,
            tool_notes: file.eval.tool_notes,
            judge,
            credentials: environment.judge_credentials(),
            annotations: file.phoenix.annotation_settings(),
            supplements: crate::experiment_report::load_run_supplement,
            demo: Some(super::demo::send_demo_traces),
        })
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormatName {
    Text,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  gradus serve                                     on the ports that exporters look for, 4318 and 4317
  gradus serve --http 0.0.0.0:4318 --grpc 0.0.0.0:4317     reachable by others; needs `gradus keys add` first
  gradus serve --phoenix-port 6006                 also where Phoenix's clients look
  gradus serve --ephemeral                         for one test run: free ports, nothing is kept
  curl localhost:4318/api/v1/traces                what is there

A request is acknowledged when its spans are on disk. SIGTERM finishes what is under way, SIGHUP reads the settings again.

Exit codes: 0 stopped, 2 it cannot start: bad settings, a port that is taken, a store that cannot be used.";

/// Entry point of the command. Returns after SIGTERM or SIGINT, or at once if the server cannot start.
pub(super) fn run_serve_command(arguments: &ServeArguments) -> CommandExit {
    let format = match arguments.log_format {
        LogFormatName::Text => LogFormat::Text,
        LogFormatName::Json => LogFormat::Json,
    };
    if arguments.ephemeral {
        return run_ephemeral(&arguments.server, format);
    }
    // The server does not know our errors: it prints them, or logs them if they come with a SIGHUP.
    let read_config = || arguments.server.read_config().map_err(|error| error.to_string());
    match gradus_server::run_server(&read_config, format) {
        Ok(()) => CommandExit::Pass,
        Err(reason) => {
            print_diagnostic(&reason.to_string());
            CommandExit::BadInput
        }
    }
}

/// Runs a server in a temporary folder, which is removed when it has stopped. A `gradus.toml` in the current folder
/// is not used: its rules can ask models that cost money, and a test has to name it with `--config` if it needs it.
fn run_ephemeral(options: &ServerOptions, format: LogFormat) -> CommandExit {
    let folder = match tempfile::Builder::new().prefix("gradus-").tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            print_diagnostic(&format!("the temporary store cannot be made: {error}"));
            return CommandExit::BadInput;
        }
    };
    let mut config = match &options.config {
        None => {
            let config = ServerConfig::new(folder.path().to_owned());
            ServerConfig { demo: Some(super::demo::send_demo_traces), ..config }
        }
        Some(_) => match options.read_config() {
            Ok(config) => config,
            Err(error) => {
                print_diagnostic(&error.to_string());
                return CommandExit::BadInput;
            }
        },
    };
    folder.path().clone_into(&mut config.data);
    let announce = |addresses: EphemeralAddresses| {
        let line = serde_json::json!({
            "http": format!("http://{}", addresses.http),
            "grpc": format!("http://{}", addresses.grpc),
            "data": folder.path(),
            "pid": std::process::id(),
        });
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    };
    match gradus_server::run_ephemeral_server(config, format, &announce) {
        Ok(()) => CommandExit::Pass,
        Err(reason) => {
            print_diagnostic(&reason.to_string());
            CommandExit::BadInput
        }
    }
}
