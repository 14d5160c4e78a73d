//! The coordinator's program: all of it is in the library.

fn main() -> std::process::ExitCode {
    coordinator::cli::main()
}
