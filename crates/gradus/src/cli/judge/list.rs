//! `gradus judge list`: probes the default ports of local model servers. Apart from `gradus doctor`, which prints the
//! same findings, nothing in Gradus connects to an address that the user did not name.

use std::io::Write;

use clap::Args;
use gradus_core::visible::printable_line;
use gradus_llm::{LocalServer, ProbeFinding, ServedModel, probe_model_server};
use serde_json::json;

use crate::cli::CommandExit;
use crate::cli::sources::print_diagnostic;

#[derive(Args)]
pub(super) struct JudgeListArguments {
    /// Probe this address instead of the default ports (Ollama 11434, llama.cpp 8080, LM Studio 1234, vLLM 8000); may be
    /// given several times.
    #[arg(long, value_name = "URL")]
    address: Vec<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// One probed address.
pub(in crate::cli) struct ProbedServer {
    /// The server whose default port this is; `None` for an address of the user's.
    expected: Option<LocalServer>,
    base_url: String,
    finding: ProbeFinding,
}

/// Entry point of the command. It is not an error if nothing runs.
pub(super) fn run_judge_list(arguments: &JudgeListArguments) -> anyhow::Result<CommandExit> {
    let mut addresses = Vec::new();
    for address in &arguments.address {
        match complete_address(address) {
            Some(base_url) => addresses.push((None, base_url)),
            None => {
                print_diagnostic(&format!(
                    "--address: {}: not an http address: hint: give http://HOST:PORT/v1",
                    printable_line(address)
                ));
                return Ok(CommandExit::BadInput);
            }
        }
    }
    let found = if addresses.is_empty() { find_local_servers()? } else { probe_addresses(addresses)? };
    let mut out = anstream::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &servers_as_json(&found))?;
        writeln!(out)?;
    } else {
        write_server_table(&mut out, &found)?;
    }
    Ok(CommandExit::Pass)
}

/// Probes the default port of each server that can be named as a judge.
pub(in crate::cli) fn find_local_servers() -> anyhow::Result<Vec<ProbedServer>> {
    probe_addresses(LocalServer::ALL.map(|server| (Some(server), server.default_base_url())).to_vec())
}

/// Probes all addresses at once, so that a silent port costs its time only once.
fn probe_addresses(addresses: Vec<(Option<LocalServer>, String)>) -> anyhow::Result<Vec<ProbedServer>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut probes = Vec::new();
        for (expected, base_url) in addresses {
            let task = tokio::spawn({
                let base_url = base_url.clone();
                async move { probe_model_server(&base_url).await }
            });
            probes.push((expected, base_url, task));
        }
        let mut found = Vec::new();
        for (expected, base_url, task) in probes {
            found.push(ProbedServer { expected, base_url, finding: task.await? });
        }
        Ok(found)
    })
}

/// Completes an address to the base address of the API: `HOST:PORT` and `http://HOST:PORT` get their missing parts.
/// `None` if it has no host, or another scheme.
fn complete_address(text: &str) -> Option<String> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = reqwest::Url::parse(&with_scheme).ok()?;
    url.host_str().filter(|_| matches!(url.scheme(), "http" | "https"))?;
    gradus_http::register_url_secrets(&with_scheme);
    let base = with_scheme.trim_end_matches('/');
    Some(if url.path() == "/" { format!("{base}/v1") } else { base.to_owned() })
}

impl ProbedServer {
    /// Returns the name of the server that runs there, or that would run there by default.
    fn title(&self) -> &'static str {
        match self.server() {
            Some(server) => server.title(),
            None if matches!(self.finding, ProbeFinding::ModelServer { .. }) => "OpenAI-compatible",
            None => "-",
        }
    }

    fn server(&self) -> Option<LocalServer> {
        match &self.finding {
            ProbeFinding::ModelServer { server, .. } => server.or(self.expected),
            _ => self.expected,
        }
    }

    /// Returns the options that name a model as the judge. The address is left out if it follows from the name.
    fn judge_options(&self, model: &ServedModel) -> String {
        let found = self.server();
        let prefix = found.map_or("openai", LocalServer::name);
        let is_default = found.is_some_and(|server| server.default_base_url() == self.base_url);
        let address = if is_default { String::new() } else { format!(" --base-url {}", self.shown_url()) };
        format!("--judge {prefix}:{}{address}", printable_line(&model.name))
    }

    fn shown_url(&self) -> String {
        printable_line(&gradus_http::mask_secrets(&self.base_url))
    }

    /// Describes what was found, in a few words.
    pub(in crate::cli) fn state_text(&self) -> String {
        match &self.finding {
            ProbeFinding::ModelServer { models, .. } => match models.len() {
                0 => "running, no models".to_owned(),
                1 => "running, 1 model".to_owned(),
                count => format!("running, {count} models"),
            },
            ProbeFinding::Loading => "loading its model".to_owned(),
            ProbeFinding::KeyRequired => "wants a key".to_owned(),
            ProbeFinding::OtherService { answer } => {
                format!("something else listens there ({})", printable_line(answer))
            }
            ProbeFinding::Silent => "something listens there and does not answer".to_owned(),
            ProbeFinding::NotRunning => "not running".to_owned(),
        }
    }

    /// Whether anything listens at the address.
    pub(in crate::cli) fn has_listener(&self) -> bool {
        self.finding != ProbeFinding::NotRunning
    }

    /// Returns one line about the server and its models, for `gradus doctor`.
    pub(in crate::cli) fn summary_line(&self) -> String {
        let models = match &self.finding {
            ProbeFinding::ModelServer { models, .. } => models.as_slice(),
            _ => &[],
        };
        let named: Vec<String> = models.iter().take(3).map(|model| self.judge_options(model)).collect();
        let colon = if named.is_empty() { "" } else { ": " };
        let more = if models.len() > named.len() { ", ..." } else { "" };
        format!("{} at {}: {}{colon}{}{more}", self.title(), self.shown_url(), self.state_text(), named.join(", "))
    }
}

/// Writes one row per address, and below it one per model with the options that name it.
fn write_server_table(out: &mut dyn Write, found: &[ProbedServer]) -> std::io::Result<()> {
    let width = found.iter().map(|server| server.shown_url().len()).max().unwrap_or(0).max("address".len());
    writeln!(out, "{:<18}{:<width$}  state", "server", "address")?;
    for server in found {
        writeln!(out, "{:<18}{:<width$}  {}", server.title(), server.shown_url(), server.state_text())?;
        if let ProbeFinding::ModelServer { models, .. } = &server.finding {
            for model in models {
                let context = model.context_tokens.map(|tokens| format!("  (context {tokens})")).unwrap_or_default();
                writeln!(out, "  {}{context}", server.judge_options(model))?;
            }
        }
    }
    Ok(())
}

fn servers_as_json(found: &[ProbedServer]) -> serde_json::Value {
    let servers: Vec<serde_json::Value> = found
        .iter()
        .map(|found| {
            let (state, server, models) = match &found.finding {
                ProbeFinding::ModelServer { server, models } => {
                    ("running", server.or(found.expected), models.as_slice())
                }
                ProbeFinding::Loading => ("loading", found.expected, [].as_slice()),
                ProbeFinding::KeyRequired => ("wants_key", found.expected, [].as_slice()),
                ProbeFinding::OtherService { .. } => ("other_service", None, [].as_slice()),
                ProbeFinding::Silent => ("silent", None, [].as_slice()),
                ProbeFinding::NotRunning => ("not_running", found.expected, [].as_slice()),
            };
            let models: Vec<serde_json::Value> = models
                .iter()
                .map(|model| {
                    json!({
                        "name": model.name,
                        "context_tokens": model.context_tokens,
                        "options": found.judge_options(model),
                    })
                })
                .collect();
            json!({
                "server": server.map(LocalServer::name),
                "base_url": found.shown_url(),
                "state": state,
                "models": models,
            })
        })
        .collect();
    json!({ "servers": servers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(expected: Option<LocalServer>, base_url: &str, finding: ProbeFinding) -> ProbedServer {
        ProbedServer { expected, base_url: base_url.to_owned(), finding }
    }

    fn examples() -> Vec<ProbedServer> {
        let model = |name: &str, context_tokens| ServedModel { name: name.to_owned(), context_tokens };
        let running = |server, models| ProbeFinding::ModelServer { server, models };
        let default = |server: LocalServer, finding| found(Some(server), &server.default_base_url(), finding);
        vec![
            default(
                LocalServer::Ollama,
                running(Some(LocalServer::Ollama), vec![model("qwen3:8b", None), model("evil\u{1b}[2J\nname", None)]),
            ),
            default(LocalServer::LlamaCpp, running(Some(LocalServer::Vllm), vec![model("m", Some(4096))])),
            default(LocalServer::LmStudio, ProbeFinding::NotRunning),
            default(LocalServer::Vllm, ProbeFinding::OtherService { answer: "HTTP 404".to_owned() }),
            found(None, "http://10.0.0.7:9000/v1", running(None, vec![model("gpt-oss", None)])),
            found(None, "http://10.0.0.8:9000/v1", ProbeFinding::Silent),
            found(None, "http://10.0.0.9:9000/v1", ProbeFinding::Loading),
        ]
    }

    #[test]
    fn the_table_names_judges_as_they_are_used() {
        let mut out = Vec::new();
        write_server_table(&mut out, &examples()).expect("written");
        insta::assert_snapshot!(String::from_utf8(out).expect("text"));
    }

    #[test]
    fn the_json_has_the_same() {
        let json = serde_json::to_string_pretty(&servers_as_json(&examples())).expect("JSON");
        insta::assert_snapshot!(json);
    }

    #[test]
    fn addresses_are_completed_or_refused() {
        let complete = |text| complete_address(text);
        assert_eq!(complete("127.0.0.1:9000").as_deref(), Some("http://127.0.0.1:9000/v1"));
        assert_eq!(complete("http://h:1/").as_deref(), Some("http://h:1/v1"));
        assert_eq!(complete("https://h/api/v1/").as_deref(), Some("https://h/api/v1"));
        for wrong in ["", "ftp://h", "http://"] {
            assert_eq!(complete(wrong), None, "{wrong}");
        }
    }
}
