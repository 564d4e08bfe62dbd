//! A folder with one bucket in it, and a port where requests for it come in.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use http::{HeaderValue, Request, StatusCode, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use s3s::{Body, HttpError, HttpRequest, HttpResponse, service::S3ServiceBuilder};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinSet};

/// Its name.
pub(super) const BUCKET: &str = "ramen";

/// What comes of a request for the bucket.
pub(super) type Answer = BoxFuture<'static, Result<HttpResponse, HttpError>>;
type Answers = Arc<dyn Fn(HttpRequest) -> Answer + Send + Sync>;

/// The folder and the port; both end when dropped, with everything in them.
#[derive(Debug)]
pub(super) struct Server {
    dir: TempDir,
    address: SocketAddr,
    tasks: JoinSet<()>,
}

impl Server {
    /// With an empty bucket, not listening yet; port 0 is any.
    pub(super) fn new(address: SocketAddr) -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir(dir.path().join(BUCKET))?;
        Ok(Self {
            dir,
            address,
            tasks: JoinSet::new(),
        })
    }

    /// What serves the folder by S3's protocol.
    pub(super) fn files(&self) -> io::Result<S3ServiceBuilder> {
        let files = s3s_fs::FileSystem::new(self.dir.path())
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
        Ok(S3ServiceBuilder::new(files))
    }

    /// Listens, from the second time on where it did before.
    pub(super) async fn listen(&mut self, answers: Answers) -> io::Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        self.address = listener.local_addr()?;
        self.tasks.spawn(async move {
            // Connections end with the task.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let answers = Arc::clone(&answers);
                let service = service_fn(move |request: Request<Incoming>| {
                    let answers = Arc::clone(&answers);
                    async move {
                        if is_elsewhere(request.uri().path()) {
                            return Ok(no_bucket());
                        }
                        answers(request.map(Body::from)).await
                    }
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                connections.spawn(async move {
                    // What breaks off is the other side's affair.
                    let _ = connection.await;
                });
            }
        });
        Ok(())
    }

    /// Ends the port and all its connections; what the bucket holds stays.
    pub(super) async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn bucket(&self) -> PathBuf {
        self.dir.path().join(BUCKET)
    }

    pub(super) fn scratch(&self) -> &Path {
        self.dir.path()
    }
}

/// s3s would make a bucket that is not there.
fn is_elsewhere(path: &str) -> bool {
    path.split('/').nth(1) != Some(BUCKET)
}

fn no_bucket() -> HttpResponse {
    let message = "The specified bucket does not exist";
    refusal(StatusCode::NOT_FOUND, "NoSuchBucket", message)
}

/// An error as S3 and Google Cloud Storage both write it.
pub(super) fn refusal(status: StatusCode, code: &str, message: &str) -> HttpResponse {
    let text = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"#
    );
    let mut answer = HttpResponse::new(Body::from(text));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("application/xml");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}
