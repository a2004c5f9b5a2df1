//! Scheduling priorities of background threads.

/// Nice values. Connections, small requests and the store run at the default of 0 and come first when cores are short.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadPriority {
    /// Queries and large requests.
    Low = 10,
    /// Assembly and judging.
    Background = 15,
}

impl ThreadPriority {
    /// Sets the priority of the calling thread. Linux only: elsewhere it would apply to the whole process.
    pub(crate) fn apply_to_thread(self) {
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), self as i32);
    }
}
