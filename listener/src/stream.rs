//! The bytes of a connection, encrypted or not, and whether the peer takes them.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::activity::Activity;

/// How each connection of HTTP/2 begins, and no request of HTTP/1.1. RFC 9113, 3.4.
const PREFACE: &[u8] = b"PRI ";

/// The bytes of a connection.
pub struct Stream {
    way: Way,
    activity: Arc<Activity>,
}

enum Way {
    Plain(TcpStream),
    // Boxed: the state of TLS is large, and plain connections must not carry it around.
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}

impl Stream {
    pub(crate) fn plain(stream: TcpStream, activity: Arc<Activity>) -> Self {
        let way = Way::Plain(stream);
        Self { way, activity }
    }

    pub(crate) fn encrypted(stream: TlsStream<TcpStream>, activity: Arc<Activity>) -> Self {
        let way = Way::Encrypted(Box::new(stream));
        Self { way, activity }
    }

    /// Waits for the first bytes and leaves them where they are; whether they can be no HTTP/2. `false` also when there are
    /// too few of them to tell.
    pub fn poll_is_http1(&self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        match &self.way {
            Way::Plain(stream) => {
                let mut first = [MaybeUninit::uninit(); PREFACE.len()];
                let mut first = ReadBuf::uninit(&mut first);
                ready!(stream.poll_peek(cx, &mut first))?;
                let different = |(byte, other)| byte != other;
                Poll::Ready(Ok(first.filled().iter().zip(PREFACE).any(different)))
            }
            Way::Encrypted(stream) => {
                let agreed = stream.get_ref().1.alpn_protocol();
                Poll::Ready(Ok(agreed.is_some_and(|protocol| protocol == b"http/1.1")))
            }
        }
    }

    fn written<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.activity.written(result.is_ready());
        result
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().way {
            Way::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Way::Encrypted(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.way {
            Way::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Way::Encrypted(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        this.written(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.way {
            Way::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Way::Encrypted(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        this.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.way {
            Way::Plain(stream) => stream.is_write_vectored(),
            Way::Encrypted(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.way {
            // The kernel has it all.
            Way::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Way::Encrypted(stream) => {
                let flushed = Pin::new(stream).poll_flush(cx);
                this.written(flushed)
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().way {
            Way::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Way::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
