//! The `granulo` command.

fn main() -> std::process::ExitCode {
    granulo::cli::main()
}
