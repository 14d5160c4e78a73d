//! `perfbisect-agent`: see the crate `protocol` for its verbs. As process 1 it is the init of a guest it built itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        runner::guest::init();
    }
    runner::cli::main(std::env::args_os().skip(1).collect())
}
