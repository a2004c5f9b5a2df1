//! The `gradus` command.

use std::process::ExitCode;

/// Returns memory to the system some seconds after a burst. glibc's allocator does not: it keeps freed memory between
/// blocks that are in use, in several arenas.
#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    gradus::cli::run_cli(std::env::args_os())
}
