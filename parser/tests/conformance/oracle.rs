//! What HAProxy and nginx make of the same cases.
//!
//! A long test runs the two programs when they are installed, sends each case through them to a dummy
//! origin and records the outcome in `tests/oracle.tsv`, which the table in `CONFORMANCE.md` quotes.

use crate::cases::{CASES, Case, Side, Verdict};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use warmpath_parser::http1::Framing;

/// How long a silent proxy is waited for.
const PATIENCE: Duration = Duration::from_millis(2_500);

/// What the origin answers to a request, so that a relayed answer is told from the proxy's own.
const ANSWER: &[u8] = b"HTTP/1.1 299 Relayed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[test]
#[ignore = "long; runs haproxy and nginx; UPDATE=1 writes tests/oracle.tsv"]
fn other_proxies() {
    let (Some(haproxy), Some(nginx)) = (installed("haproxy"), installed("nginx")) else {
        println!("not_run: haproxy and nginx are not both installed");
        return;
    };
    let origin = Origin::start();
    let folder = std::env::temp_dir().join(format!("warmpath-oracle-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let proxies =
        [Proxy::haproxy(&haproxy, &folder, origin.port), Proxy::nginx(&nginx, &folder, origin.port)];
    let mut table = format!("# case\t{}\t{}\n", version(&haproxy), version(&nginx));
    for case in CASES {
        let outcomes = proxies.each_ref().map(|proxy| origin.outcome(proxy.port, case));
        writeln!(table, "{}\t{}\t{}", case.name, outcomes[0], outcomes[1]).unwrap();
    }
    drop(proxies);
    std::fs::remove_dir_all(&folder).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(record(), table).unwrap();
    } else {
        assert_eq!(table, std::fs::read_to_string(record()).unwrap(), "UPDATE=1 records anew");
    }
}

/// Where the outcomes are recorded.
pub fn record() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle.tsv")
}

fn installed(program: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/usr/local/sbin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.is_file())
}

/// The first run of digits and dots in what `-v` prints.
fn version(program: &Path) -> String {
    let output = Command::new(program).arg("-v").output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let digits = text.split(|character: char| !character.is_ascii_digit() && character != '.');
    let number = digits.into_iter().find(|word| word.contains('.')).unwrap_or_default();
    format!("{} {number}", program.file_name().unwrap().to_string_lossy())
}

struct Proxy {
    port: u16,
    child: Child,
}

impl Proxy {
    fn haproxy(program: &Path, folder: &Path, origin: u16) -> Proxy {
        let port = free_port();
        let file = folder.join("haproxy.cfg");
        let text = format!(
            "defaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n\
             listen l\n bind 127.0.0.1:{port}\n server s 127.0.0.1:{origin}\n"
        );
        std::fs::write(&file, text).unwrap();
        Proxy::start(port, Command::new(program).arg("-db").arg("-f").arg(file))
    }

    fn nginx(program: &Path, folder: &Path, origin: u16) -> Proxy {
        let port = free_port();
        let file = folder.join("nginx.conf");
        let at = folder.display();
        let text = format!(
            "daemon off;\nmaster_process off;\npid {at}/pid;\nerror_log {at}/error.log;\n\
             events {{}}\nhttp {{\n access_log off;\n client_header_timeout 1s;\n client_body_timeout 1s;\n\
             client_body_temp_path {at}/b;\n proxy_temp_path {at}/p;\n fastcgi_temp_path {at}/f;\n\
             uwsgi_temp_path {at}/u;\n scgi_temp_path {at}/s;\n client_max_body_size 0;\n\
             server {{ listen 127.0.0.1:{port};\n location / {{ proxy_pass http://127.0.0.1:{origin};\n\
             proxy_http_version 1.1; proxy_read_timeout 1s; }} }}\n}}\n"
        );
        std::fs::write(&file, text).unwrap();
        Proxy::start(port, Command::new(program).arg("-c").arg(file))
    }

    fn start(port: u16, command: &mut Command) -> Proxy {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let proxy = Proxy { port, child };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return proxy;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("{command:?} does not listen");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server that reads one request and sends what the case wants.
struct Origin {
    port: u16,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Origin {
    fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = Origin { port: listener.local_addr().unwrap().port(), answer: Arc::default() };
        let answer = Arc::clone(&origin.answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = answer.lock().unwrap().clone();
                std::thread::spawn(move || serve(stream, &answer));
            }
        });
        origin
    }

    /// `relayed`, a status code of the proxy's own, `closed` or `waits`.
    fn outcome(&self, proxy: u16, case: &Case) -> String {
        let (sent, answer) = exchange(case);
        *self.answer.lock().unwrap() = answer.clone();
        let mut stream = TcpStream::connect(("127.0.0.1", proxy)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(&sent);
        let mut received = Vec::new();
        let mut part = [0; 4096];
        let end = loop {
            match stream.read(&mut part) {
                Ok(0) => break "closed",
                Ok(count) => received.extend_from_slice(&part[..count]),
                Err(fault) if fault.kind() == std::io::ErrorKind::WouldBlock => break "waits",
                Err(_) => break "closed",
            }
            if status(&received) == Some(100)
                && let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n")
            {
                received.drain(..end + 4);
            }
            if let Some(status) = status(&received).filter(|status| *status != 100) {
                let relayed = Some(status) == self::status(&answer);
                return if relayed { "relayed".into() } else { status.to_string() };
            }
        };
        end.into()
    }
}

/// What the client sends and the origin answers.
fn exchange(case: &Case) -> (Vec<u8>, Vec<u8>) {
    // Five bytes that also end a chunked body, for cases that say one thing and mean another.
    let body = match case.expected {
        Verdict::Accept(Framing::Length(bytes)) if bytes < 100 => vec![b'x'; bytes as usize],
        Verdict::Accept(Framing::None) => Vec::new(),
        _ => b"0\r\n\r\n".to_vec(),
    };
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    match case.side {
        Side::Request => ([case.bytes, &body].concat(), ANSWER.to_vec()),
        Side::Chunks => ([head, case.bytes].concat(), ANSWER.to_vec()),
        Side::Response => (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), [case.bytes, &body].concat()),
    }
}

fn status(bytes: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(bytes.get(..12)?).ok()?;
    line.strip_prefix("HTTP/1.")?.get(2..)?.parse().ok()
}

fn serve(mut stream: TcpStream, answer: &[u8]) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut request = Vec::new();
    let mut part = [0; 4096];
    while !is_whole(&request) {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend_from_slice(&part[..count]),
        }
    }
    let _ = stream.write_all(answer);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read(&mut part);
}

/// A rough reading, enough for what a proxy sends on.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    if head.contains("chunked") {
        return (body.starts_with('0') || body.contains("\r\n0")) && body.ends_with("\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    length.is_none_or(|length| length.trim().parse().is_ok_and(|length: usize| body.len() >= length))
}
