//! The command line: parses, calls, prints. It can do nothing to a job that the API cannot.

pub mod args;
pub mod client;
mod doctor;
pub mod exit;
pub mod jobs;
mod local;
pub mod output;
mod remote;
pub mod store;
mod watch;

use crate::config;
use crate::roles;
use args::{Cli, Command};
use client::Client;
use std::process::ExitCode;

/// Does what the command line says.
pub async fn run(cli: Cli) -> ExitCode {
    match act(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}

async fn act(cli: Cli) -> anyhow::Result<()> {
    let Cli { command, config, url, token, output } = cli;
    let load = || config::load(config.as_deref());
    let client = || -> anyhow::Result<Client> {
        let base = match &url {
            Some(url) => url.clone(),
            None => load()?.api_url(),
        };
        Client::new(&base, token.clone().filter(|token| !token.is_empty()))
    };
    match command {
        Command::Demo(mut args) => {
            log_as("text", "warn")?;
            args.json |= output != args::Output::Table;
            roles::demo::run(args).await
        }
        Command::Serve(args) => {
            let config = load()?;
            log_as(&config.log.format, &config.log.filter)?;
            roles::serve::run(config, args).await
        }
        Command::Scheduler(args) => {
            let config = load()?;
            log_as(&config.log.format, &config.log.filter)?;
            roles::scheduler::run(config, args).await
        }
        Command::Worker(args) => {
            let config = load()?;
            log_as(&config.log.format, &config.log.filter)?;
            roles::worker::run(config, args).await
        }
        Command::Sandbox(args) => {
            log_as("text", "info")?;
            roles::sandbox::run(args).await
        }
        Command::Jobs(command) => jobs::run(&client()?, output, command).await,
        Command::Connectors(command) => remote::connectors(&client()?, output, command).await,
        Command::Usage(args) => remote::usage(&client()?, output, args).await,
        Command::Vendors(command) => local::vendors(output, command),
        Command::Probe(args) => local::probe(output, args).await,
        Command::Doctor(args) => doctor::run(config.as_deref(), url, token, output, args).await,
        Command::Explain(args) => local::explain(output, args),
        Command::Completions { shell } => {
            local::completions(shell);
            Ok(())
        }
        Command::Openapi => {
            output::line(longhaul_scheduler::openapi().trim_end());
            Ok(())
        }
        Command::Store(command) => store::run(output, command, || Ok(load()?)).await,
        Command::Tokens(command) => local::tokens(load()?, output, command).await,
    }
}

/// Logs go to stderr: stdout is for results. `RUST_LOG` overrides the filter.
fn log_as(format: &str, filter: &str) -> anyhow::Result<()> {
    let asked = config::env::lookup("RUST_LOG").filter(|asked| !asked.is_empty());
    let filter = config::filter(asked.as_deref().unwrap_or(filter)).map_err(|error| {
        exit::Exit::usage(format!("RUST_LOG: {error}; write it as info or longhaul_worker=debug,info"))
    })?;
    let colour = {
        use std::io::IsTerminal;
        std::io::stderr().is_terminal() && config::env::lookup("NO_COLOR").is_none_or(|set| set.is_empty())
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A log that nobody reads any more (`2>&1 | head`) is no reason to end a service.
    let builder = builder.log_internal_errors(false);
    if format == "json" {
        builder.json().flatten_event(true).init();
    } else {
        builder.with_ansi(colour).with_target(false).init();
    }
    Ok(())
}
