//! Interrupts while agents work on trials: those under way are finished first, and no process is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::CommandExit;
use super::sources::print_diagnostic;
use crate::process_groups::ProcessGroupRegistry;

/// A thread that handles signals during the trials. The first Ctrl-C lets running trials finish; a second one, or
/// SIGTERM, ends the process at once, together with the programs of agents that are running. Dropping it ends the
/// thread.
pub(super) struct InterruptListener {
    /// Dropping the sender ends the thread.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl InterruptListener {
    pub(super) fn start(stop: &Arc<AtomicBool>, programs: &ProcessGroupRegistry, hint: String) -> InterruptListener {
        let (stop, programs) = (Arc::clone(stop), programs.clone());
        let (end, ended) = oneshot::channel();
        let listen = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(listen_for_interrupts(&stop, &programs, &hint, ended));
            }
        };
        // If no thread can be started, Ctrl-C ends the process as usual, and --resume still works.
        let thread = std::thread::Builder::new().name("interrupts".to_owned()).spawn(listen);
        InterruptListener { end: Some(end), thread: thread.ok() }
    }
}

impl Drop for InterruptListener {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Ends when `ended` is closed. `stop` is read by the trial pool before it starts a trial.
async fn listen_for_interrupts(
    stop: &AtomicBool,
    programs: &ProcessGroupRegistry,
    hint: &str,
    mut ended: oneshot::Receiver<()>,
) {
    let (Ok(mut pressed), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    loop {
        let at_once = tokio::select! {
            // In this order: a signal that came before the end of the trials must not be lost.
            biased;
            _ = terminate.recv() => true,
            _ = pressed.recv() => stop.swap(true, Ordering::Relaxed),
            _ = &mut ended => return,
        };
        if at_once {
            programs.end_all();
            print_diagnostic(&format!("interrupted; {hint}"));
            std::process::exit(CommandExit::Interrupted as i32);
        }
        print_diagnostic("finishing the trials that are under way; once more ends at once");
    }
}
