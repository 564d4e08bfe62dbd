//! A server of S3's protocol over a folder, with one bucket and one key. It can be stopped and started again.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc};

use s3s::{HttpRequest, auth::SimpleAuth};

use super::bucket::{Answer, BUCKET, Server};

/// The server; it ends when dropped, with everything in it.
#[derive(Debug)]
pub struct S3(Server);

impl S3 {
    /// Its bucket.
    pub const BUCKET: &str = BUCKET;
    /// The id of the key that it takes.
    pub const KEY_ID: &str = "operator";
    /// The key.
    pub const SECRET: &str = "0perator-s3cr3t";

    /// Starts one at this address; port 0 is any.
    pub async fn start(address: SocketAddr) -> io::Result<Self> {
        let mut server = Self(Server::new(address)?);
        server.resume().await?;
        Ok(server)
    }

    /// Starts it again where it was, with what it held.
    pub async fn resume(&mut self) -> io::Result<()> {
        let mut service = self.0.files()?;
        service.set_auth(SimpleAuth::from_single(Self::KEY_ID, Self::SECRET));
        let service = service.build();
        let answers = move |request: HttpRequest| -> Answer {
            let service = service.clone();
            Box::pin(async move { service.call(request).await })
        };
        self.0.listen(Arc::new(answers)).await
    }

    /// Ends it and all its connections; what it holds stays.
    pub async fn stop(&mut self) {
        self.0.stop().await;
    }

    /// What a client is told in its variables.
    pub fn variables(&self) -> Vec<(String, String)> {
        [
            ("AWS_ACCESS_KEY_ID", Self::KEY_ID),
            ("AWS_SECRET_ACCESS_KEY", Self::SECRET),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", &self.0.url()),
            ("AWS_ALLOW_HTTP", "true"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// Where an object of the bucket lies.
    pub fn file(&self, key: &str) -> PathBuf {
        self.0.bucket().join(key)
    }
}
