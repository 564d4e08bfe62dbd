//! A pod that tries connections for a test: a stranger, or a friend, of other pods.

use anyhow::Context as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{namespace::Namespace, probe::Probe};

/// Takes lines `HOST PORT` and says `open`, or why not. Its own port is one that others may try, and so are those of `PORTS`.
const SCRIPT: &str = "
import os, socket, socketserver, threading

class Try(socketserver.StreamRequestHandler):
    def handle(self):
        host, port = self.rfile.readline().decode().split()
        try:
            socket.create_connection((host, int(port)), timeout=3).close()
            self.wfile.write(b'open')
        except OSError as error:
            self.wfile.write(str(error).encode())

socketserver.ThreadingTCPServer.allow_reuse_address = True
for port in os.environ['PORTS'].split():
    other = socketserver.ThreadingTCPServer(('', int(port)), Try)
    threading.Thread(target=other.serve_forever, daemon=True).start()
socketserver.ThreadingTCPServer(('', 7000), Try).serve_forever()
";

/// A pod that runs and tries what it is told.
pub struct Agent {
    /// Its address.
    pub address: String,
}

impl Agent {
    /// Where it listens.
    pub const PORT: u16 = 7000;

    /// Starts one.
    ///
    /// # Errors
    /// When the pod is not ready within a minute.
    pub async fn start(namespace: &Namespace, name: &str) -> anyhow::Result<Self> {
        Self::disguised(namespace, name, &[], &[]).await
    }

    /// Starts one with labels of others, that listens on ports of others too.
    ///
    /// # Errors
    /// When the pod is not ready within a minute.
    pub async fn disguised(
        namespace: &Namespace,
        name: &str,
        labels: &[(&str, &str)],
        ports: &[u16],
    ) -> anyhow::Result<Self> {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let ports = ports.join(" ");
        let mut probe = Probe::new(name, SCRIPT)
            .listens(Self::PORT)
            .low_ports()
            .env("PORTS", &ports);
        for (key, value) in labels {
            probe = probe.label(key, value);
        }
        let address = probe.start(namespace).await?;
        Ok(Self { address })
    }

    /// Whether it reaches that port, by TCP: `open`, or what stood in the way.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn tries(&self, host: &str, port: u16) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect((self.address.as_str(), Self::PORT))
            .await
            .context("the agent does not listen")?;
        stream
            .write_all(format!("{host} {port}\n").as_bytes())
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}
