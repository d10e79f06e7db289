//! `longhaul`: parses the command line and wires the roles together; nothing else.
#![allow(unreachable_pub, reason = "a binary has no outside")]

mod cli;
mod config;
mod product;
mod roles;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|arg| arg == "probe") && args.next().is_some_and(|arg| arg == "--child") {
        // Limits of the whole process: they must stand before any thread does.
        return longhaul_worker::probe::child_main(args);
    }
    // One provider for every TLS client of the process; a second call would only say that it stands already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = cli::args::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            cli::output::say(&format!(
                "longhaul: the runtime cannot start ({error}); are there too many processes or open files?"
            ));
            return ExitCode::from(1);
        }
    };
    runtime.block_on(cli::run(cli))
}
