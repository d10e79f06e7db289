//! A real redis-server of this test run's own.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a server that ends with this process; answers its port.
pub(super) fn start(args: &[&str]) -> u16 {
    let folder = tempfile::tempdir().unwrap().keep();
    for _ in 0..5 {
        let port = free_port();
        let (folder, args) = (folder.clone(), args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        // The server is told to die with the thread that started it: that thread must last as long as the tests.
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut server = Command::new("setpriv");
            server.args(["--pdeathsig", "KILL", "redis-server", "--port"]).arg(port.to_string());
            server.args(["--bind", "127.0.0.1", "--save", "", "--loglevel", "warning", "--dir"]).arg(&folder);
            server.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = server.spawn().expect("redis-server and setpriv are installed (tests/run setup)");
            tell.send(()).unwrap();
            child.wait().unwrap();
        });
        told.recv().unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return port;
            }
            std::thread::yield_now();
        }
    }
    panic!("redis-server did not start");
}

/// The URL of the server that most tests share.
pub(super) fn shared() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| {
        let port = start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
        format!("redis://127.0.0.1:{port}")
    })
}
