//! `gradus doctor`: checks what a server needs before it starts: settings, ports, folder, store, keys, disk, clock,
//! and the endpoints of judges; and which local model servers could judge. It changes nothing. It can run while a
//! server runs, whose ports then count as good.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use gradus_server::ServerSummary;
use gradus_store::{DATABASE_FILE_NAME, Store, StoreError, StoreLocation};
use reqwest::header::HOST;

use super::CommandExit;
use super::judge::{ProbedServer, find_local_servers};
use super::serve::ServerOptions;

#[derive(Args)]
pub(super) struct DoctorArguments {
    #[command(flatten)]
    server: ServerOptions,
}

/// The result of one check, with its text. Only `Bad` changes the exit code, to 2.
enum DoctorFinding {
    Good(String),
    /// The server works, but may not for long.
    Warning(String),
    /// The server cannot start or cannot work.
    Bad(String),
}

/// Entry point of the command: one line per check. With settings that cannot be read, nothing else can be checked.
pub(super) fn run_doctor_command(arguments: &DoctorArguments) -> anyhow::Result<CommandExit> {
    let mut findings = Vec::new();
    let config = arguments.server.read_config().map_err(|error| error.to_string());
    match config.and_then(|config| config.summary().map_err(|error| error.to_string())) {
        Ok(summary) => {
            findings.push(("settings", DoctorFinding::Good(summary.text.clone())));
            collect_findings(&summary, &mut findings);
        }
        Err(reason) => findings.push(("settings", DoctorFinding::Bad(reason))),
    }
    findings.push(("local judges", describe_local_servers()));
    let mut exit = CommandExit::Pass;
    for (what, finding) in findings {
        let (mark, text) = match finding {
            DoctorFinding::Good(text) => ("ok  ", text),
            DoctorFinding::Warning(text) => ("warn", text),
            DoctorFinding::Bad(text) => {
                exit = CommandExit::BadInput;
                ("FAIL", text)
            }
        };
        anstream::println!("{mark} {what}: {}", gradus_core::visible::printable_line(&text));
    }
    Ok(exit)
}

/// Makes all checks that need readable settings, in the order in which they are printed.
fn collect_findings(summary: &ServerSummary, findings: &mut Vec<(&'static str, DoctorFinding)>) {
    findings.push(("http port", check_port(&summary.http.to_string(), "--http")));
    findings.push(("grpc port", check_port(&summary.grpc.to_string(), "--grpc")));
    if let Some(address) = summary.phoenix {
        findings.push(("phoenix port", check_port(&address.to_string(), "--phoenix-port")));
    }
    findings.push(("folder", check_data_folder(&summary.data)));
    findings.push(("store", check_store(&summary.store)));
    if summary.store.folder().is_none() {
        findings.push(("servers", check_node_settings(summary)));
    }
    if summary.needs_key {
        findings.push(("keys", check_keys(&summary.store)));
    }
    findings.push(("disk", check_disk_space(&summary.data)));
    findings.push(("clock", check_clock()));
    for (rule, judge) in &summary.judges {
        findings.push(("judge", check_judge_endpoint(rule, judge)));
    }
}

/// Binds the port for a moment. A port in use is fine if a Gradus server has it.
fn check_port(address: &str, option: &str) -> DoctorFinding {
    match TcpListener::bind(address) {
        Ok(_) => DoctorFinding::Good(format!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && is_gradus_server(address) => {
            DoctorFinding::Good(format!("a gradus server answers on {address} already"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => DoctorFinding::Bad(format!(
            "something listens on {address} already: stop it (another collector?), or choose another port with {option}"
        )),
        Err(error) => DoctorFinding::Bad(format!("{address}: {error}; choose another address with {option}")),
    }
}

/// Whether a Gradus server answers at an address, by the form of its `/healthz`. The `Host` header is `localhost`,
/// because a server without keys accepts only local host names.
fn is_gradus_server(address: &str) -> bool {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let ask = async {
        let http = gradus_http::http_client_builder().timeout(TIMEOUT).build().ok()?;
        let request = http.get(format!("http://{address}/healthz")).header(HOST, "localhost");
        let health = request.send().await.ok()?.bytes().await.ok()?;
        let health: serde_json::Value = serde_json::from_slice(&health).ok()?;
        Some(health["status"] == "ok" && health["version"].is_string())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.ok().and_then(|runtime| runtime.block_on(ask)).unwrap_or(false)
}

/// Writes and removes a temporary file. A missing folder is not created: its nearest existing parent is tested instead.
fn check_data_folder(data: &Path) -> DoctorFinding {
    let place = nearest_existing_folder(data);
    let probe = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(place)?;
        file.write_all(&[0; 8192])?;
        file.as_file().sync_all()
    };
    match probe() {
        Ok(()) if place == data => DoctorFinding::Good(format!("{} can be written to", data.display())),
        Ok(()) => DoctorFinding::Good(format!("{} can be made", data.display())),
        Err(error) => DoctorFinding::Bad(format!("{}: {error}; choose another with --data", data.display())),
    }
}

/// Returns the nearest ancestor that exists; the working directory for a relative path without one.
fn nearest_existing_folder(data: &Path) -> &Path {
    let above = data.ancestors().find(|folder| folder.is_dir());
    above.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn check_store(location: &StoreLocation) -> DoctorFinding {
    let Some(folder) = location.folder() else {
        return describe_store(Store::check_can_start(location).and_then(|()| Store::open_at_to_read(location)));
    };
    let path = folder.join(DATABASE_FILE_NAME);
    if !path.exists() {
        return DoctorFinding::Good("none yet; it is made at the first start".to_owned());
    }
    // Opening an older store would upgrade it, and this command changes nothing.
    match Store::pending_upgrade(&path) {
        Ok(None) => {}
        Ok(Some((found, known))) => {
            return DoctorFinding::Good(format!(
                "made by an older Gradus (format {found}); the first start upgrades it to format {known}"
            ));
        }
        Err(error) => return DoctorFinding::Bad(error.to_string()),
    }
    describe_store(Store::open_to_read(&path))
}

fn describe_store(store: Result<Store, StoreError>) -> DoctorFinding {
    let read = store.and_then(|store| Ok((store.used_and_free_bytes()?, store.projects()?.len(), store.location())));
    match read {
        Err(StoreError::NoTables { address }) => {
            DoctorFinding::Good(format!("{address}: no tables yet; the first start creates them"))
        }
        Ok(((used, _), projects, location)) if gradus_store::is_postgres_address(&location) => {
            DoctorFinding::Good(format!("{location}: {projects} projects, {used} bytes of records"))
        }
        Ok(((used, free), projects, _)) => {
            DoctorFinding::Good(format!("{projects} projects, {used} bytes in use, {free} bytes free in the file"))
        }
        Err(error) => DoctorFinding::Bad(error.to_string()),
    }
}

/// Whether the servers that use the database at present have the settings of this configuration.
fn check_node_settings(summary: &ServerSummary) -> DoctorFinding {
    // The line about the store says what is wrong with it.
    let Ok(nodes) = Store::open_at_to_read(&summary.store).and_then(|store| store.live_nodes()) else {
        return DoctorFinding::Good("none is known".to_owned());
    };
    match summary.describe_differing_nodes(&nodes) {
        None => DoctorFinding::Good(format!("{} use the database, with these settings", nodes.len())),
        Some(different) => DoctorFinding::Warning(different),
    }
}

/// Checks that a key exists: a server that other machines can reach does not start without one.
fn check_keys(location: &StoreLocation) -> DoctorFinding {
    let keys = Store::list_keys_at(location).unwrap_or_default();
    match keys.iter().filter(|key| key.revoked_ns.is_none()).count() {
        0 => DoctorFinding::Bad(
            "others can reach the server, and there is no key: make one with `gradus keys add NAME`".to_owned(),
        ),
        count => DoctorFinding::Good(format!("{count} valid")),
    }
}

/// Checks the free space for unprivileged users (`f_bavail`). Below 32 MB SQLite cannot work reliably, below 1 GB a
/// busy server fills the disk within hours.
fn check_disk_space(data: &Path) -> DoctorFinding {
    const LOW_SPACE_BYTES: u64 = 1 << 30;
    const MIN_SPACE_BYTES: u64 = 32 << 20;
    match rustix::fs::statvfs(nearest_existing_folder(data)) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let text = format!("{:.1} GB free at {}", free as f64 / 1e9, data.display());
            if free < MIN_SPACE_BYTES {
                DoctorFinding::Bad(format!("{text}: make room, or choose another folder with --data"))
            } else if free < LOW_SPACE_BYTES {
                DoctorFinding::Warning(format!("{text}: make room, or keep less with serve.retention"))
            } else {
                DoctorFinding::Good(text)
            }
        }
        Err(error) => DoctorFinding::Warning(format!("how much room there is cannot be told: {error}")),
    }
}

fn check_clock() -> DoctorFinding {
    // Retention, daily budgets and rollups compare times of spans with the clock. A clock that was never set (1970) is
    // the usual fault.
    let now = jiff::Timestamp::now();
    let year = now.to_zoned(jiff::tz::TimeZone::UTC).year();
    if (2025..2100).contains(&year) {
        DoctorFinding::Good(format!("{}", now.round(jiff::Unit::Second).unwrap_or(now)))
    } else {
        DoctorFinding::Bad(format!("it says {now}: set it, or times of traces and daily budgets mean nothing"))
    }
}

/// Lists what runs on the default ports of model servers. No server needs any of them, so nothing here is a fault.
fn describe_local_servers() -> DoctorFinding {
    match find_local_servers() {
        Ok(found) => {
            let there: Vec<String> =
                found.iter().filter(|server| server.has_listener()).map(ProbedServer::summary_line).collect();
            DoctorFinding::Good(match there.is_empty() {
                true => "no model server runs on a default port of Ollama, llama.cpp, LM Studio or vLLM".to_owned(),
                false => there.join("; "),
            })
        }
        Err(error) => DoctorFinding::Warning(format!("the ports of local model servers cannot be probed: {error}")),
    }
}

/// Asks the judge of a rule one short question, which costs a few tokens: only an answer proves address, key and model.
fn check_judge_endpoint(rule: &str, judge: &std::sync::Arc<gradus_eval::judge::ModelJudge>) -> DoctorFinding {
    let url = judge.client.shown_url().to_owned();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return DoctorFinding::Bad(error.to_string()),
    };
    let request = gradus_llm::ModelRequest {
        system: "You are asked whether you are there.",
        user: "Say yes.",
        answer: gradus_llm::AnswerForm::Text,
        max_tokens: 16,
        temperature: judge.settings.temperature,
        wants_logprobs: false,
    };
    let (_, answer) = runtime.block_on(judge.client.ask(&request));
    match answer {
        Ok(_) => DoctorFinding::Good(format!("rule {rule:?}: {} answers at {url}", judge.name())),
        Err(failure) => {
            DoctorFinding::Bad(format!("rule {rule:?}: {url}: {failure}; check the address, the key and the model"))
        }
    }
}
