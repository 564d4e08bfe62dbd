//! One request over one connection, each step within the session's patience.

use std::future::Future;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use crate::git::{GitError, session::Session};

/// Waits for a step, but not for ever.
pub(super) async fn within<T>(
    session: &Session,
    step: impl Future<Output = T>,
) -> Result<T, GitError> {
    let patience = session.patience()?;
    tokio::time::timeout(patience, step)
        .await
        .map_err(|_| session.late())
}

/// Sends a request and waits for the head of the answer.
pub(super) async fn send<S>(
    session: &Session,
    stream: TokioIo<S>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, GitError>
where
    TokioIo<S>: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let failed = |e: &hyper::Error| {
        let what = if e.is_parse() {
            "the server's answer is not HTTP"
        } else {
            "the server closed the connection without an answer"
        };
        session
            .patience()
            .err()
            .unwrap_or_else(|| session.unreachable(what))
    };
    let opened = within(session, hyper::client::conn::http1::handshake(stream)).await?;
    let (mut sender, connection) = opened.map_err(|e| failed(&e))?;
    // Its errors come out of the body or the answer, too.
    tokio::spawn(async move { connection.await.ok() });
    within(session, sender.send_request(request))
        .await?
        .map_err(|e| failed(&e))
}
