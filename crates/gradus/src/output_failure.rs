//! What happens when standard output cannot be written to: one line instead of a backtrace.

use std::panic::PanicHookInfo;

/// The standard library's text of this panic. The macros that print have no other way to report a failure.
const PRINT_FAILURE: &str = "failed printing to std";

/// Ends the program with exit code 1 when printing fails. A full disk is reported, a closed pipe is not. Other panics
/// are handled as before.
pub(crate) fn exit_on_print_failure() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| match find_print_failure(info) {
        Some(reason) => {
            if !reason.contains("Broken pipe") {
                // Standard error may be the same full disk.
                let _ = std::io::Write::write_fmt(
                    &mut std::io::stderr(),
                    format_args!("gradus: the output cannot be written: {reason}\n"),
                );
            }
            std::process::exit(1);
        }
        None => usual(info),
    }));
}

/// Returns the reason, if this is a panic of printing.
fn find_print_failure(info: &PanicHookInfo<'_>) -> Option<String> {
    let message = info.payload_as_str()?;
    let (_, reason) = message.strip_prefix(PRINT_FAILURE)?.split_once(": ")?;
    Some(reason.to_owned())
}
