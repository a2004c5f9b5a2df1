//! Signals to `gradus experiment`: whatever ends it, no agent is left running.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::place::Place;

const ITEM: &str = "{\"id\": \"a\", \"request\": \"Wait.\"}\n";
/// It leaves a process behind that does not end by itself, and waits for it.
const WAITING_AGENT: &str = "sleep 600 &\necho $! >sleep.pid\necho $$ >agent.pid\ntouch started\nwait\n";

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that was killed and not yet reaped has no command line.
fn is_alive(pid: &str) -> bool {
    std::fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|text| !text.is_empty())
}

fn start_experiment(place: &Place, prefix: &str) -> Child {
    place.write("items.jsonl", ITEM);
    place.write("agent.sh", WAITING_AGENT);
    let own = place.command(&[
        "experiment",
        "items.jsonl",
        "--agent",
        "sh agent.sh",
        "--no-grading",
        "--setup",
        "(sleep 600 & echo $! >setup.pid)",
        "--teardown",
        "kill -0 $(cat setup.pid) && touch torn_down",
    ]);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{prefix} exec \"$@\""), "sh"]).arg(own.get_program()).args(own.get_args());
    command.current_dir(own.get_current_dir().unwrap());
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("no trial starts", || place.path("started").exists());
    child
}

#[test]
fn no_signal_leaves_an_agent_running() {
    for (signal, code, killed_by) in
        [(Signal::TERM, Some(143), None), (Signal::HUP, Some(129), None), (Signal::KILL, None, Some(9))]
    {
        let place = Place::new();
        let mut child = start_experiment(&place, "");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (code, killed_by), "{signal:?}");
        for file in ["agent.pid", "sleep.pid", "setup.pid"] {
            let pid = place.read(file);
            wait_until(&format!("{signal:?} leaves {file}"), || !is_alive(&pid));
        }
        // Teardown finds what setup began. Nothing can be done after SIGKILL.
        assert_eq!(place.path("torn_down").exists(), killed_by.is_none(), "{signal:?}");
    }
}

#[test]
fn a_closed_terminal_does_not_end_what_nohup_started() {
    let place = Place::new();
    let mut child = start_experiment(&place, "trap '' HUP;");
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    // A signal that is handled comes before the next one, so the exit code tells whether it ended the program.
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
