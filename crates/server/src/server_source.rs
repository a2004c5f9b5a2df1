//! Projects of a running server as trace sources: `gradus://HOST:PORT/PROJECT`.

use std::io::{self, BufReader, Read};
use std::time::Duration;

use gradus_http::SecretString;
use gradus_ingest::{RecordIntake, SourceError, TraceSource};
use gradus_otlp::MessageFraming;
use reqwest::StatusCode;
use serde::Deserialize;
use tokio::runtime::Runtime;

/// The address of a server, and what to read from it.
#[derive(Clone, Debug)]
pub struct ServerSource {
    name: String,
    base: String,
    /// All projects without it.
    project: Option<String>,
    /// Sent as a bearer token; never part of a message.
    key: Option<SecretString>,
}

/// The default port of OTLP/HTTP, on which a server also answers the API.
const DEFAULT_SERVER_PORT: u16 = 4318;
const SERVER_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time without received bytes. A server that sends nothing for this long is considered dead.
const MAX_SERVER_SILENCE: Duration = Duration::from_secs(60);

impl ServerSource {
    /// Parses `gradus://HOST:PORT/PROJECT`, or `gradus+https://` for a server behind a TLS proxy. `None` if the text is
    /// another kind of source. User information in the host is refused, because a key there would end up in shell
    /// histories and logs.
    pub fn parse(source: &str, key: Option<SecretString>) -> Option<Result<ServerSource, SourceError>> {
        let (scheme, rest) = match source.split_once("://")? {
            ("gradus", rest) => ("http", rest),
            ("gradus+https", rest) => ("https", rest),
            _ => return None,
        };
        let (host, project) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || host.contains('@') {
            let reason = "write it as gradus://HOST:PORT/PROJECT; a key goes into GRADUS_API_KEY".to_owned();
            return Some(Err(SourceError::Unreadable { name: source.to_owned(), reason }));
        }
        if reqwest::Url::parse(&format!("{scheme}://{host}")).is_err() {
            let reason = format!("{host:?} is no host and port; write it as gradus://HOST:PORT/PROJECT");
            return Some(Err(SourceError::Unreadable { name: source.to_owned(), reason }));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let port = if has_port || scheme == "https" { String::new() } else { format!(":{DEFAULT_SERVER_PORT}") };
        Some(Ok(ServerSource {
            name: source.to_owned(),
            base: format!("{scheme}://{host}{port}"),
            project: (!project.is_empty()).then(|| project.to_owned()),
            key,
        }))
    }
}

impl TraceSource for ServerSource {
    fn name(&self) -> &str {
        &self.name
    }

    /// Streams the records of each project in OTLP, so that a large project is not held in memory.
    fn read(&self, intake: &mut RecordIntake<'_>) -> Result<(), SourceError> {
        let asking = RemoteServerClient::new(self)?;
        let projects = asking.fetch_projects()?;
        let wanted: Vec<&String> =
            projects.iter().filter(|known| self.project.as_ref().is_none_or(|name| name == *known)).collect();
        if wanted.is_empty() {
            return Err(SourceError::no_project(&self.name, self.project.as_deref().unwrap_or_default(), &projects));
        }
        for project in wanted {
            intake.begin_project(project);
            let mut body = BufReader::with_capacity(1 << 16, asking.download_records(project)?);
            // Concatenated export requests are one valid export request in protobuf.
            gradus_ingest::read_export(&mut body, MessageFraming::Single, intake)
                .map_err(|error| error.in_source(&self.name))?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct SourceProjectList {
    items: Vec<SourceProject>,
}

#[derive(Deserialize)]
struct SourceProject {
    name: String,
}

/// A blocking client: sources are read on ordinary threads, so it has an async runtime of its own.
struct RemoteServerClient<'s> {
    source: &'s ServerSource,
    runtime: Runtime,
    client: reqwest::Client,
}

impl<'s> RemoteServerClient<'s> {
    fn new(source: &'s ServerSource) -> Result<RemoteServerClient<'s>, SourceError> {
        let failed = |reason: String| SourceError::Unreadable { name: source.name.clone(), reason };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let client = gradus_http::http_client_builder()
            .connect_timeout(SERVER_CONNECT_TIMEOUT)
            .read_timeout(MAX_SERVER_SILENCE)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        Ok(RemoteServerClient { source, runtime, client })
    }

    /// Fetches the projects, which also checks that the address is a Gradus server.
    fn fetch_projects(&self) -> Result<Vec<String>, SourceError> {
        let response = self.get("/api/v1/projects")?;
        let body = self.runtime.block_on(response.bytes()).map_err(|error| self.to_source_error(&error))?;
        let projects: SourceProjectList = serde_json::from_slice(&body).map_err(|_| {
            self.unreadable_error("it answers, but not as a Gradus server does; is this the HTTP port?".to_owned())
        })?;
        Ok(projects.items.into_iter().map(|project| project.name).collect())
    }

    /// Returns a reader of a project's records as concatenated OTLP export requests, read while they arrive.
    fn download_records(&self, project: &str) -> Result<DownloadReader<'_>, SourceError> {
        let encoded = gradus_http::percent_encode(project);
        let response = self.get(&format!("/api/v1/projects/{encoded}/otlp"))?;
        Ok(DownloadReader { runtime: &self.runtime, response, piece: Vec::new(), at: 0 })
    }

    /// Sends a request and explains the usual errors: a missing, unknown or insufficient key.
    fn get(&self, path: &str) -> Result<reqwest::Response, SourceError> {
        let mut request = self.client.get(format!("{}{path}", self.source.base));
        if let Some(key) = &self.source.key {
            request = request.bearer_auth(key.expose());
        }
        let response =
            self.runtime.block_on(async { request.send().await }).map_err(|error| self.to_source_error(&error))?;
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::UNAUTHORIZED if self.source.key.is_some() => Err(self.unreadable_error(
                "the server does not know the key in GRADUS_API_KEY; `gradus keys list` there shows which it knows"
                    .to_owned(),
            )),
            StatusCode::UNAUTHORIZED => Err(self
                .unreadable_error("the server wants a key: set GRADUS_API_KEY to one with the scope read".to_owned())),
            StatusCode::FORBIDDEN => {
                Err(self
                    .unreadable_error("the server does not let this key read, or answers to localhost only".to_owned()))
            }
            status => Err(self.unreadable_error(format!("the server answered {status} to {path}"))),
        }
    }

    /// Converts an error. Distinguishes no server, a slow server and an interrupted transfer, since the user has to
    /// do different things.
    fn to_source_error(&self, error: &reqwest::Error) -> SourceError {
        let reason = if error.is_connect() {
            let reason = gradus_http::root_cause(error);
            format!("nothing answers there ({reason}); is `gradus serve` running, and is this its HTTP port?")
        } else if error.is_timeout() {
            "the server takes too long to answer".to_owned()
        } else {
            format!("the server broke off: {}", error.to_string().lines().next().unwrap_or_default())
        };
        self.unreadable_error(reason)
    }

    fn unreadable_error(&self, reason: String) -> SourceError {
        SourceError::Unreadable { name: self.source.name.clone(), reason }
    }
}

/// The body of a response as a blocking reader.
struct DownloadReader<'a> {
    runtime: &'a Runtime,
    response: reqwest::Response,
    piece: Vec<u8>,
    at: usize,
}

impl Read for DownloadReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.runtime.block_on(self.response.chunk()).map_err(io::Error::other)? {
                Some(piece) => {
                    self.piece = piece.to_vec();
                    self.at = 0;
                }
                None => return Ok(0),
            }
        }
        let rest = &self.piece[self.at..];
        let length = rest.len().min(out.len());
        out[..length].copy_from_slice(&rest[..length]);
        self.at += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parsed = |source: &str| ServerSource::parse(source, None).map(|read| read.map(|it| (it.base, it.project)));
        let fine = |base: &str, project: Option<&str>| Some((base.to_owned(), project.map(str::to_owned)));
        let ok = |source: &str| parsed(source).and_then(Result::ok);
        assert_eq!(ok("gradus://localhost/shop"), fine("http://localhost:4318", Some("shop")));
        assert_eq!(ok("gradus://[::1]:5000/a/b c"), fine("http://[::1]:5000", Some("a/b c")));
        assert_eq!(ok("gradus+https://g.example"), fine("https://g.example", None));
        assert!(parsed("traces/today.json").is_none());
        assert!(parsed("gradus:///p").is_some_and(|read| read.is_err()));
    }
}
