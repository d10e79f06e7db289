//! Serves the sandbox on its own: `cargo run -p longhaul-sandbox --example sandbox -- 127.0.0.1:7071`.
//!
//! Prints one line, `ready http://…`, once it listens; ends on Ctrl-C.

use std::io::Write;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use longhaul_sandbox::{Options, Sandbox};
use tokio::net::TcpListener;

#[expect(clippy::disallowed_methods, reason = "the example is the edge where the sandbox gets its clock")]
fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listen = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7071".to_owned());
    let listener = TcpListener::bind(&listen).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let sandbox = Sandbox::new(Options::new(&url, Arc::new(now_ms)));
    writeln!(std::io::stdout(), "ready {url}")?;
    let stopped = async {
        drop(tokio::signal::ctrl_c().await);
    };
    sandbox.serve(listener, stopped).await
}
