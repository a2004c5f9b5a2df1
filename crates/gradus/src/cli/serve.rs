//! `gradus serve`.

use std::path::PathBuf;

use clap::Args;

use super::{Exit, complain};
use crate::serve::{self, Given, LogFormat};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    server: ServerOptions,
    /// How the log on standard error is written.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
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
    /// Settings; else gradus.toml if it is here.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ServerOptions {
    pub(super) fn given(&self) -> Given {
        Given {
            http: self.http.clone(),
            grpc: self.grpc.clone(),
            phoenix_port: self.phoenix_port,
            data: self.data.clone(),
            config: self.config.clone(),
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  gradus serve                                     on the ports that exporters look for, 4318 and 4317
  gradus serve --http 0.0.0.0:4318 --grpc 0.0.0.0:4317     reachable by others; needs `gradus keys add` first
  gradus serve --phoenix-port 6006                 also where Phoenix's clients look
  curl localhost:4318/api/v1/traces                what is there

A request is acknowledged when its spans are on disk. SIGTERM finishes what is under way, SIGHUP reads the settings again.

Exit codes: 0 stopped, 2 it cannot start: bad settings, a port that is taken, a store that cannot be used.";

pub(super) fn run(arguments: &Arguments) -> Exit {
    match serve::run(&arguments.server.given(), arguments.log_format) {
        Ok(()) => Exit::Pass,
        Err(reason) => {
            complain(&reason);
            Exit::BadInput
        }
    }
}
