//! `gradus mcp`: the MCP server on standard input and output.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use gradus_mcp::{FolderArchive, LabelFile, StdioError, serve_stdio};

use super::CommandExit;
use super::run_lookup::resolve_state_dir;
use super::sources::print_diagnostic;
use crate::config::{ConfigFile, EnvironmentVariables};
use crate::experiment_report::load_run_supplement;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct McpArguments {
    /// Where runs are stored [default: .gradus].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Allow the assistant to label steps, and write its labels to this file (JSON Lines, for `gradus judge calibrate
    /// --labels`). Without it the server only reads.
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Whose labels they are [default: USER].
    #[arg(long, value_name = "NAME", requires = "labels")]
    labeller: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  claude mcp add gradus -- gradus mcp                                  in Claude Code
  claude mcp add gradus -- gradus mcp --state-dir ~/shop/.gradus       from any folder
  npx @modelcontextprotocol/inspector --cli gradus mcp --method tools/list

Tools: list_evaluations, find_runs, get_run, failure_groups, worst_steps, compare, explain_gate;
with --labels also label_step. `gradus serve` has the same tools at /mcp, with live traffic.

Exit codes: 0 the client has left, 1 the connection broke, 2 bad settings or no MCP handshake.";

/// Entry point of the command. Standard output belongs to the protocol; everything else goes to standard error.
pub(super) fn run_mcp_command(arguments: &McpArguments) -> anyhow::Result<CommandExit> {
    let environment = EnvironmentVariables::read();
    let file = match ConfigFile::read(environment.config.as_deref()) {
        Ok(file) => file,
        Err(error) => return Ok(reject_input(&error.to_string())),
    };
    let state_dir = resolve_state_dir(arguments.state_dir.as_ref(), &environment, &file);
    if let Some(path) = arguments.labels.as_deref().filter(|path| path.is_dir()) {
        return Ok(reject_input(&format!("--labels {}: it is a folder\nhint: name a file", path.display())));
    }
    let user = || std::env::var("USER").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "unnamed".to_owned());
    let labels = arguments.labels.as_deref().map(|path| {
        let labeller = arguments.labeller.clone().unwrap_or_else(user);
        LabelFile::new(path, &labeller)
    });
    if std::io::stdin().is_terminal() {
        print_diagnostic("waiting for an MCP client on standard input; hint: assistants start this command themselves");
    }
    let allows_labels = labels.is_some();
    let archive = FolderArchive::new(&state_dir, load_run_supplement, labels);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(serve_stdio(Arc::new(archive), allows_labels));
    // The thread that reads standard input cannot be interrupted, and there is nothing to wait for.
    runtime.shutdown_background();
    match served {
        Ok(()) => Ok(CommandExit::Pass),
        Err(error @ StdioError::Handshake { .. }) => Ok(reject_input(&error.to_string())),
        Err(error @ StdioError::Ended { .. }) => Err(error.into()),
    }
}

fn reject_input(reason: &str) -> CommandExit {
    print_diagnostic(reason);
    CommandExit::BadInput
}
