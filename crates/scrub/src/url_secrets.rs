//! Finds secrets in URLs (`scheme://user:password@host`, signatures), in headers (authorization, cookies) and in the
//! arguments of commands that take a password as `-p`.

use std::sync::LazyLock;

use regex::Regex;

use crate::finding::{Finding, FindingRank, ScrubCategory};
use crate::secret_names::{looks_like_credential, looks_like_password};

/// How the captured value is checked.
type ValueCheck = fn(&str) -> bool;

static PATTERNS: LazyLock<[(&str, Regex, ValueCheck); 7]> = LazyLock::new(|| {
    let compile = |pattern: &str| Regex::new(pattern).unwrap_or_else(|error| panic!("pattern of a URL: {error}"));
    [
        ("url-password", compile(r#"://[^\s:/@"'<>\\]{0,100}:([^\s/@"'<>\\]{1,200})@"#), looks_like_password),
        (
            "url-signature",
            compile(r"(?i-u:[?&](?:sig|signature|x-amz-signature|x-goog-signature)=)((?-u:[A-Za-z0-9%+/=_-]){16,})"),
            looks_like_credential,
        ),
        (
            "authorization",
            compile(
                r#"(?i-u:authorization\\{0,6}["']?\s{0,4}[:=,]\s{0,4}\\{0,6}["']?(?:bearer|basic|token|digest|apikey|bot)\s{1,4})((?-u:[A-Za-z0-9._~+/=-]){8,})"#,
            ),
            is_basic_credential,
        ),
        (
            "authorization",
            compile(r"(?-u:\b)(?:Bearer|bearer|BEARER) ((?-u:[A-Za-z0-9._~+/=-]){16,})"),
            looks_like_credential,
        ),
        (
            "cookie",
            compile(
                r#"(?i-u:\b(?:set-)?cookie\\{0,6}["']?\s{0,3}:\s{0,3}\\{0,6}["']?)((?-u:[A-Za-z0-9_.-]){1,64}=[^\s;"'\\,<>]{4,}(?:; ?(?-u:[A-Za-z0-9_.-]){1,64}=[^\s;"'\\,<>]*)*)"#,
            ),
            is_cookie,
        ),
        (
            "password",
            compile(
                r#"(?-u:\b)(?:docker|podman|registry|nerdctl) login (?-u:[ -%'-:<-{}~]){0,120}?-p ["']?([^\s"'<>\\]{4,200})"#,
            ),
            looks_like_password,
        ),
        (
            "password",
            compile(
                r#"(?-u:\b)(?:(?:mysql|mysqldump|mysqladmin|mariadb) (?-u:[ -%'-:<-{}~]){0,120}?-p|sshpass -p ?)["']?([^\s"'<>\\-][^\s"'<>\\]{3,200})"#,
            ),
            looks_like_password,
        ),
    ]
});

/// Adds passwords and signatures of URLs, credentials and cookies of headers, and passwords of commands.
pub(crate) fn find_url_secrets(text: &str, findings: &mut Vec<Finding>) {
    for (rule, regex, is_secret) in PATTERNS.iter() {
        for captures in regex.captures_iter(text) {
            let Some(value) = captures.get(1).filter(|value| is_secret(value.as_str())) else { continue };
            findings.push(Finding {
                span: value.range(),
                category: ScrubCategory::Secret,
                rank: FindingRank::NamedSecret,
                rule: (*rule).to_owned(),
            });
        }
    }
}

/// Whether a value looks like a cookie. Cookies of documentation (`name=value`) have no digits.
fn is_cookie(value: &str) -> bool {
    value.bytes().any(|byte| byte.is_ascii_digit()) && looks_like_password(value.split(';').next().unwrap_or(value))
}

/// Whether a value after `Authorization: Basic` is a credential, which all are but words about it.
fn is_basic_credential(value: &str) -> bool {
    looks_like_password(value)
        && value.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase() || byte == b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Vec<&str> {
        let mut findings = Vec::new();
        find_url_secrets(text, &mut findings);
        findings.into_iter().map(|finding| &text[finding.span]).collect()
    }

    #[test]
    fn passwords_of_urls_are_found() {
        assert_eq!(find("postgres://app:hunter2@db.internal:5432/x"), ["hunter2"]);
        assert!(find("http://localhost:8080/a@b").is_empty());
        assert!(find("postgres://app:${PGPASSWORD}@db/x").is_empty());
    }

    #[test]
    fn credentials_of_headers_are_found() {
        assert_eq!(find("Authorization: Basic YWxpY2U6aHVudGVyMg=="), ["YWxpY2U6aHVudGVyMg=="]);
        assert_eq!(find(r#"{\"authorization\": \"Bearer abcDEF123456\"}"#), ["abcDEF123456"]);
        assert!(find("Authorization: Bearer <token>").is_empty());
        assert!(find("uses Bearer authentication").is_empty());
    }

    #[test]
    fn cookies_and_arguments_of_commands_are_found() {
        assert_eq!(find("Cookie: sessionid=38afes7a8; theme=dark\n"), ["sessionid=38afes7a8; theme=dark"]);
        assert_eq!(find("mysql -u root -phunter2 -h db"), ["hunter2"]);
        assert_eq!(find("docker login -u bob -p Sup3rS3cret registry.test"), ["Sup3rS3cret"]);
        for text in
            ["Cookie: name=value", "mysql -u root -p -h db", "docker login -u bob -p $PASSWORD", "mkdir -p build/x"]
        {
            assert!(find(text).is_empty(), "{text}");
        }
    }
}
