//! A server of S3's protocol over a folder, with one bucket and one key. It can be stopped and started again.

use std::{io, net::SocketAddr, path::PathBuf};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinSet};

/// The server; it ends when dropped, with everything in it.
#[derive(Debug)]
pub struct S3 {
    dir: TempDir,
    address: SocketAddr,
    tasks: JoinSet<()>,
}

impl S3 {
    /// Its bucket.
    pub const BUCKET: &str = "ramen";
    /// The id of the key that it takes.
    pub const KEY_ID: &str = "operator";
    /// The key.
    pub const SECRET: &str = "0perator-s3cr3t";

    /// Starts one at this address; port 0 is any.
    pub async fn start(address: SocketAddr) -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir(dir.path().join(Self::BUCKET))?;
        let mut server = Self {
            dir,
            address,
            tasks: JoinSet::new(),
        };
        server.resume().await?;
        Ok(server)
    }

    /// Starts it again where it was, with what it held.
    pub async fn resume(&mut self) -> io::Result<()> {
        let files = s3s_fs::FileSystem::new(self.dir.path())
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(Self::KEY_ID, Self::SECRET));
        let service = service.build();
        let listener = TcpListener::bind(self.address).await?;
        self.address = listener.local_addr()?;
        self.tasks.spawn(async move {
            // Connections end with the task.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let service = service.clone();
                connections.spawn(async move {
                    let builder = Builder::new(TokioExecutor::new());
                    // What breaks off is the other side's affair.
                    let _ = builder
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Ok(())
    }

    /// Ends it and all its connections; what it holds stays.
    pub async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }

    /// What a client is told in its variables.
    pub fn variables(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.address);
        [
            ("AWS_ACCESS_KEY_ID", Self::KEY_ID),
            ("AWS_SECRET_ACCESS_KEY", Self::SECRET),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", &endpoint),
            ("AWS_ALLOW_HTTP", "true"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// Where an object of the bucket lies.
    pub fn file(&self, key: &str) -> PathBuf {
        self.dir.path().join(Self::BUCKET).join(key)
    }
}
