//! The environment of programs that Gradus starts: the variables that a program needs to run, and nothing else. Keys of
//! model providers, of GitHub and of clouds are not passed on unless the user names them.

use std::ffi::OsString;

/// Variables that are passed on, in addition to `LC_*`. None of them usually holds a secret.
pub const PASSED_VARIABLES: [&str; 29] = [
    "CONDA_PREFIX",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "NODE_PATH",
    "PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "REQUESTS_CA_BUNDLE",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "SYSTEMROOT",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "USERPROFILE",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
];
const ALLOWED_PREFIX: &str = "LC_";

/// Returns the variables of this process that a program may have: the allow-list and those in `named`, whose names
/// may end in `*`.
pub fn child_variables(named: &[String]) -> impl Iterator<Item = (OsString, OsString)> + '_ {
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(|name| is_passed_on(name, named)))
}

/// Returns the first entry that is not the name of a variable, optionally with `*` at its end.
pub fn find_invalid_variable_name(named: &[String]) -> Option<&str> {
    let is_valid = |name: &str| {
        let stem = name.strip_suffix('*').unwrap_or(name);
        !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    named.iter().map(String::as_str).find(|name| !is_valid(name))
}

fn is_passed_on(name: &str, named: &[String]) -> bool {
    PASSED_VARIABLES.contains(&name)
        || name.starts_with(ALLOWED_PREFIX)
        || named.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == wanted,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_passed_on_only_when_they_are_named() {
        for name in ["PATH", "HOME", "LC_ALL", "LC_TIME", "TZ"] {
            assert!(is_passed_on(name, &[]), "{name}");
        }
        let secrets = ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GH_TOKEN", "GRADUS_API_KEY", "HTTPS_PROXY"];
        for name in secrets {
            assert!(!is_passed_on(name, &[]), "{name}");
            assert!(is_passed_on(name, &[name.to_owned()]), "{name}");
        }
        assert!(is_passed_on("OPENAI_API_KEY", &["OPENAI_*".to_owned()]));
        assert!(!is_passed_on("XOPENAI_API_KEY", &["OPENAI_*".to_owned()]));
    }

    #[test]
    fn names_have_the_form_of_variables() {
        let named = |name: &str| find_invalid_variable_name(&[name.to_owned()]).map(str::to_owned);
        for name in ["A", "OPENAI_API_KEY", "OPENAI_*"] {
            assert_eq!(named(name), None);
        }
        for name in ["", "*", "A=b", "A B", "*A"] {
            assert_eq!(named(name).as_deref(), Some(name));
        }
    }
}
