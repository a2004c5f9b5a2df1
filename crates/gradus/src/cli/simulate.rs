//! `gradus simulate`: serves the simulated GitHub on a loopback port. The first line of standard output is the address,
//! then one line per token with its user; scripts read them.

use std::sync::{Arc, Mutex};

use clap::Args;
use gradus_github_sim::{BUILT_IN_SEEDS, SeedFile, World};
use tokio::signal::unix::{SignalKind, signal};

use super::{CommandExit, print_diagnostic};
use gradus_core::visible::printable_line;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SimulateArguments {
    /// The port on 127.0.0.1; 0 is any free one.
    #[arg(long, value_name = "PORT", default_value_t = 4100)]
    port: u16,
    /// The world to begin with: w0 (an empty account) to w4, or a file.
    #[arg(long, value_name = "NAME|FILE", default_value = "w0")]
    seed: String,
    /// Refuse what is over GitHub's rate limits; the simulated clock then goes on by itself.
    #[arg(long)]
    rate_limits: bool,
    /// Check the seed, print what is in it, and do not serve.
    #[arg(long)]
    check: bool,
}

const EXAMPLES: &str = "\
Examples:
  gradus simulate                                       an empty account on port 4100
  gradus simulate --seed w2 --port 0                    issues and pull requests, on a free port
  curl -H 'Authorization: Bearer test_token_user1' localhost:4100/user
  curl localhost:4100/_gradus/diff                      what was changed since the beginning

The same requests give the same bytes, always. What is not simulated is answered with 501 and counted.

Exit codes: 0 stopped, 2 it cannot start: a bad seed, a port that is taken.";

/// Entry point of the command. The seed is checked completely before the port is opened.
pub(super) fn run_simulate_command(arguments: &SimulateArguments) -> anyhow::Result<CommandExit> {
    let made = SeedFile::load_named(&arguments.seed).and_then(|seed| seed.to_world());
    let mut world = match made {
        Ok(world) => world,
        Err(error) => {
            print_diagnostic(&printable_line(&error.to_string()));
            return Ok(CommandExit::BadInput);
        }
    };
    if arguments.check {
        print_world(&world);
        return Ok(CommandExit::Pass);
    }
    if arguments.rate_limits {
        world.enforce_limits();
    }
    // One thread is enough: the simulator answers one request at a time, which makes it deterministic.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve_world(arguments, world))
}

/// Serves until SIGINT or SIGTERM.
async fn serve_world(arguments: &SimulateArguments, world: World) -> anyhow::Result<CommandExit> {
    // The signal handlers are installed before the address is printed: a script may stop the server right after it.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = match gradus_github_sim::bind_loopback_port(arguments.port).await {
        Ok(listener) => listener,
        Err(error) => {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::BadInput);
        }
    };
    anstream::println!("http://{}", listener.local_addr()?);
    for (token, login) in world.tokens_with_logins() {
        anstream::println!("{}\t{}", printable_line(token), printable_line(login));
    }
    std::io::Write::flush(&mut std::io::stdout())?;
    tokio::select! {
        () = gradus_github_sim::serve_world(listener, Arc::new(Mutex::new(world)), arguments.rate_limits) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(CommandExit::Pass)
}

/// Prints `--check`: one line per repository, separated by tabs, then totals.
fn print_world(world: &World) {
    let state = world.state();
    for repository in state.repositories.values() {
        let branches = repository.branches().count();
        let pulls = repository.issues.values().filter(|issue| issue.pull.is_some()).count();
        anstream::println!(
            "{}\t{}\t{branches} branches\t{} issues\t{pulls} pull requests",
            printable_line(&state.full_name(repository)),
            if repository.private { "private" } else { "public" },
            repository.issues.len() - pulls,
        );
    }
    let known: Vec<&str> = BUILT_IN_SEEDS.iter().map(|(name, _)| *name).collect();
    anstream::println!(
        "{} accounts, {} repositories, now {}; seeds that come with Gradus: {}",
        state.accounts.len(),
        state.repositories.len(),
        state.now,
        known.join(", ")
    );
}
