//! A package index on the loopback address: the simple API over a folder of wheels.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A running index.
pub(crate) struct Index {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
}

/// How the index answers.
#[derive(Clone)]
pub(crate) enum Manner {
    /// As an index does.
    Serve(PathBuf),
    /// It takes connections and never answers.
    Hang,
}

impl Index {
    /// Starts an index.
    pub(crate) fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, stopped) = (Arc::clone(&requests), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                match &manner {
                    Manner::Hang => held.push(stream),
                    Manner::Serve(dir) => {
                        let (dir, seen) = (dir.clone(), Arc::clone(&seen));
                        std::thread::spawn(move || serve(stream, &dir, &seen));
                    }
                }
            }
        });
        Self {
            address,
            requests,
            stop,
        }
    }

    /// The address for `PIP_INDEX_URL`, with credentials.
    pub(crate) fn url(&self, credentials: &str) -> String {
        format!("http://{credentials}@{}/simple", self.address)
    }

    /// Request lines and `authorization` headers so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Ends the index: connections are refused from then on.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accept, which sees the flag and drops the listener.
        drop(TcpStream::connect(self.address));
        while TcpStream::connect(self.address).is_ok() {
            std::thread::yield_now();
        }
    }
}

fn serve(stream: TcpStream, dir: &Path, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap_or(0) == 0 || header.trim().is_empty() {
                break;
            }
            if header.to_ascii_lowercase().starts_with("authorization:") {
                seen.lock().unwrap().push(header.trim().to_owned());
            }
        }
        seen.lock().unwrap().push(request.trim().to_owned());
        let path = request.split(' ').nth(1).unwrap_or("/").to_owned();
        let (status, kind, body) = answer(&path, dir);
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let head_only = request.starts_with("HEAD");
        if writer.write_all(head.as_bytes()).is_err()
            || (!head_only && writer.write_all(&body).is_err())
        {
            return;
        }
    }
}

fn answer(path: &str, dir: &Path) -> (&'static str, &'static str, Vec<u8>) {
    let missing = ("404 Not Found", "text/plain", Vec::new());
    if let Some(file) = path.strip_prefix("/files/") {
        return match std::fs::read(dir.join(file)) {
            Ok(bytes) => ("200 OK", "application/octet-stream", bytes),
            Err(_) => missing,
        };
    }
    let name = path.trim_start_matches("/simple/").trim_end_matches('/');
    let wanted = name.replace('-', "_");
    let mut files: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|file| file.split('-').next() == Some(&wanted))
        .collect();
    files.sort();
    if files.is_empty() {
        return missing;
    }
    let mut links = String::new();
    for file in &files {
        let hash = super::wheel::hash_of(&dir.join(file)).replace(':', "=");
        links += &["<a href=\"/files/", file, "#", &hash, "\">", file, "</a>\n"].concat();
    }
    (
        "200 OK",
        "text/html",
        format!("<!DOCTYPE html><html><body>{links}</body></html>").into_bytes(),
    )
}
