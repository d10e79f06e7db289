//! README.md cannot rot: what it tells people to type is typed, in order, in a clean home and against this build, and
//! must end as the page says and print what the page shows.
//!
//! The page's conventions, in its `console` blocks:
//!
//! - a line that begins with `$ ` is a command; a here-document belongs to it up to its `END`
//! - a command succeeds, unless it ends in a comment `# exit N`
//! - the other lines are its output on a terminal; `…` stands for lines that are left out or come in any order
//!
//! Ids, times and numbers differ from run to run: lines are compared without them, word by word.

use crate::support::PATIENCE;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::net::TcpListener;
use tokio::process::Command;

/// Stands before each command's number and exit code in what the shell prints.
const MARK: &str = "@@readme@@";

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// One command of the page.
struct Typed {
    /// As it stands there.
    command: String,
    /// The exit code it must have.
    code: i32,
    /// The lines it must print, in order.
    shown: Vec<String>,
}

/// The blocks of one language.
fn blocks<'t>(page: &'t str, language: &str) -> Vec<&'t str> {
    let fences = page.split("```").skip(1).step_by(2);
    fences.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

fn typed(page: &str) -> Vec<Typed> {
    let mut found: Vec<Typed> = Vec::new();
    for block in blocks(page, "console") {
        let mut lines = block.lines();
        let mut begun = false;
        while let Some(line) = lines.next() {
            if let Some(first) = line.strip_prefix("$ ") {
                let mut command = first.to_owned();
                if first.contains("<<'END'") {
                    for line in lines.by_ref() {
                        command.push('\n');
                        command.push_str(line);
                        if line == "END" {
                            break;
                        }
                    }
                }
                let code =
                    first.rsplit_once("# exit ").map_or(0, |(_, code)| code.trim().parse().expect("an exit code"));
                found.push(Typed { command, code, shown: Vec::new() });
                begun = true;
            } else {
                assert!(begun, "a console block of README.md begins with {line:?}, which is no command");
                if line != "…" && !line.trim().is_empty() {
                    found.last_mut().unwrap().shown.push(line.to_owned());
                }
            }
        }
    }
    found
}

/// A line without what differs from run to run: ids, times, digits, and the columns' widths.
fn shape(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        for prefix in ["job_", "art_", "sesn_", "sevt_"] {
            if let Some(at) = word.find(prefix) {
                let rest = &word[at + prefix.len()..];
                let id = rest.chars().take_while(char::is_ascii_alphanumeric).count();
                return format!("{}{prefix}#{}", &word[..at], numbers(&rest[id..]));
            }
        }
        numbers(word)
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Each number, decimals and all, as `#`.
fn numbers(word: &str) -> String {
    let mut out = String::new();
    for c in word.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
        if out.ends_with("#.#") {
            out.truncate(out.len() - 2);
        }
    }
    out
}

/// The shell script that types everything, marking where each command ends.
fn script(typed: &[Typed], ports: [u16; 2]) -> String {
    let mut script = String::from("exec 2>&1\n");
    for (n, Typed { command, .. }) in typed.iter().enumerate() {
        let line = match command.as_str() {
            // What the script does besides is to install and to build.
            "bash tests/run demo" => "longhaul demo",
            // It runs this test.
            "bash tests/run" => "true",
            other => other,
        };
        script.push_str(&format!("{line}\nprintf '\\n{MARK} %d %d\\n' {n} $?\n"));
        // A person types slower than a server starts.
        for (begins, port) in [("longhaul sandbox", ports[0]), ("longhaul serve", ports[1])] {
            if line.starts_with(begins) {
                let open = format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null");
                script.push_str(&format!("until {open}; do sleep 0.1; done\n"));
            }
        }
    }
    script
}

async fn free_ports() -> [u16; 2] {
    let listeners = [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Types everything in a clean home; everything that was printed.
async fn type_all(home: &Path, script: &str, api: u16) -> String {
    let clone = home.join("clone");
    std::fs::create_dir_all(clone.join("target/debug")).unwrap();
    let binary = env!("CARGO_BIN_EXE_longhaul");
    std::os::unix::fs::symlink(binary, clone.join("target/debug/longhaul")).unwrap();
    std::fs::write(home.join("script"), script).unwrap();
    let path = format!("{}:/usr/bin:/bin", clone.join("target/debug").display());
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--norc"]).arg(home.join("script")).current_dir(&clone);
    command.env_clear().env("PATH", path).env("HOME", home).env("LC_ALL", "C.UTF-8");
    command.env("LONGHAUL__API__LISTEN", format!("127.0.0.1:{api}"));
    // A group of its own: whatever the page leaves running ends with it.
    command.process_group(0).kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().expect("bash");
    let group = child.id().expect("a process");
    let ended = tokio::time::timeout(2 * PATIENCE, child.wait_with_output()).await;
    let _ = std::process::Command::new("kill").args(["-9", "--", &format!("-{group}")]).stderr(Stdio::null()).status();
    let output = ended.expect("the commands of README.md end").expect("bash");
    String::from_utf8(output.stdout).expect("text")
}

/// What is wrong with one command's end, if anything.
fn differs(typed: &Typed, code: i32, printed: &str) -> Option<String> {
    let told = |what: String| Some(format!("$ {}\n{what}\nit printed:\n{printed}", typed.command));
    if code != typed.code {
        return told(format!("ended with {code}, README.md says {}", typed.code));
    }
    let mut lines = printed.lines().map(shape);
    let missing = typed.shown.iter().find(|shown| !lines.any(|line| line == shape(shown)));
    missing.and_then(|missing| told(format!("did not print, after what stands before it in README.md: {missing}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_readme_tells_people_to_type_works_and_prints_what_it_shows() {
    let ports = free_ports().await;
    let page = readme()
        .replace("127.0.0.1:7071", &format!("127.0.0.1:{}", ports[0]))
        .replace("127.0.0.1:7070", &format!("127.0.0.1:{}", ports[1]));
    let typed = typed(&page);
    assert!(typed.len() > 25, "only {} commands were found", typed.len());
    let home = tempfile::tempdir().unwrap();
    let printed = type_all(home.path(), &script(&typed, ports), ports[1]).await;
    let mut rest = printed.as_str();
    let mut problems = Vec::new();
    for (n, command) in typed.iter().enumerate() {
        let mark = format!("\n{MARK} {n} ");
        let Some((own, after)) = rest.split_once(&mark) else {
            panic!("$ {}\ndid not end; it printed:\n{rest}", command.command);
        };
        let (code, after) = after.split_once('\n').unwrap();
        problems.extend(differs(command, code.parse().unwrap(), own));
        rest = after;
    }
    let log = std::fs::read_to_string(home.path().join("longhaul-tour/serve.log")).unwrap_or_default();
    assert!(problems.is_empty(), "{}\nserve said:\n{log}", problems.join("\n"));
    for file in
        ["video/paper-boat.mp4", "image/telescope.png", "speech/welcome.mp3", "agent/changes.patch", "a2a/report.md"]
    {
        let path = home.path().join("clone/longhaul-demo/default").join(file);
        assert!(std::fs::metadata(&path).is_ok_and(|about| about.len() > 0), "the demo left no {file}");
    }
}

/// What doctor says of a configuration, a row a line.
fn doctor(folder: &Path, text: &str) -> String {
    std::fs::write(folder.join("longhaul.toml"), text).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["doctor", "-o", "ndjson"])
        .current_dir(folder)
        .env_clear()
        .envs([("BFL_API_KEY", "sandbox-key"), ("LONGHAUL__API__LISTEN", "127.0.0.1:1")])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_configurations_for_a_real_key_and_for_a_fleet_are_such() {
    let page = readme();
    let examples = blocks(&page, "toml");
    assert_eq!(examples.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "sandbox-key\n").unwrap();
    let told = doctor(folder.path(), &examples[0].replace("/run/secrets/elevenlabs", &key.display().to_string()));
    let ok = |told: &str, check: &str| {
        let mut rows = told.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        rows.any(|row| row["check"] == check && row["ok"] == true)
    };
    assert!(ok(&told, "connector pictures") && ok(&told, "connector voice"), "{told}");
    // Neither its Redis nor its bucket is there; that it is a configuration is all that can be looked at.
    let fleet =
        examples[1].replace("redis.internal:6379", "127.0.0.1:1").replace("s3://media/longhaul", "file:artifacts");
    let told = doctor(folder.path(), &fleet);
    assert!(ok(&told, "configuration") && !ok(&told, "store"), "{told}");
}

/// Every Markdown page of the project.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && name != "node_modules" && !name.starts_with('.') {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn every_link_within_the_project_leads_somewhere() {
    let mut found = Vec::new();
    pages(Path::new(env!("CARGO_MANIFEST_DIR")), &mut found);
    let (mut broken, mut links) = (Vec::new(), 0);
    for page in found {
        let text = std::fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap();
            if file.is_empty() || target.contains("://") || target.contains(char::is_whitespace) {
                continue;
            }
            links += 1;
            if !page.parent().unwrap().join(file).exists() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
    assert!(links > 10, "only {links} links were found");
}

/// The map names files and folders in code spans; what is spelled with capitals stands for several.
#[test]
fn what_the_map_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let map = std::fs::read_to_string(root.join("docs/ARCHITECTURE.md")).unwrap();
    let unfenced: String = map.split("```").step_by(2).collect();
    let spans = unfenced.split('`').skip(1).step_by(2);
    let folders = ["registry/", "vendors/", "scheduler/", "worker/", "src/", "tests/", "docs/"];
    let named = spans.filter(|span| folders.iter().any(|folder| span.starts_with(folder)));
    let named: Vec<&str> = named.filter(|span| !span.contains("NAME")).collect();
    assert!(named.len() > 20, "{named:?}");
    let missing: Vec<&&str> = named.iter().filter(|span| !root.join(span).exists()).collect();
    assert!(missing.is_empty(), "docs/ARCHITECTURE.md names what is not there: {missing:?}");
}

#[test]
fn shapes_leave_out_what_differs_and_nothing_else() {
    let line = "job_01a22de2b33573bb8271aaf1522d3ccf  failed  flux  0.035  2026-11-30T19:16:20Z";
    assert_eq!(shape(line), "job_# failed flux # #-#-#T#:#:#Z");
    assert_eq!(
        shape("artifacts  jobs/job_0a/changes.patch  text  903 B"),
        "artifacts jobs/job_#/changes.patch text # B"
    );
    assert_eq!(shape("60 credits = $0.60"), "# credits = $#");
    assert_ne!(shape("state succeeded"), shape("state failed"));
}
