//! The address of a PostgreSQL server: what the user wrote, passwords from elsewhere, and TLS.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ::postgres::config::{Host, SslMode};
use ::postgres::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls_platform_verifier::ConfigVerifierExt as _;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::connect_advice::{CHECK_ADDRESS, advise};
use super::migration;
use crate::error::StoreError;
use crate::sql::describe_postgres_error;
use crate::sql::postgres::{PostgresConnection, run_outside_runtime};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server's first answer may take after that.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of connection attempts that wait for a silent host.
const MAX_SILENT_CONNECTIONS: usize = 32;
/// A server that is cut off is noticed after about this time.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// The oldest major version that is tested.
const MIN_SERVER_VERSION: i32 = 15;

/// Session-level advisory lock: shared by all connections that can write, and held by a copy alone. "grco" in ASCII.
const COPY_LOCK: i64 = 0x6772_636f;

/// Settings of every connection. A server that lost a node ends its transactions, so that its locks do not stop others.
const SESSION_SETTINGS: &str = "SET search_path = gradus; SET client_min_messages = warning; \
                                SET idle_in_transaction_session_timeout = '15s'; SET lock_timeout = '20s'; \
                                SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; \
                                SET jit = off";

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
enum AddressError {
    #[error(transparent)]
    Tls(rustls::Error),
    #[error("sslrootcert {}: {source}", path.display())]
    Certificates { path: PathBuf, source: rustls::pki_types::pem::Error },
    #[error("there is no home folder with a service file")]
    NoHome,
    #[error("{}: {source}", path.display())]
    ServiceFile { path: PathBuf, source: std::io::Error },
    #[error("{} has no service {name:?}", path.display())]
    NoService { path: PathBuf, name: String },
    #[error("the port {value:?} of the service is no number")]
    ServicePort { value: String },
}

/// A database on a PostgreSQL server.
#[derive(Clone)]
pub(crate) struct PostgresServer {
    config: Config,
    tls: MakeRustlsConnect,
    /// For messages; without a password.
    display_address: String,
    /// Whether this is the connection of the copy that holds the copy lock.
    is_copy: bool,
}

impl PostgresServer {
    /// Reads an address such as `postgres://user@host:5432/database?sslmode=require`. As for PostgreSQL's own programs, a
    /// password may come from `PGPASSWORD` or from the file `~/.pgpass` (`PGPASSFILE`), and `service=NAME` names a section
    /// of `~/.pg_service.conf` (`PGSERVICEFILE`).
    pub(crate) fn from_address(address: &str) -> Result<PostgresServer, StoreError> {
        // Until it is read nobody knows which part of it is the password.
        let bad = |reason: String| StoreError::BadAddress { address: "postgres://…".to_owned(), reason };
        let (plain, own) = split_libpq_settings(address);
        // The driver would take the rest of the password for the host.
        if plain.matches('@').count() > 1 {
            return Err(bad("it has several @; write that of a password as %40".to_owned()));
        }
        let told = |error: AddressError| bad(error.to_string());
        let service = own.service.as_deref().map(read_service).transpose().map_err(&told)?;
        let mut config = Config::from_str(&plain).map_err(|error| bad(describe_postgres_error(&error)))?;
        if let Some(settings) = service {
            apply_service(&mut config, &settings).map_err(&told)?;
        }
        if config.get_dbname().is_none() {
            return Err(bad("it names no database".to_owned()));
        }
        if config.get_password().is_none()
            && let Some(password) = std::env::var("PGPASSWORD").ok().or_else(|| password_from_file(&config))
        {
            config.password(password);
        }
        config.application_name("gradus").connect_timeout(CONNECT_TIMEOUT).keepalives_idle(KEEPALIVE_IDLE);
        #[cfg(target_os = "linux")]
        config.tcp_user_timeout(CONNECT_TIMEOUT);
        if own.requires_tls {
            config.ssl_mode(SslMode::Require);
        }
        let tls = make_tls(own.root_certificate.as_deref()).map_err(told)?;
        let display_address = describe_server(&config);
        Ok(PostgresServer { config, tls, display_address, is_copy: false })
    }

    /// Opens a connection that may write, and creates or migrates the tables if necessary.
    pub(crate) fn open_writer(&self) -> Result<PostgresConnection, StoreError> {
        run_outside_runtime(|| {
            let mut client = self.connect()?;
            if !self.is_copy && !try_copy_lock(&mut client, "SELECT pg_try_advisory_lock_shared($1)")? {
                return Err(StoreError::CopyRunning { path: self.display_address.clone().into() });
            }
            migration::migrate(&mut client, &self.display_address)?;
            Ok(PostgresConnection::new(client, self.tls.clone()))
        })
    }

    /// Opens a connection that keeps everybody else from writing. PostgreSQL releases the lock when it is closed.
    pub(crate) fn lock_for_copy(&self) -> Result<PostgresConnection, StoreError> {
        run_outside_runtime(|| {
            let mut client = self.connect()?;
            match try_copy_lock(&mut client, "SELECT pg_try_advisory_lock($1)")? {
                true => Ok(PostgresConnection::new(client, self.tls.clone())),
                false => Err(StoreError::ServersRunning { path: self.display_address.clone().into() }),
            }
        })
    }

    /// Returns the server for the copy that holds the lock of copies itself.
    pub(crate) fn into_copy_lock_holder(mut self) -> PostgresServer {
        self.is_copy = true;
        self
    }

    /// Opens a connection that only reads.
    pub(crate) fn open_reader(&self) -> Result<PostgresConnection, StoreError> {
        run_outside_runtime(|| {
            let mut client = self.connect()?;
            migration::check_schema_compatible(&mut client, &self.display_address)?;
            client
                .batch_execute("SET default_transaction_read_only = on")
                .map_err(|error| StoreError::from_postgres(&error))?;
            Ok(PostgresConnection::new(client, self.tls.clone()))
        })
    }

    /// Fails if a server could not start here.
    pub(crate) fn check_can_start(&self) -> Result<(), StoreError> {
        run_outside_runtime(|| migration::check_can_start(&mut self.connect()?, &self.display_address))
    }

    fn connect(&self) -> Result<Client, StoreError> {
        let failed = |error: ::postgres::Error| StoreError::NotReachable {
            address: self.display_address.clone(),
            reason: describe_postgres_error(&error),
            advice: advise(&error),
        };
        let mut client = self.connect_in_time()?.map_err(failed)?;
        let version: String = client.query_one("SHOW server_version_num", &[]).map_err(failed)?.get(0);
        let major = version.parse::<i32>().unwrap_or_default() / 10_000;
        if major < MIN_SERVER_VERSION {
            return Err(StoreError::OldServer {
                address: self.display_address.clone(),
                found: major.to_string(),
                needed: MIN_SERVER_VERSION,
            });
        }
        client.batch_execute(SESSION_SETTINGS).map_err(failed)?;
        Ok(client)
    }
}

impl PostgresServer {
    /// Connects on a thread of its own. The driver limits how long a host may take to accept a connection, but not how long
    /// one that accepted it may be silent. A thread that waits for such a host is left behind; their number is limited.
    fn connect_in_time(&self) -> Result<Result<Client, ::postgres::Error>, StoreError> {
        static SILENT: AtomicUsize = AtomicUsize::new(0);
        let silent = || StoreError::NotReachable {
            address: self.display_address.clone(),
            reason: "it accepts connections, and does not answer".to_owned(),
            advice: CHECK_ADDRESS,
        };
        if SILENT.load(Ordering::Relaxed) >= MAX_SILENT_CONNECTIONS {
            return Err(silent());
        }
        let (config, tls) = (self.config.clone(), self.tls.clone());
        let (sender, receiver) = mpsc::sync_channel(1);
        let is_given_up = Arc::new(AtomicBool::new(false));
        let was_given_up = Arc::clone(&is_given_up);
        let connect = move || {
            // Too late, it is closed again.
            let _ = sender.send(config.connect(tls));
            if was_given_up.load(Ordering::Relaxed) {
                SILENT.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let started = std::thread::Builder::new().name("connect".to_owned()).spawn(connect);
        started.map_err(|error| StoreError::Sql(error.to_string()))?;
        // Hosts are tried one after the other.
        let hosts = u32::try_from(self.config.get_hosts().len().max(1)).unwrap_or(u32::MAX);
        receiver.recv_timeout(CONNECT_TIMEOUT.saturating_mul(hosts) + ANSWER_TIMEOUT).map_err(|_| {
            SILENT.fetch_add(1, Ordering::Relaxed);
            is_given_up.store(true, Ordering::Relaxed);
            silent()
        })
    }
}

/// Tries to take the copy lock, exclusively or shared. Returns whether it was obtained.
fn try_copy_lock(client: &mut Client, statement: &str) -> Result<bool, StoreError> {
    Ok(client.query_one(statement, &[&COPY_LOCK]).map_err(|error| StoreError::from_postgres(&error))?.get(0))
}

impl fmt::Display for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display_address)
    }
}

/// For messages: user, hosts and database, without anything else that is in the address.
fn describe_server(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let name = match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        match ports.get(at).or(ports.first()) {
            Some(port) => format!("{name}:{port}"),
            None => name,
        }
    });
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let hosts: Vec<String> = hosts.collect();
    format!("postgres://{user}{}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

/// Settings of an address that libpq knows and the driver does not.
#[derive(Default)]
struct LibpqSettings {
    service: Option<String>,
    root_certificate: Option<PathBuf>,
    /// `sslmode=verify-ca` or `verify-full`. Certificates are always verified; these modes also insist on TLS.
    requires_tls: bool,
}

/// Takes the settings that the driver does not know out of an address.
fn split_libpq_settings(address: &str) -> (String, LibpqSettings) {
    let mut own = LibpqSettings::default();
    let Some((plain, query)) = address.split_once('?') else { return (address.to_owned(), own) };
    let mut kept = Vec::new();
    for setting in query.split('&').filter(|setting| !setting.is_empty()) {
        match setting.split_once('=') {
            Some(("service", name)) => own.service = Some(name.to_owned()),
            Some(("sslrootcert", path)) => own.root_certificate = Some(path.into()),
            Some(("sslmode", "verify-ca" | "verify-full")) => own.requires_tls = true,
            Some(("sslmode", "allow")) => kept.push("sslmode=prefer"),
            _ => kept.push(setting),
        }
    }
    match kept.is_empty() {
        true => (plain.to_owned(), own),
        false => (format!("{plain}?{}", kept.join("&")), own),
    }
}

/// TLS with the certificates of the operating system, or with those of a file.
fn make_tls(root_certificate: Option<&Path>) -> Result<MakeRustlsConnect, AddressError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(AddressError::Tls)?;
    let config = match root_certificate {
        Some(path) => {
            let mut roots = rustls::RootCertStore::empty();
            let read =
                |source: rustls::pki_types::pem::Error| AddressError::Certificates { path: path.to_owned(), source };
            for certificate in CertificateDer::pem_file_iter(path).map_err(read)? {
                roots.add(certificate.map_err(read)?).map_err(AddressError::Tls)?;
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        None => {
            let config = rustls::ClientConfig::with_platform_verifier();
            match config {
                Ok(config) => config,
                // A machine without certificates can still connect without TLS.
                Err(_) => builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth(),
            }
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

/// A file in the home folder, unless a variable names another one.
fn home_file(variable: &str, name: &str) -> Option<PathBuf> {
    match std::env::var_os(variable) {
        Some(path) => Some(path.into()),
        None => Some(PathBuf::from(std::env::var_os("HOME")?).join(name)),
    }
}

/// Settings of a section of the service file.
fn read_service(name: &str) -> Result<Vec<(String, String)>, AddressError> {
    let path = home_file("PGSERVICEFILE", ".pg_service.conf").ok_or(AddressError::NoHome)?;
    let text =
        std::fs::read_to_string(&path).map_err(|source| AddressError::ServiceFile { path: path.clone(), source })?;
    let mut settings = Vec::new();
    let mut has_section = false;
    let mut is_inside = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_inside = section == name;
            has_section |= is_inside;
        } else if let (true, Some((key, value))) = (is_inside, line.split_once('=')) {
            settings.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    if has_section { Ok(settings) } else { Err(AddressError::NoService { path, name: name.to_owned() }) }
}

/// The address itself takes precedence.
fn apply_service(config: &mut Config, settings: &[(String, String)]) -> Result<(), AddressError> {
    for (key, value) in settings {
        match key.as_str() {
            "host" if config.get_hosts().is_empty() => drop(config.host(value)),
            "port" if config.get_ports().is_empty() => {
                config.port(value.parse().map_err(|_| AddressError::ServicePort { value: value.clone() })?);
            }
            "dbname" if config.get_dbname().is_none() => drop(config.dbname(value)),
            "user" if config.get_user().is_none() => drop(config.user(value)),
            "password" if config.get_password().is_none() => drop(config.password(value)),
            "sslmode" if value == "disable" => drop(config.ssl_mode(SslMode::Disable)),
            "sslmode" if value.starts_with("verify") || value == "require" => drop(config.ssl_mode(SslMode::Require)),
            _ => {}
        }
    }
    Ok(())
}

/// The password of the first matching line of the password file: `host:port:database:user:password`, `*` for any.
fn password_from_file(config: &Config) -> Option<String> {
    let text = std::fs::read_to_string(home_file("PGPASSFILE", ".pgpass")?).ok()?;
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        _ => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let wanted = [host.as_str(), &port, config.get_dbname().unwrap_or_default(), config.get_user().unwrap_or_default()];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = split_password_line(line);
        let [rules @ .., password] = fields.as_slice() else { return None };
        let is_match = rules.len() == 4 && rules.iter().zip(wanted).all(|(rule, value)| rule == "*" || rule == value);
        is_match.then(|| password.clone())
    })
}

/// Fields are separated by colons; a backslash escapes a colon or a backslash.
fn split_password_line(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut().into_iter().for_each(|field| field.extend(rest.next())),
            c => fields.last_mut().into_iter().for_each(|field| field.push(c)),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_contains_a_password() {
        for (address, display_address) in [
            ("postgres://me:secret@db:5433/shop?sslmode=require", "postgres://me@db:5433/shop"),
            ("postgres://me:se/cr+et=@db:5432/shop", "postgres://me@db:5432/shop"),
            ("postgres://one:1,two:2/shop?user=me&password=secret", "postgres://me@one:1,two:2/shop"),
        ] {
            assert_eq!(
                PostgresServer::from_address(address).map(|server| server.to_string()).unwrap(),
                display_address
            );
        }
        let refused = PostgresServer::from_address("postgres://me:se@cret@db/shop").err().unwrap().to_string();
        assert!(!refused.contains("cret") && refused.contains("%40"), "{refused}");
        let refused = PostgresServer::from_address("postgres://me:secret@db:port/shop").err().unwrap().to_string();
        assert!(!refused.contains("secret") && refused.contains("postgres://USER@HOST"), "{refused}");
        let refused = PostgresServer::from_address("postgres://me:secret@db").err().unwrap().to_string();
        assert!(refused.contains("names no database"), "{refused}");
    }

    #[test]
    fn settings_of_libpq_are_understood() {
        let (plain, own) =
            split_libpq_settings("postgres://db/shop?sslmode=verify-full&sslrootcert=/a.pem&connect_timeout=3");
        assert_eq!(plain, "postgres://db/shop?connect_timeout=3");
        assert!(own.requires_tls && own.root_certificate.is_some());
        assert_eq!(split_password_line(r"db:*:shop:me:a\:b\\c:d"), ["db", "*", "shop", "me", r"a:b\c:d"]);
    }
}
