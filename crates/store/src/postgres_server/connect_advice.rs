//! What to do about a connection that failed. PostgreSQL says what is wrong in a code; TLS and missing passwords are noticed
//! by the driver, which has only words for them.

use crate::sql::describe_postgres_error;

/// For everything that happens before a PostgreSQL server has answered.
pub(super) const CHECK_ADDRESS: &str = "check the address, and that the server runs";

/// Advice by SQLSTATE (PostgreSQL's appendix A).
const BY_CODE: &[(&str, &str)] = &[
    // The same code for a role that does not exist, so that nobody can find out which do.
    ("28P01", "check the user and the password (PGPASSWORD, ~/.pgpass, or in the address)"),
    ("28000", "check the user, and that pg_hba.conf of the server lets it in"),
    ("3D000", "create the database (CREATE DATABASE name OWNER user), or correct its name"),
    ("42501", "give the role the right to connect (GRANT CONNECT ON DATABASE)"),
    ("53300", "close other clients of the server, or raise its max_connections"),
    ("55000", "open the database for connections (ALTER DATABASE name ALLOW_CONNECTIONS true)"),
    ("57P03", "wait until the server has started, and try again"),
];

/// Advice by a part of the message. The first that matches counts, before the code.
const BY_TEXT: &[(&str, &str)] = &[
    ("password missing", "give the password with PGPASSWORD or in ~/.pgpass"),
    ("no encryption", "the server may want TLS: write sslmode=require; else add the user to its pg_hba.conf"),
    ("does not support TLS", "switch TLS on at the server (ssl = on), or write sslmode=disable"),
    ("certificate", "name the certificate that signed it with sslrootcert=FILE, and the host as the certificate does"),
    ("TLS handshake", "check that the port is that of PostgreSQL and its TLS works, or write sslmode=disable"),
];

/// One sentence on what to do about an error of a new connection.
pub(super) fn advise(error: &::postgres::Error) -> &'static str {
    find_advice(error.code().map(::postgres::error::SqlState::code), &describe_postgres_error(error))
}

fn find_advice(code: Option<&str>, text: &str) -> &'static str {
    let by_text = BY_TEXT.iter().find(|(part, _)| text.contains(part));
    let by_code = || BY_CODE.iter().find(|(known, _)| Some(*known) == code);
    by_text.or_else(by_code).map_or(CHECK_ADDRESS, |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_own_advice() {
        let refused = "no pg_hba.conf entry for host \"10.0.0.1\", user \"me\", database \"shop\", ";
        for (code, text, expected) in [
            (None, "error connecting to server: Connection refused", CHECK_ADDRESS),
            (None, "invalid configuration: password missing", "PGPASSWORD"),
            (None, "error performing TLS handshake: server does not support TLS", "sslmode=disable"),
            (None, "error performing TLS handshake: invalid peer certificate: UnknownIssuer", "sslrootcert"),
            (Some("28P01"), "password authentication failed for user \"me\"", "the password"),
            (Some("28000"), &format!("{refused}no encryption"), "sslmode=require"),
            (Some("28000"), &format!("{refused}SSL encryption"), "pg_hba.conf"),
            (Some("28000"), "role \"me\" does not exist", "check the user"),
            (Some("3D000"), "database \"shop\" does not exist", "CREATE DATABASE"),
            (Some("57P03"), "the database system is starting up", "wait"),
        ] {
            let advice = find_advice(code, text);
            assert!(advice.contains(expected), "{text}: {advice}");
        }
    }
}
