//! Which threads give way.

/// What gives way when cores are short: connections, small requests and the store come first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadPriority {
    /// Queries and large requests.
    Low = 10,
    /// Assembling and judging.
    Background = 15,
}

impl ThreadPriority {
    /// For the calling thread. Elsewhere than on Linux it would be for the whole process.
    pub(crate) fn apply_to_thread(self) {
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), self as i32);
    }
}
