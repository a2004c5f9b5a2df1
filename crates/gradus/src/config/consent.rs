//! Which keys of a settings file need the user's consent, because the file may come from a stranger: programs to run,
//! addresses to send data to, ports open to other machines, models that cost money, files outside its folder, traces to
//! delete. Every key is classified here: sections are destructured without `..`, so that a new key does not compile
//! until it is classified.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};

use gradus_server::alert::AlertSection;
use gradus_server::redaction::RedactSection;
use gradus_server::{RetentionSection, RuleSection, ServeSection};

use super::{ConfigFile, EvalSection, JudgeSection, PhoenixSection};

/// The judge that sends nothing and costs nothing, and so needs no consent.
const OFFLINE_JUDGE: &str = gradus_eval::evaluator::OFFLINE_JUDGE;
/// Maximum number of entries of a folder that is searched for links. A larger one counts as leading outside, so that
/// a prepared folder cannot delay every command.
const MAX_FOLDER_ENTRIES: usize = 10_000;
/// Maximum number of consecutive links that are followed; the same as in Linux (ELOOP). It ends cycles of links.
const MAX_LINKS: usize = 40;

/// One key that needs the user's consent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsentRequest {
    /// As in the file: `alert[0].command`.
    pub(crate) key: String,
    pub(crate) effect: ConsentEffect,
    /// The value, for the user who decides. It may hold secrets, so no error repeats it.
    pub(crate) value: String,
    /// The target of a path, without links. It is part of the consent, because links can change while the file does
    /// not.
    pub(crate) resolved: Option<PathBuf>,
}

/// What a key could do to the user; its `Display` is shown by `gradus trust` and in the refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsentEffect {
    RunsCommand,
    /// Environment variables can hold keys.
    PassesVariables,
    /// Traces, notices or prompts leave the machine; for a judge, the API key goes there as well.
    SendsTo,
    AsksModel,
    /// Any address that is not loopback.
    ListensForOthers,
    /// CORS origins, and the public URL, whose pages may submit forms.
    TrustsOrigin,
    /// A trusted proxy decides which client address limits and logs see.
    TrustsProxy,
    LeavesFolder,
    DeletesTraces,
}

impl fmt::Display for ConsentEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConsentEffect::RunsCommand => "runs a program",
            ConsentEffect::PassesVariables => "passes environment variables to a program",
            ConsentEffect::SendsTo => "sends data to an address",
            ConsentEffect::AsksModel => "sends traces to a model, at your cost",
            ConsentEffect::ListensForOthers => "listens for other machines",
            ConsentEffect::TrustsOrigin => "accepts requests from web pages of an origin",
            ConsentEffect::TrustsProxy => "believes an address when it names its clients",
            ConsentEffect::LeavesFolder => "reads or writes outside the file's folder",
            ConsentEffect::DeletesTraces => "deletes stored traces",
        })
    }
}

impl ConsentRequest {
    /// Returns the text that is recorded when the user consents. It has no value, which the digest of the file
    /// covers, but the target of a path, which the digest does not cover.
    pub(crate) fn grant_text(&self) -> String {
        match &self.resolved {
            Some(path) => format!("{} {}", self.key, path.display()),
            None => self.key.clone(),
        }
    }
}

/// Finds all keys of a file that need consent, in the order of the sections. `folder` is the folder of the file;
/// paths in `file` must be as written, not yet joined with the folder.
pub(super) fn find_consent_requests(file: &ConfigFile, folder: &Path) -> Vec<ConsentRequest> {
    let mut found = ConsentFinder { folder, requests: Vec::new() };
    // No `..` in this module: whoever adds a key decides here what it may do in a file that nobody trusts.
    let ConfigFile { path: _, state_dir, judge, eval, phoenix, serve, rule, alert } = file;
    found.add_path("state_dir", state_dir.as_deref());

    let JudgeSection {
        name,
        base_url,
        // These change how questions are asked, not whether and where.
        concurrency: _,
        timeout_s: _,
        load_wait_s: _,
        max_tokens: _,
        temperature: _,
        context_tokens: _,
    } = judge;
    found.add_model("judge.name", name.as_deref());
    found.add_text("judge.base_url", ConsentEffect::SendsTo, base_url.as_deref());

    // Rubrics and tools inside the folder are text for the judge, like the traces themselves. Only where they are read
    // from needs consent.
    let EvalSection { evaluators: _, rubrics, tools, tool_notes, prices, calibration, gates: _ } = eval;
    for (index, path) in rubrics.iter().enumerate() {
        found.add_path(&format!("eval.rubrics[{index}]"), Some(path));
    }
    found.add_path("eval.tools", tools.as_deref());
    found.add_path("eval.tool_notes", tool_notes.as_deref());
    found.add_path("eval.prices", prices.as_deref());
    found.add_path("eval.calibration", calibration.as_deref());

    // The section has no address: only flags and the environment name a Phoenix.
    let PhoenixSection { timeout_s: _, retry_s: _, trajectory_target: _, abstentions: _, names_preset: _, names: _ } =
        phoenix;

    found.serve_section(serve);
    for (index, section) in rule.iter().enumerate() {
        found.rule_section(index, section);
    }
    for (index, section) in alert.iter().enumerate() {
        found.alert_section(index, section);
    }
    found.requests
}

/// Collects requests. The `*_section` methods mirror the sections of the file; the `add_*` methods decide by the value
/// whether a key needs consent at all.
struct ConsentFinder<'f> {
    folder: &'f Path,
    requests: Vec<ConsentRequest>,
}

impl ConsentFinder<'_> {
    fn serve_section(&mut self, section: &ServeSection) {
        let ServeSection {
            http,
            grpc,
            // Listens on the same address as `http`, which is checked below.
            phoenix_port: _,
            public_url,
            quiet_s: _,
            give_up_s: _,
            max_request_mb: _,
            max_trace_mb: _,
            max_memory_mb: _,
            max_memory_per_address_mb: _,
            connections: _,
            max_connections_per_address: _,
            trusted_proxies,
            header_timeout_s: _,
            body_timeout_s: _,
            idle_timeout_s: _,
            stall_timeout_s: _,
            requests_per_second: _,
            query_timeout_s: _,
            download_timeout_s: _,
            cors_origins,
            // Can only make the server stricter: an open address requires a key without it.
            require_key: _,
            retention,
            calibration,
            // Within the budget of a rule whose model has consent.
            anchors: _,
            anchor_every: _,
            alert_networks,
            redact,
        } = section;
        self.add_listener("serve.http", http.as_deref());
        self.add_listener("serve.grpc", grpc.as_deref());
        // Links in alerts lead to the public URL, and forms of its pages are accepted.
        self.add_text("serve.public_url", ConsentEffect::TrustsOrigin, public_url.as_deref());
        for (index, proxy) in trusted_proxies.iter().enumerate() {
            self.add_text(&format!("serve.trusted_proxies[{index}]"), ConsentEffect::TrustsProxy, Some(proxy));
        }
        for (index, origin) in cors_origins.iter().enumerate() {
            self.add_text(&format!("serve.cors_origins[{index}]"), ConsentEffect::TrustsOrigin, Some(origin));
        }
        for (index, network) in alert_networks.iter().enumerate() {
            self.add_text(&format!("serve.alert_networks[{index}]"), ConsentEffect::SendsTo, Some(network));
        }
        for (index, path) in calibration.iter().enumerate() {
            self.add_path(&format!("serve.calibration[{index}]"), Some(path));
        }
        if let Some(RetentionSection { max_age, max_size }) = retention {
            self.add_text("serve.retention.max_age", ConsentEffect::DeletesTraces, max_age.as_deref());
            self.add_text("serve.retention.max_size", ConsentEffect::DeletesTraces, max_size.as_deref());
        }
        for section in redact {
            // Redaction only removes text from what is stored.
            let RedactSection { name: _, pattern: _, replacement: _, builtin: _ } = section;
        }
    }

    fn rule_section(&mut self, index: usize, section: &RuleSection) {
        let RuleSection {
            name: _,
            project: _,
            evaluators: _,
            judge,
            base_url,
            sample: _,
            errors: _,
            daily_budget_usd: _,
            tools,
            tool_notes,
        } = section;
        let key = |name: &str| format!("rule[{index}].{name}");
        self.add_model(&key("judge"), judge.as_deref());
        self.add_text(&key("base_url"), ConsentEffect::SendsTo, base_url.as_deref());
        self.add_path(&key("tools"), tools.as_deref());
        self.add_path(&key("tool_notes"), tool_notes.as_deref());
    }

    fn alert_section(&mut self, index: usize, section: &AlertSection) {
        let AlertSection { name: _, project: _, when: _, clear_at: _, cool_down: _, webhook, slack, command, env } =
            section;
        let key = |name: &str| format!("alert[{index}].{name}");
        self.add_text(&key("webhook"), ConsentEffect::SendsTo, webhook.as_deref());
        self.add_text(&key("slack"), ConsentEffect::SendsTo, slack.as_deref());
        if let Some(words) = command {
            self.add(key("command"), ConsentEffect::RunsCommand, format!("{words:?}"), None);
        }
        if !env.is_empty() {
            self.add(key("env"), ConsentEffect::PassesVariables, env.join(", "), None);
        }
    }

    fn add(&mut self, key: String, effect: ConsentEffect, value: String, resolved: Option<PathBuf>) {
        self.requests.push(ConsentRequest { key, effect, value, resolved });
    }

    fn add_text(&mut self, key: &str, effect: ConsentEffect, value: Option<&str>) {
        if let Some(value) = value {
            self.add(key.to_owned(), effect, value.to_owned(), None);
        }
    }

    /// Adds a model's name, which needs consent even without an address: the user's own key would pay for it.
    fn add_model(&mut self, key: &str, name: Option<&str>) {
        self.add_text(key, ConsentEffect::AsksModel, name.filter(|name| *name != OFFLINE_JUDGE));
    }

    fn add_listener(&mut self, key: &str, address: Option<&str>) {
        let is_open = |address: &&str| !is_loopback_listener(address);
        self.add_text(key, ConsentEffect::ListensForOthers, address.filter(is_open));
    }

    fn add_path(&mut self, key: &str, path: Option<&Path>) {
        let Some(path) = path else { return };
        if let Some(outside) = find_outside_target(self.folder, path) {
            let (value, key) = (path.display().to_string(), key.to_owned());
            self.add(key, ConsentEffect::LeavesFolder, value, Some(outside));
        }
    }
}

/// Whether an address to listen on is loopback, decided by the text alone: a host name can resolve to another address
/// when the server starts. `localhost` is the only accepted name.
fn is_loopback_listener(address: &str) -> bool {
    if let Ok(address) = address.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns the target of a path if it is outside the folder: because it is absolute, has `..`, or because it or, for
/// a folder, one of its entries is a symbolic link. `None` if everything stays inside. In doubt (unreadable or too
/// large folders) the path counts as outside.
fn find_outside_target(folder: &Path, path: &Path) -> Option<PathBuf> {
    let Ok(folder) = folder.canonicalize() else { return Some(path.to_owned()) };
    let resolved = resolve_path(&folder.join(path));
    if !resolved.starts_with(&folder) {
        return Some(resolved);
    }
    // Only one level of a folder of rubrics is read, so deeper links cannot be followed.
    let Ok(entries) = std::fs::read_dir(&resolved) else { return None };
    for (count, entry) in entries.enumerate() {
        let Ok(entry) = entry else { return Some(resolved) };
        if count >= MAX_FOLDER_ENTRIES {
            return Some(resolved);
        }
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            let target = resolve_path(&entry.path());
            if !target.starts_with(&folder) {
                return Some(target);
            }
        }
    }
    None
}

/// Returns the path without links and `..`. Unlike `canonicalize` it also resolves paths whose last components do not
/// exist yet, such as a state folder that the first run creates.
fn resolve_path(path: &Path) -> PathBuf {
    resolve_links(path, MAX_LINKS)
}

fn resolve_links(path: &Path, links_left: usize) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            other => {
                resolved.push(other);
                if let Ok(real) = resolved.canonicalize() {
                    resolved = real;
                } else if let Ok(target) = std::fs::read_link(&resolved) {
                    // A dangling link leads outside as soon as somebody creates its target.
                    if links_left == 0 {
                        return target;
                    }
                    resolved.pop();
                    resolved = resolve_links(&resolved.join(target), links_left - 1);
                }
            }
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(folder: &Path, toml: &str) -> Vec<String> {
        let file: ConfigFile = toml::from_str(toml).expect("a file");
        find_consent_requests(&file, folder).into_iter().map(|request| request.key).collect()
    }

    #[test]
    fn each_dangerous_key_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let all = "state_dir = '/elsewhere'\n\
            [judge]\nname = 'gpt-4o'\nbase_url = 'http://127.0.0.1:9/v1'\n\
            [eval]\nrubrics = ['mine', '../x']\ntools = '../t'\ntool_notes = '/n'\nprices = 'a/../../p'\ncalibration = '../c.json'\n\
            [serve]\nhttp = '0.0.0.0:4318'\ngrpc = 'host.example:1'\npublic_url = 'https://evil.example'\n\
            cors_origins = ['https://evil.example']\nalert_networks = ['10.0.0.0/8']\nretention = { max_age = '1s', max_size = '1KB' }\n\
            [[rule]]\njudge = 'gpt-4o'\nbase_url = 'http://x'\ntools = '/t'\ntool_notes = '../n'\n\
            [[alert]]\nname = 'a'\nwhen = 'w'\nwebhook = 'http://x'\nslack = 'http://y'\ncommand = ['sh']\nenv = ['K']\n";
        assert_eq!(
            keys(folder.path(), all),
            [
                "state_dir",
                "judge.name",
                "judge.base_url",
                "eval.rubrics[1]",
                "eval.tools",
                "eval.tool_notes",
                "eval.prices",
                "eval.calibration",
                "serve.http",
                "serve.grpc",
                "serve.public_url",
                "serve.cors_origins[0]",
                "serve.alert_networks[0]",
                "serve.retention.max_age",
                "serve.retention.max_size",
                "rule[0].judge",
                "rule[0].base_url",
                "rule[0].tools",
                "rule[0].tool_notes",
                "alert[0].webhook",
                "alert[0].slack",
                "alert[0].command",
                "alert[0].env",
            ]
        );
    }

    #[test]
    fn a_file_that_stays_at_home_needs_no_consent() {
        let folder = tempfile::tempdir().expect("a folder");
        let plain = "state_dir = 'kept/here'\n\
            [judge]\nname = 'offline'\nconcurrency = 3\n[eval]\nrubrics = ['mine', './a/../b']\ngates = ['combined >= 0.7']\n\
            [phoenix]\nretry_s = 1\n[serve]\nhttp = '127.0.0.1:0'\ngrpc = '[::1]:4317'\nquiet_s = 1\nrequire_key = true\n\
            [[rule]]\njudge = 'offline'\n[[alert]]\nname = 'a'\nwhen = 'w'\n";
        assert_eq!(keys(folder.path(), plain), Vec::<String>::new());
        for open in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.evil.example:1", ":4318", "example.org"] {
            assert_eq!(keys(folder.path(), &format!("[serve]\nhttp = '{open}'")), ["serve.http"], "{open}");
        }
    }

    #[test]
    fn links_that_lead_out_are_followed() {
        let (folder, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another"));
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, folder.path().join(name)).expect("a link");
        std::fs::create_dir_all(folder.path().join("mine/inner")).expect("folders");
        std::fs::write(folder.path().join("mine/own.md"), "").expect("a file");
        link(&folder.path().join("mine"), "same");
        let rubrics = |path: &str| keys(folder.path(), &format!("[eval]\nrubrics = ['{path}']"));
        assert_eq!(rubrics("same/own.md"), Vec::<String>::new());
        assert_eq!(rubrics("mine"), Vec::<String>::new());
        link(outside.path(), "out");
        link(&outside.path().join("not there yet"), "dangling");
        link(Path::new("../.."), "up");
        link(&folder.path().join("dangling"), "twice");
        link(Path::new("circle"), "circle");
        for path in ["out", "out/x.md", "dangling", "twice", "up/x", "same/../../x"] {
            assert_eq!(rubrics(path), ["eval.rubrics[0]"], "{path}");
        }
        link(&outside.path().join("secret"), "mine/linked.md");
        assert_eq!(rubrics("mine"), ["eval.rubrics[0]"]);
    }
}
