//! `git http-backend` behind a small HTTP/1.1 server, with logins, TLS and faults.

mod options;
mod request;

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use super::Authority;
use request::{Head, read_body, read_head};

pub use options::{Fault, Login, Seen, SmartHttpOptions};

/// Serves every bare repository below a folder. Ends when dropped.
#[derive(Debug)]
pub struct SmartHttp {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    _stop_drips: mpsc::Sender<()>,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    options: SmartHttpOptions,
    tls: Option<Arc<rustls::ServerConfig>>,
    seen: Mutex<Vec<Seen>>,
    /// Connections that are open, by a number.
    open: Mutex<HashMap<u64, TcpStream>>,
    connections: AtomicU64,
    stopped: AtomicBool,
    /// Waits that end early when the server does.
    pause: Mutex<mpsc::Receiver<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SmartHttp {
    /// Serves without login, TLS or faults.
    pub fn serve(root: &Path) -> io::Result<Self> {
        Self::start(root, SmartHttpOptions::default())
    }

    /// Serves.
    pub fn start(root: &Path, options: SmartHttpOptions) -> io::Result<Self> {
        let listener = match options.listen {
            Some(address) => TcpListener::bind(address)?,
            None => TcpListener::bind(("127.0.0.1", 0))?,
        };
        let address = listener.local_addr()?;
        let tls = options.tls.as_ref().map(server_tls).transpose()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (stop_drips, pause) = mpsc::channel();
        let shared = Arc::new(Shared {
            root: root.canonicalize()?,
            options,
            tls,
            seen: Mutex::default(),
            open: Mutex::default(),
            connections: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            pause: Mutex::new(pause),
        });
        let server = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if server.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let server = Arc::clone(&server);
                // A client that goes away is its own business.
                std::thread::spawn(move || server.connection(stream).ok());
            }
        });
        Ok(Self {
            address,
            scheme,
            shared,
            thread: Some(thread),
            _stop_drips: stop_drips,
        })
    }

    /// `http://127.0.0.1:port`.
    pub fn base(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// The address of a repository below the served folder.
    pub fn url(&self, repository: &str) -> String {
        format!("{}/{repository}", self.base())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }
}

impl Drop for SmartHttp {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        for stream in lock(&self.shared.open).values() {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the loop, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn server_tls(authority: &Authority) -> io::Result<Arc<rustls::ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(&authority.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(&authority.key).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(io::Error::other)?;
    Ok(Arc::new(config))
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Shared {
    fn connection(&self, stream: TcpStream) -> io::Result<()> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        lock(&self.open).insert(number, stream.try_clone()?);
        let answered = self.answer(stream);
        lock(&self.open).remove(&number);
        answered
    }

    fn answer(&self, stream: TcpStream) -> io::Result<()> {
        let socket = stream.try_clone()?;
        let mut stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(stream),
            Some(config) => {
                let connection = rustls::ServerConnection::new(Arc::clone(config));
                let connection = connection.map_err(io::Error::other)?;
                Box::new(rustls::StreamOwned::new(connection, stream))
            }
        };
        let answered = self.request(&mut BufReader::new(&mut stream));
        stream.flush().ok();
        // TLS ends in order; the client would call it an attack otherwise.
        drop(stream);
        socket.shutdown(Shutdown::Both).ok();
        answered
    }

    fn request(&self, stream: &mut BufReader<&mut Box<dyn Stream>>) -> io::Result<()> {
        let head = read_head(stream)?;
        lock(&self.seen).push(Seen {
            method: head.method.clone(),
            target: head.target.clone(),
            authorization: head.get("authorization").map(str::to_owned),
        });
        if head.get("expect").is_some() {
            stream
                .get_mut()
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let body = read_body(stream, &head)?;
        let out = stream.get_mut();
        if let Some(login) = &self.options.login
            && head.get("authorization") != Some(login.header().as_str())
        {
            let headers = "WWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\n";
            return write!(
                out,
                "HTTP/1.1 401 Unauthorized\r\n{headers}Connection: close\r\n\r\n"
            );
        }
        match &self.options.fault {
            Fault::None => self.backend(&head, &body, out.as_mut()),
            Fault::Status(code) => {
                write!(
                    out,
                    "HTTP/1.1 {code} Fault\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
            }
            Fault::Redirect(base) => see_other(out, &format!("{base}{}", head.target)),
            Fault::Renamed(from, to) => match head.target.strip_prefix(from) {
                Some(rest) => see_other(out, &format!("{to}{rest}")),
                None => self.backend(&head, &body, out.as_mut()),
            },
            Fault::RedirectExactly(to) => see_other(out, to),
            Fault::Hang => {
                self.hang();
                Ok(())
            }
            Fault::Drip(pause) => {
                let mut answer = Vec::new();
                self.backend(&head, &body, &mut answer)?;
                for byte in answer {
                    out.write_all(&[byte])?;
                    out.flush()?;
                    self.wait(*pause);
                }
                Ok(())
            }
            Fault::EndlessRefs if head.method == "GET" => {
                head_of(out, "application/x-git-upload-pack-advertisement")?;
                out.write_all(b"001e# service=git-upload-pack\n0000")?;
                let id = "0123456789012345678901234567890123456789";
                let mut caps = "\0multi_ack thin-pack side-band-64k ofs-delta shallow";
                for n in 0_u64.. {
                    let line = format!("{id} refs/heads/branch-{n:012}{caps}\n");
                    caps = "";
                    write!(out, "{:04x}{line}", line.len() + 4)?;
                }
                Ok(())
            }
            Fault::EndlessPack if asks_for_pack(&head, &body) => endless_pack(out),
            Fault::BreakOff if asks_for_pack(&head, &body) => {
                head_of(out, "application/x-git-upload-pack-result")?;
                out.write_all(b"00000008NAK\n2000\x01PACK\0\0\0\x02\0\0\xff\xff")
            }
            Fault::EndlessRefs | Fault::EndlessPack | Fault::BreakOff => {
                self.backend(&head, &body, out.as_mut())
            }
            Fault::Page => {
                head_of(out, "text/html")?;
                out.write_all(b"<html>Log in</html>")
            }
        }
    }

    fn wait(&self, time: Duration) {
        // An error means that the time is over or the server ends; both are fine.
        let _ = lock(&self.pause).recv_timeout(time);
    }

    fn hang(&self) {
        while !self.stopped.load(Ordering::SeqCst) {
            self.wait(Duration::from_hours(1));
        }
    }

    fn backend(&self, head: &Head, body: &[u8], out: &mut dyn Write) -> io::Result<()> {
        let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
        let mut command = Command::new("git");
        command
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "safe.directory")
            .env("GIT_CONFIG_VALUE_0", "*")
            .env("PATH_INFO", path)
            .env("QUERY_STRING", query)
            .env("REQUEST_METHOD", &head.method)
            .env("CONTENT_LENGTH", body.len().to_string())
            .env("REMOTE_ADDR", "127.0.0.1")
            .env("REMOTE_USER", "test")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        for (variable, header) in [
            ("CONTENT_TYPE", "content-type"),
            ("HTTP_CONTENT_ENCODING", "content-encoding"),
            ("GIT_PROTOCOL", "git-protocol"),
        ] {
            if let Some(value) = head.get(header) {
                command.env(variable, value);
            }
        }
        let mut process = command.spawn()?;
        let stdin = process.stdin.take();
        let answer = std::thread::scope(|scope| {
            scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(body)));
            let mut stdout =
                BufReader::new(process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
            let mut headers = String::new();
            let mut status = "200 OK".to_owned();
            let mut line = String::new();
            while stdout.read_line(&mut line)? > 0 && !line.trim_end().is_empty() {
                match line.trim_end().strip_prefix("Status: ") {
                    Some(code) => code.clone_into(&mut status),
                    None => headers.push_str(&line),
                }
                line.clear();
            }
            write!(
                out,
                "HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n"
            )?;
            io::copy(&mut stdout, out)?;
            out.flush()
        });
        // A client that hung up leaves it with a closed pipe: it ends.
        process.wait()?;
        answer
    }
}

fn see_other(out: &mut dyn Write, to: &str) -> io::Result<()> {
    write!(
        out,
        "HTTP/1.1 301 Moved Permanently\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
}

fn head_of(out: &mut dyn Write, kind: &str) -> io::Result<()> {
    write!(
        out,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
    )
}

/// A first request asks only how far the history goes; the one that says `done` gets the pack.
fn asks_for_pack(head: &Head, body: &[u8]) -> bool {
    head.method == "POST" && body.ends_with(b"0009done\n")
}

/// A pack of many blobs whose last never comes.
fn endless_pack(out: &mut dyn Write) -> io::Result<()> {
    head_of(out, "application/x-git-upload-pack-result")?;
    // Nothing is shallow, nothing is known to both.
    out.write_all(b"00000008NAK\n")?;
    let mut first = b"PACK\0\0\0\x02\0\x01\0\0".to_vec();
    // One blob (type 3) of one byte, stored: deflate by hand.
    let blob = [
        0x31, 0x78, 0x01, 0x01, 0x01, 0x00, 0xfe, 0xff, b'x', 0x00, 0x79, 0x00, 0x79,
    ];
    loop {
        let mut packet = std::mem::take(&mut first);
        while packet.len() < 8000 {
            packet.extend_from_slice(&blob);
        }
        write!(out, "{:04x}\x01", packet.len() + 5)?;
        out.write_all(&packet)?;
    }
}
