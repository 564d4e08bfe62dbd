//! Requests as bytes, and answers as text.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{KEY, PATH, Running, call};

/// The head of a good request up to what the test adds.
pub(crate) const HEAD: &str = "accept: application/json\r\ncontent-type: application/json\r\n";

/// A request with these lines in its head.
pub(crate) fn post(lines: &str, body: &str) -> String {
    format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n{HEAD}{lines}\r\n{body}"
    )
}

/// A good call of a tool.
pub(crate) fn good(tool: &str) -> String {
    let body = call(tool).to_string();
    post(&format!("content-length: {}\r\n", body.len()), &body)
}

/// One chunk and the end.
pub(crate) fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// Sends all of it and reads to the end of the connection. The last request in it has to close.
pub(crate) async fn talk(gateway: &Running, bytes: &str) -> String {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    // The gateway may answer and close before it has read everything.
    let _ = stream.write_all(bytes.as_bytes()).await;
    rest(stream).await
}

/// Waits for something while time jumps to the next timer. It does so although bytes may be on their way through loopback:
/// what comes of an early jump has to be what is waited for.
pub(crate) async fn as_time_flies<T>(what: impl Future<Output = T>) -> T {
    tokio::time::pause();
    let done = what.await;
    tokio::time::resume();
    done
}

/// All that comes until the connection ends.
pub(crate) async fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The statuses of the answers, in order.
pub(crate) fn statuses(answer: &str) -> Vec<u16> {
    let heads = answer.split("HTTP/1.1 ").skip(1);
    heads.map(|head| head[..3].parse().unwrap()).collect()
}
