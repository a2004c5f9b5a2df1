//! `gradus tools`: lists the tools of the agent, or lists and calls those of an MCP server.

use std::io::Write;

use clap::Args;
use gradus_github_agent::mcp::{MCP_TIMEOUT, McpError, McpServerSpec, McpTools};
use gradus_github_agent::tools::{AgentTool, ToolEffect, ToolFamily, ToolRestrictions, ToolSet as _, all_tools};
use serde_json::{Value, json};

use super::{CommandExit, print_diagnostic};
use gradus_core::visible::{make_printable, printable_line};
use gradus_report::{BOLD, DIM};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ToolsCommandArguments {
    /// Only this tool, with its arguments.
    name: Option<String>,
    /// Only these families: repos, files, branches, commits, issues, labels, pulls, search, releases.
    #[arg(long, value_name = "FAMILY", value_delimiter = ',')]
    tools: Vec<ToolFamily>,
    /// Only tools that change nothing.
    #[arg(long)]
    read_only: bool,
    /// Instead, the tools of an MCP server: a command line, or an address.
    #[arg(long, value_name = "COMMAND|URL", conflicts_with = "tools")]
    mcp: Option<McpServerSpec>,
    /// Call the MCP server's tool with these arguments, and print what came of it.
    #[arg(long, value_name = "JSON", requires = "name", requires = "mcp", conflicts_with = "json")]
    call: Option<String>,
    /// As JSON, with the schemas that a model gets.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gradus tools                                   all tools for GitHub, by family
  gradus tools open_issue                        what it takes
  gradus tools --mcp 'npx -y some-mcp-server'    what another program offers

  gradus tools add --mcp ./server --call '{\"a\": 1}'

Exit codes: 0 listed or called, 1 the call failed, 2 there is no such tool, or no such server.";

/// A tool and its origin.
struct ListedTool {
    /// Family of a GitHub tool, or name of the MCP server.
    group: String,
    tool: AgentTool,
}

/// Why nothing could be listed or called; printed as one line, exit code 2.
#[derive(Debug, thiserror::Error)]
enum ToolsCommandError {
    #[error("--call is not JSON: {0}")]
    CallArguments(#[source] serde_json::Error),
    #[error(transparent)]
    Server(#[from] McpError),
}

/// Entry point of the command: list tools, show one, or call one of an MCP server.
pub(super) fn run_tools_command(arguments: &ToolsCommandArguments) -> anyhow::Result<CommandExit> {
    let call = match read_call(arguments) {
        Ok(call) => call,
        Err(error) => {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::BadInput);
        }
    };
    let mut listed = match &arguments.mcp {
        Some(server) => match list_or_call_tools(server, call)? {
            Ok(ToolsCommandOutput::Called { text, is_error }) => {
                anstream::println!("{}", make_printable(&text));
                return Ok(if is_error { CommandExit::Unexpected } else { CommandExit::Pass });
            }
            Ok(ToolsCommandOutput::Listed(listed)) => listed,
            Err(error) => {
                print_diagnostic(&printable_line(&error.to_string()));
                return Ok(CommandExit::BadInput);
            }
        },
        None => all_tools()
            .filter(|(family, _)| arguments.tools.is_empty() || arguments.tools.contains(family))
            .map(|(family, tool)| ListedTool { group: family.name().to_owned(), tool: tool.clone() })
            .collect(),
    };
    listed.retain(|one| !arguments.read_only || one.tool.effect == ToolEffect::Read);
    if let Some(name) = &arguments.name {
        listed.retain(|one| &*one.tool.definition.name == name);
        if listed.is_empty() {
            print_diagnostic(&format!("there is no tool called {name:?} here; `gradus tools` lists them"));
            return Ok(CommandExit::BadInput);
        }
    }
    let mut out = anstream::stdout().lock();
    if arguments.json {
        let shown: Vec<Value> = listed.iter().map(as_json).collect();
        serde_json::to_writer_pretty(&mut out, &shown)?;
        writeln!(out)?;
    } else if arguments.name.is_some() {
        listed.iter().try_for_each(|one| print_tool_details(one, &mut out))?;
    } else {
        print_tool_list(&listed, &mut out)?;
    }
    Ok(CommandExit::Pass)
}

/// The result of one connection to an MCP server.
enum ToolsCommandOutput {
    Listed(Vec<ListedTool>),
    /// `is_error` is the flag of the tool's own result in MCP; the call itself went through.
    Called {
        text: String,
        is_error: bool,
    },
}

/// Returns the tool and its arguments, if one is to be called.
fn read_call(arguments: &ToolsCommandArguments) -> Result<Option<(&str, Value)>, ToolsCommandError> {
    let (Some(name), Some(text)) = (&arguments.name, &arguments.call) else { return Ok(None) };
    let value = serde_json::from_str(text).map_err(ToolsCommandError::CallArguments)?;
    Ok(Some((name, value)))
}

/// Connects to an MCP server, and lists its tools or calls one. The outer error is a failure of this program, the inner
/// one of the server.
fn list_or_call_tools(
    server: &McpServerSpec,
    call: Option<(&str, Value)>,
) -> anyhow::Result<Result<ToolsCommandOutput, ToolsCommandError>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Listing changes nothing, and a call by hand is the user's own decision.
    let limits = ToolRestrictions { allow_destructive: true, ..ToolRestrictions::default() };
    Ok(runtime.block_on(async {
        let tools = McpTools::connect(server, limits, MCP_TIMEOUT).await?;
        if let Some((name, arguments)) = call {
            let seen = tools.call(name, &arguments).await;
            return Ok(ToolsCommandOutput::Called { text: seen.text, is_error: seen.is_error });
        }
        let listed = |tool: &AgentTool| ListedTool { group: tools.name().to_owned(), tool: tool.clone() };
        Ok(ToolsCommandOutput::Listed(tools.tools().iter().map(listed).collect()))
    }))
}

/// Prints one line per tool, grouped; tools of one group must be adjacent. Names and descriptions of MCP tools come
/// from another program, so every text is made printable.
fn print_tool_list(listed: &[ListedTool], out: &mut impl Write) -> std::io::Result<()> {
    let width = listed.iter().map(|one| one.tool.definition.name.len()).max().unwrap_or(0);
    let mut group = "";
    for one in listed {
        if one.group != group {
            group = &one.group;
            writeln!(out, "{BOLD}{}{BOLD:#}", printable_line(group))?;
        }
        let name = printable_line(&one.tool.definition.name);
        let about = printable_line(first_sentence(&one.tool.definition.description));
        writeln!(out, "  {name:<width$}  {DIM}{:<8}{DIM:#}  {about}", effect_name(one.tool.effect))?;
    }
    Ok(())
}

/// Prints the description and the parameters, of which only the top level of the JSON schema is shown; `--json` has
/// all of it.
fn print_tool_details(one: &ListedTool, out: &mut impl Write) -> std::io::Result<()> {
    let definition = &one.tool.definition;
    let effect = effect_name(one.tool.effect);
    writeln!(out, "{BOLD}{}{BOLD:#}  {DIM}{effect}{DIM:#}", printable_line(&definition.name))?;
    writeln!(out, "{}", printable_line(&definition.description))?;
    let Some(properties) = definition.parameters["properties"].as_object() else { return Ok(()) };
    let required = definition.parameters["required"].as_array();
    for (name, schema) in properties {
        let kind = match (schema["enum"].as_array(), schema["type"].as_str()) {
            (Some(values), _) => values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
            (None, Some(kind)) => kind.to_owned(),
            (None, None) => "any".to_owned(),
        };
        let is_required = required.is_some_and(|names| names.iter().any(|one| one == name));
        let optional = if is_required { "" } else { ", optional" };
        let about = schema["description"].as_str().unwrap_or_default();
        writeln!(
            out,
            "  {}  {DIM}{}{optional}{DIM:#}  {}",
            printable_line(name),
            printable_line(&kind),
            printable_line(about)
        )?;
    }
    Ok(())
}

/// Returns the JSON of `--json`: the definition as a model gets it, with origin and effect.
fn as_json(one: &ListedTool) -> Value {
    let definition = &one.tool.definition;
    json!({
        "name": definition.name, "from": one.group, "effect": effect_name(one.tool.effect),
        "description": definition.description, "parameters": definition.parameters,
    })
}

/// Returns what a call does to the data of GitHub; MCP tools state it in their annotations.
fn effect_name(effect: ToolEffect) -> &'static str {
    match effect {
        ToolEffect::Read => "reads",
        ToolEffect::Write => "writes",
        ToolEffect::Destructive => "destroys",
    }
}

/// Returns the first sentence of a description, for the list.
fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}
