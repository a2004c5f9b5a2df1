//! Interrupts while agents work on trials: running trials are finished first, and no process is left behind.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::CommandExit;
use super::sources::print_diagnostic;
use crate::process_groups::ProcessGroupRegistry;

/// Added by shells to the number of the signal that ended a program.
const SIGNAL_EXIT_BASE: i32 = 128;

/// What is done before a signal ends the process, such as a teardown command.
type ExitAction = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Holds the action from the moment when it becomes necessary until it is done normally.
#[derive(Clone, Default)]
pub(super) struct ExitActionSlot(Arc<Mutex<Option<ExitAction>>>);

impl ExitActionSlot {
    pub(super) fn set(&self, action: impl Future<Output = ()> + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(action));
    }

    pub(super) fn take(&self) -> Option<ExitAction> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A thread that handles signals during the trials. The first Ctrl-C lets running trials finish; a second one,
/// SIGTERM or SIGHUP (the terminal was closed) ends the programs of agents that are running, and the process after
/// its exit action. One more signal does not wait for that action. Dropping it ends the thread.
pub(super) struct InterruptListener {
    /// Dropping the sender ends the thread.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl InterruptListener {
    pub(super) fn start(
        stop: &Arc<AtomicBool>,
        programs: &ProcessGroupRegistry,
        exit_action: &ExitActionSlot,
        hint: String,
    ) -> InterruptListener {
        let (stop, programs, exit_action) = (Arc::clone(stop), programs.clone(), exit_action.clone());
        let (end, ended) = oneshot::channel();
        let (handlers_set, is_listening) = mpsc::channel();
        let listen = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(listen_for_interrupts(&stop, &programs, &exit_action, &hint, handlers_set, ended));
            }
        };
        // If no thread can be started, Ctrl-C ends the process as usual, and --resume still works.
        let thread = std::thread::Builder::new().name("interrupts".to_owned()).spawn(listen);
        // A signal during the first trial must find its handler. The sender is dropped, also if there is no thread.
        let _ = is_listening.recv();
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
    exit_action: &ExitActionSlot,
    hint: &str,
    handlers_set: mpsc::Sender<()>,
    mut ended: oneshot::Receiver<()>,
) {
    let (Ok(mut pressed), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    // A handler would undo what `nohup` has set.
    let mut hang_up = if is_hangup_ignored() { None } else { signal(SignalKind::hangup()).ok() };
    drop(handlers_set);
    let hung_up = async |hang_up: &mut Option<Signal>| match hang_up {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    };
    loop {
        let exit_code = tokio::select! {
            // In this order: a signal that came before the end of the trials must not be lost.
            biased;
            _ = hung_up(&mut hang_up) => Some(SIGNAL_EXIT_BASE + SignalKind::hangup().as_raw_value()),
            _ = terminate.recv() => Some(SIGNAL_EXIT_BASE + SignalKind::terminate().as_raw_value()),
            _ = pressed.recv() => stop.swap(true, Ordering::Relaxed).then_some(CommandExit::Interrupted as i32),
            _ = &mut ended => return,
        };
        if let Some(exit_code) = exit_code {
            programs.end_all();
            print_diagnostic(&format!("interrupted; {hint}"));
            if let Some(action) = exit_action.take() {
                tokio::select! {
                    () = action => {}
                    _ = hung_up(&mut hang_up) => {}
                    _ = terminate.recv() => {}
                    _ = pressed.recv() => {}
                }
            }
            std::process::exit(exit_code);
        }
        print_diagnostic("finishing the trials that are under way; once more ends at once");
    }
}

/// Whether the parent process ignores SIGHUP, as `nohup` does. Known on Linux only.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Signal 1 is the lowest bit.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
