//! Completions, manual pages and the version: what packages ship and bug reports begin with.

use crate::place::{Place, Ran};

#[test]
fn completions_exist_for_every_shell() {
    let place = Place::new();
    for (shell, part) in [
        ("bash", "complete -F _gradus"),
        ("zsh", "#compdef gradus"),
        ("fish", "complete -c gradus"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "edit:completion:arg-completer[gradus]"),
    ] {
        let script = place.run(&["completions", shell]).exits_with(0).out;
        assert!(script.contains(part) && script.contains("experiment") && script.contains("completions"), "{shell}");
    }
    place.run(&["completions", "tcsh"]).exits_with(2);
    // The script of the shell that is everywhere can be read by it.
    let script = place.write("gradus.bash", &place.run(&["completions", "bash"]).out);
    let bash = std::process::Command::new("bash").arg("-n").arg(script).output().unwrap();
    assert!(bash.status.success(), "{}", String::from_utf8_lossy(&bash.stderr));
}

#[test]
fn each_command_has_a_manual_page() {
    let place = Place::new();
    place.run(&["man", "new/man1"]).exits_with(0);
    let page = place.read("new/man1/gradus.1");
    assert!(page.contains(".TH gradus 1") && page.contains("gradus\\-eval"), "{page}");
    for name in ["gradus-eval.1", "gradus-config-show.1", "gradus-init.1", "gradus-store-backup.1"] {
        assert!(place.read(&format!("new/man1/{name}")).contains(".SH SYNOPSIS"), "{name}");
    }
    place.write("file", "");
    let ran = place.run(&["man", "file/below"]).exits_with(2);
    assert!(ran.err.starts_with("gradus: man pages not written: file/below: "), "{}", ran.err);
}

#[test]
fn the_version_says_how_the_program_was_built() {
    let place = Place::new();
    let short = place.run(&["--version"]).exits_with(0).out;
    assert_eq!(short, format!("gradus {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(place.run(&["-V"]).exits_with(0).out, short);
    for arguments in [["--version", "--verbose"], ["--verbose", "--version"]] {
        let long = place.run(&arguments).exits_with(0).out;
        assert!(long.starts_with(&short), "{long}");
        let names: Vec<&str> =
            long.lines().skip(1).filter_map(|line| line.split_once(": ")).map(|pair| pair.0).collect();
        assert_eq!(names, ["commit", "target", "profile", "features", "store schema", "sqlite"], "{long}");
        assert!(long.lines().all(|line| !line.ends_with(": ")), "{long}");
        assert!(long.contains(&format!("sqlite: {}\n", rusqlite::version())), "{long}");
        let migrations = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/migrations");
        let files = std::fs::read_dir(migrations).unwrap().map(|entry| entry.unwrap().path());
        let count = files.filter(|path| path.extension().is_some_and(|ending| ending == "sql")).count();
        assert!(long.contains(&format!("store schema: {count}\n")), "{long}");
    }
    place.run(&["--verbose"]).exits_with(2);
    place.run(&[]).exits_with(2);
}

/// One line, and no backtrace.
#[test]
fn an_output_that_is_full_is_one_line() {
    let place = Place::new();
    for arguments in [&["--version"][..], &["--version", "--verbose"], &["init", "--dry-run"]] {
        let mut command = place.command(arguments);
        command.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap());
        let ran = Ran::from_output(command.output().unwrap()).exits_with(1);
        assert!(ran.err.contains("cannot be written") && ran.err.lines().count() == 1, "{arguments:?}: {}", ran.err);
    }
}
