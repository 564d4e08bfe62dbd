//! `git http-backend` behind a small HTTP/1.1 server, with logins, TLS and faults.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use super::Authority;

/// What a client must send.
#[derive(Debug, Clone)]
pub enum Login {
    /// Basic.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
}

impl Login {
    fn header(&self) -> String {
        match self {
            Self::Basic { user, password } => {
                format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
            }
            Self::Bearer(token) => format!("Bearer {token}"),
        }
    }
}

/// How the server misbehaves.
#[derive(Debug, Clone, Default)]
pub enum Fault {
    /// It does not.
    #[default]
    None,
    /// Every request is answered with this status.
    Status(u16),
    /// `info/refs` is redirected to this address plus the path and query of the request.
    Redirect(String),
    /// `info/refs` is redirected to exactly this address.
    RedirectExactly(String),
    /// It takes the request and never answers.
    Hang,
    /// It answers with one byte of a valid answer at a time, with a pause between.
    Drip(Duration),
    /// The list of refs never ends.
    EndlessRefs,
    /// The pack never ends.
    EndlessPack,
    /// It closes the connection in the middle of the pack.
    BreakOff,
    /// It answers with a page for people.
    Page,
}

/// How to serve.
#[derive(Debug, Clone, Default)]
pub struct SmartHttpOptions {
    /// The login, if one is asked for.
    pub login: Option<Login>,
    /// Serve over TLS.
    pub tls: Option<Authority>,
    /// A fault.
    pub fault: Fault,
    /// Address to bind; loopback and any port when absent.
    pub listen: Option<SocketAddr>,
}

/// A request that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// `GET`, `POST`.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The header `authorization`.
    pub authorization: Option<String>,
}

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
    open: Mutex<Vec<TcpStream>>,
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
        for stream in lock(&self.shared.open).iter() {
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

#[derive(Default)]
struct Head {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
}

impl Head {
    fn get(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }
}

impl Shared {
    fn connection(&self, stream: TcpStream) -> io::Result<()> {
        lock(&self.open).push(stream.try_clone()?);
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
            Fault::EndlessPack if head.method == "POST" => endless_pack(out),
            Fault::BreakOff if head.method == "POST" => {
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

fn read_head(stream: &mut impl BufRead) -> io::Result<Head> {
    let mut head = Head::default();
    let mut line = String::new();
    stream.take(8192).read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    head.method = words.next().unwrap_or_default();
    head.target = words.next().unwrap_or_default();
    for _ in 0..100 {
        line.clear();
        stream.take(65_536).read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        head.headers
            .push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(head)
}

fn read_body(stream: &mut impl BufRead, head: &Head) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if head.get("transfer-encoding").is_some() {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            stream.take(size).read_to_end(&mut body)?;
            line.clear();
            stream.read_line(&mut line)?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
    let length = head
        .get("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    stream.take(length).read_to_end(&mut body)?;
    Ok(body)
}
