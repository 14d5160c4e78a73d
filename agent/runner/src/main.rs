//! `perfbisect-agent`: see the crate `protocol` for its verbs. As process 1 it is the init of a guest it built itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        // A machine is tried before it serves: its own kernel, with this as its init, has to fail.
        match std::env::var("perfbisect_trial").as_deref() {
            // The kernel panics when its init ends.
            Ok("panic") => return ExitCode::FAILURE,
            Ok("hang") => loop {
                std::thread::park();
            },
            Ok(_) | Err(_) => {}
        }
        runner::guest::init();
    }
    runner::cli::main(std::env::args_os().skip(1).collect())
}
