//! A `gradus.toml` that lies in the folder: it gets nothing that could hurt before the user trusts it.

use std::process::Stdio;

use rustix::process::Signal;

use crate::lab::{Lab, Ran, Server, eventually, in_vain};
use crate::spans::Visit;

const SERVE: [&str; 7] = ["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--log-format", "json"];

/// Notes that it ran, and with which variables.
const ALERT: &str = "[[alert]]\nname = \"a\"\nwhen = \"error_rate > 0.1 over 1h\"\ncool_down = \"1s\"\n\
    command = [\"sh\", \"-c\", \"env > ran.tmp; mv ran.tmp ran\"]\n";

fn untrusted(lab: &Lab, arguments: &[&str]) -> Ran {
    Ran::from_output(lab.untrusting_command(arguments).output().unwrap())
}

fn fail_often(server: &Server) {
    for number in 1..=40 {
        let mut visit = Visit::new(number);
        visit.is_error = true;
        server.export(&visit.export("p"));
    }
}

#[test]
fn each_command_refuses_a_found_file_and_names_its_keys() {
    let webhook = "webhook = \"http://127.0.0.1:9/T0PSECRET\"\n";
    let lab = Lab::with("", &format!("{ALERT}{webhook}"));
    for arguments in [
        &["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"][..],
        &["eval", "x.json", "--judge", "offline"],
        &["bench"],
        &["traces", "x.json"],
        &["report"],
        &["rubrics", "list"],
        &["keys", "list"],
        &["store", "check"],
    ] {
        let ran = in_vain(lab.untrusting_command(arguments)).exits_with(2);
        for part in ["alert[0].command (runs a program)", "alert[0].webhook", "`gradus trust`", "GRADUS_TRUST_CONFIG=1"]
        {
            assert!(ran.err.contains(part), "{arguments:?}: {}", ran.err);
        }
        assert!(!ran.err.contains("T0PSECRET") && ran.err.lines().count() == 1, "{}", ran.err);
    }
    // Naming the file is consent.
    let mut named = lab.untrusting_command(&SERVE);
    named.args(["--config", "gradus.toml"]);
    assert_eq!(Server::start(named).stop().0, Some(0));
    let mut named = lab.untrusting_command(&SERVE);
    named.env("GRADUS_CONFIG", "gradus.toml");
    assert_eq!(Server::start(named).stop().0, Some(0));
}

#[test]
fn trust_is_given_once_for_the_file_as_it_is() {
    let lab = Lab::with("", ALERT);
    // Nobody is there to be asked.
    let asked =
        Ran::from_output(lab.untrusting_command(&["trust"]).stdin(Stdio::null()).output().unwrap()).exits_with(2);
    assert!(asked.out.contains("alert[0].command: runs a program: [\"sh\", \"-c\""), "{}", asked.out);
    assert!(asked.err.contains("--yes"), "{}", asked.err);
    in_vain(lab.untrusting_command(&SERVE)).exits_with(2);

    untrusted(&lab, &["trust", "--yes"]).exits_with(0);
    let listed = untrusted(&lab, &["trust", "--list"]).exits_with(0);
    assert!(listed.out.contains("gradus.toml\ttrusted\t") && listed.out.contains("alert[0].command"), "{}", listed.out);
    assert_eq!(Server::start(lab.untrusting_command(&SERVE)).stop().0, Some(0));

    // One byte is another file.
    lab.write("gradus.toml", &format!("{} ", lab.read("gradus.toml")));
    in_vain(lab.untrusting_command(&SERVE)).exits_with(2);
    assert!(untrusted(&lab, &["trust", "--list"]).out.contains("changed since"));

    untrusted(&lab, &["trust", "--yes", "gradus.toml"]).exits_with(0);
    untrusted(&lab, &["trust", "--remove", "gradus.toml"]).exits_with(0);
    in_vain(lab.untrusting_command(&SERVE)).exits_with(2);
    untrusted(&lab, &["trust", "--remove", "gradus.toml"]).exits_with(2);
}

#[test]
fn a_file_that_changes_under_a_running_server_is_not_applied() {
    let lab = Lab::new();
    let server = Server::start(lab.untrusting_command(&SERVE));
    lab.configure("", ALERT);
    server.signal(Signal::HUP);
    eventually("it is refused", || server.log().contains("alert[0].command").then_some(()));
    assert!(!server.log().contains("settings reloaded"));
    assert!(!server.get("/api/v1/alerts").text().contains("error_rate"));
    // Once it is trusted, it is.
    untrusted(&lab, &["trust", "--yes"]).exits_with(0);
    server.signal(Signal::HUP);
    eventually("it is applied", || server.log().contains("settings reloaded").then_some(()));
    fail_often(&server);
    eventually("the command ran", || lab.path("ran").exists().then_some(()));
}

#[test]
fn settings_stay_when_their_file_is_gone() {
    let lab = Lab::with("", "[[serve.redact]]\nbuiltin = [\"emails\"]\n");
    let server = Server::start(lab.untrusting_command(&SERVE));
    std::fs::remove_file(lab.path("gradus.toml")).unwrap();
    server.signal(Signal::HUP);
    eventually("it is reported", || server.log().contains("the settings file is missing").then_some(()));
    assert!(!server.log().contains("settings reloaded"));
    let mut visit = Visit::new(1);
    visit.query = "Write to ann@shop.example.".to_owned();
    server.export(&visit.export("p"));
    server.assembled();
    let kept = server.trace(&crate::spans::trace_id(1)).to_string();
    assert!(kept.contains("[redacted:emails]") && !kept.contains("ann@shop"), "{kept}");
}

#[test]
fn an_alert_command_gets_a_cleaned_environment() {
    let lab = Lab::with("", &format!("{ALERT}env = [\"PASSED_ON\"]\n"));
    let mut command = lab.command(&SERVE);
    command.env("OPENAI_API_KEY", "sk-1").env("AWS_SECRET_ACCESS_KEY", "s-2").env("PASSED_ON", "yes");
    let server = Server::start(command);
    fail_often(&server);
    eventually("the command ran", || lab.path("ran").exists().then_some(()));
    let seen = lab.read("ran");
    for part in ["PATH=", "PASSED_ON=yes", "GRADUS_ALERT_NAME=a"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    for part in ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GRADUS_TRUST_CONFIG"] {
        assert!(!seen.contains(part), "{part}: {seen}");
    }
}
