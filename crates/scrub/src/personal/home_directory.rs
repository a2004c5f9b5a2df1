//! User names in the paths of home directories: `/home/NAME`, `/Users/NAME`, `C:\Users\NAME`, and the folders that
//! coding agents name after such paths (`projects/-home-NAME-work`).

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// Accounts of systems and images: they name no person.
const SERVICE_ACCOUNTS: [&str; 30] = [
    "user",
    "users",
    "username",
    "runner",
    "ubuntu",
    "debian",
    "node",
    "root",
    "app",
    "agent",
    "admin",
    "vscode",
    "codespace",
    "coder",
    "jovyan",
    "vagrant",
    "ec2-user",
    "git",
    "linuxbrew",
    "circleci",
    "jenkins",
    "docker",
    "nonroot",
    "shared",
    "public",
    "default",
    "sandbox",
    "gitpod",
    "you",
    "me",
];

static HOME_DIRECTORY: LazyLock<Regex> = LazyLock::new(|| {
    let unix = r"(?:/home/|/Users/|/var/home/|/export/home/)([A-Za-z0-9_][A-Za-z0-9._-]{0,63})";
    let windows =
        r"(?i:\b[a-z]:(?:\\{1,8}|/)(?:users|documents and settings)(?:\\{1,8}|/))([A-Za-z0-9_][A-Za-z0-9 ._-]{0,63})";
    let encoded = r"projects/-(?:home|Users)-([A-Za-z0-9_]{1,64})";
    Regex::new(&format!("(?-u:{unix}|{windows}|{encoded})")).unwrap_or_else(|error| panic!("home directories: {error}"))
});

pub(crate) fn find_user_names(text: &str, add: &mut impl FnMut(Range<usize>)) {
    for captures in HOME_DIRECTORY.captures_iter(text) {
        let (Some(whole), Some(name)) = (captures.get(0), captures.iter().skip(1).flatten().next()) else { continue };
        if text[whole.start()..].starts_with('/') && !is_path_start(text, whole.start()) {
            continue;
        }
        let span = name.start()..name.start() + user_name_length(text, name.range());
        let name = &text[span.clone()];
        if !name.is_empty() && !SERVICE_ACCOUNTS.contains(&name.to_ascii_lowercase().as_str()) {
            add(span);
        }
    }
}

/// Whether a path begins here: `/home/` inside of a longer path or of a URL is a folder of that name. A drive of
/// Windows in WSL (`/mnt/c/Users/NAME`) and the URL of a file are home directories.
fn is_path_start(text: &str, at: usize) -> bool {
    let before = &text[..at];
    match before.as_bytes().last() {
        None => true,
        Some(byte) if byte.is_ascii_alphanumeric() => {
            // `\n/home/x` in an escaped text.
            let bytes = before.as_bytes();
            let is_escape = bytes.len() >= 2 && bytes[bytes.len() - 2] == b'\\' && matches!(byte, b'n' | b't' | b'r');
            let is_drive = bytes.len() >= 6 && bytes[bytes.len() - 6..].starts_with(b"/mnt/");
            is_escape || is_drive || before.ends_with("/rootfs") || before.ends_with("/host")
        }
        Some(b'/') => before.ends_with("file://"),
        Some(byte) => !matches!(byte, b'.' | b'_' | b'-' | b'~' | b'*' | b'}' | b')' | b'>'),
    }
}

/// Returns the length of a user name. A name with spaces (Windows) ends at the next separator; without one, at the
/// first space. A full stop at the end of a sentence is not included.
fn user_name_length(text: &str, span: Range<usize>) -> usize {
    let name = &text[span.clone()];
    let has_separator = matches!(text.as_bytes().get(span.end), Some(b'\\' | b'/'));
    let name = if has_separator { name } else { name.split(' ').next().unwrap_or(name) };
    name.trim_end_matches(['.', '-', ' ']).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        find_user_names(text, &mut |span| found.push(&text[span]));
        found
    }

    #[test]
    fn names_are_found_in_paths_of_all_systems() {
        assert_eq!(find("cd /home/ann.lee/work && ls /Users/bob."), ["ann.lee", "bob"]);
        assert_eq!(
            find(r"C:\Users\Ann Lee\Desktop, c:\\Users\\bob\\x, C:/Users/eve and more"),
            ["Ann Lee", "bob", "eve"]
        );
        assert_eq!(find("file:///home/ann/x /mnt/c/Users/bob/x"), ["ann", "bob"]);
        assert_eq!(find("~/.claude/projects/-home-ann-work/x.jsonl"), ["ann"]);
        assert_eq!(find(r"a\n/home/ann/x"), ["ann"]);
    }

    #[test]
    fn folders_urls_variables_and_service_accounts_stay() {
        for text in [
            "https://x.test/home/page",
            "src/home/index.ts",
            "/home/$USER/x",
            "/home/<USER:1>/x",
            "/home/runner/work",
            "/home/",
            "/Users/Shared/x",
        ] {
            assert!(find(text).is_empty(), "{text}");
        }
    }
}
