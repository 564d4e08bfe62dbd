//! How connections begin and end, over real sockets; where an end is waited for, time jumps to the next timer.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use ramen_listener::{Bounds, Connection, Held, Port, Stream, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

const BOUNDS: Bounds = Bounds {
    first_request: Duration::from_secs(20),
    idle: Duration::from_mins(5),
    max_age: Some(Duration::from_hours(1)),
    unread: Some(Duration::from_secs(30)),
    linger: Some(Duration::from_secs(10)),
};
/// More than the buffers of both sockets hold.
const LARGE: usize = 32 << 20;

struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    /// Lets one request of `/wait` go on.
    go: Arc<Notify>,
    /// One has begun to wait.
    begun: Arc<Notify>,
    serving: JoinHandle<()>,
}

impl Server {
    async fn start(max_connections: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopping) = watch::channel(false);
        let (go, begun) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let port = Port {
            listener,
            tls: None,
            max_connections,
            bounds: BOUNDS,
            stopping,
        };
        let wait = [Arc::clone(&begun), Arc::clone(&go)];
        let serving = tokio::spawn(serve(port, move |stream, connection| {
            speak(stream, connection, wait.clone())
        }));
        Self {
            address,
            stop,
            go,
            begun,
            serving,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection with a request that waits.
    async fn busy(&self) -> TcpStream {
        let mut busy = self.connect().await;
        ask(&mut busy, "/wait").await;
        self.begun.notified().await;
        busy
    }
}

async fn speak(
    stream: Stream,
    connection: Box<Connection>,
    [begun, go]: [Arc<Notify>; 2],
) -> std::io::Result<()> {
    let requests = connection.requests();
    let service = service_fn(move |request: Request<Incoming>| {
        let (open, begun, go) = (requests.open(), Arc::clone(&begun), Arc::clone(&go));
        async move {
            let body = match request.uri().path() {
                "/large" => Bytes::from(vec![b'x'; LARGE]),
                "/wait" => {
                    begun.notify_one();
                    go.notified().await;
                    Bytes::from_static(b"went on")
                }
                _ => Bytes::from_static(b"ok"),
            };
            Ok::<_, Infallible>(Response::new(Held::new(Full::new(body), open)))
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let serving = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
    connection
        .drive(serving, auto::Connection::graceful_shutdown)
        .await
}

async fn ask(stream: &mut TcpStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
}

async fn answer(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"ok") && !text.ends_with(b"went on") {
        if stream.read_buf(&mut text).await.unwrap() == 0 {
            break;
        }
    }
    String::from_utf8(text).unwrap()
}

/// Whether the other side ended the connection, read to its end.
async fn ended(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut rest).await;
    true
}

/// Waits for something while time jumps to the next timer. It does so although bytes may be on their way through loopback:
/// what comes of an early jump has to be what is waited for.
async fn as_time_flies<T>(what: impl Future<Output = T>) -> T {
    tokio::time::pause();
    let done = what.await;
    tokio::time::resume();
    done
}

#[tokio::test]
async fn a_connection_that_never_asks_anything_is_ended() {
    let server = Server::start(10).await;
    let silent = server.connect().await;
    let mut started = server.connect().await;
    started.write_all(b"GET / HT").await.unwrap();
    let both = async { ended(silent).await && ended(started).await };
    assert!(as_time_flies(both).await);
}

#[tokio::test]
async fn one_that_is_idle_is_asked_to_end_and_one_at_work_is_not() {
    let server = Server::start(10).await;
    let mut idle = server.connect().await;
    ask(&mut idle, "/").await;
    assert!(answer(&mut idle).await.ends_with("ok"));
    let mut busy = server.busy().await;
    assert!(as_time_flies(ended(idle)).await, "time has passed");
    server.go.notify_one();
    assert!(answer(&mut busy).await.ends_with("went on"));
}

#[tokio::test]
async fn one_that_does_not_read_its_answer_is_ended() {
    let server = Server::start(10).await;
    let mut deaf = server.connect().await;
    ask(&mut deaf, "/large").await;
    let mut got = vec![0; 12];
    deaf.read_exact(&mut got).await.unwrap();
    server.stop.send_replace(true);
    // The end of the server waits for the connection, and nobody reads.
    as_time_flies(server.serving).await.unwrap();
    let _ = deaf.read_to_end(&mut got).await;
    assert!(got.len() < LARGE, "it was cut off");
}

#[tokio::test]
async fn when_all_places_are_taken_those_who_do_nothing_give_up_theirs() {
    let server = Server::start(3).await;
    let silent = server.connect().await;
    let mut idle = server.connect().await;
    ask(&mut idle, "/").await;
    assert!(answer(&mut idle).await.ends_with("ok"));
    let mut busy = server.busy().await;
    let mut late = server.connect().await;
    ask(&mut late, "/").await;
    let both = async { ended(silent).await && ended(idle).await };
    assert!(as_time_flies(both).await);
    assert!(answer(&mut late).await.ends_with("ok"), "there is a place");
    server.go.notify_one();
    assert!(
        answer(&mut busy).await.ends_with("went on"),
        "it was not idle"
    );
}

#[tokio::test]
async fn a_stop_waits_for_what_is_open() {
    let server = Server::start(10).await;
    let mut busy = server.busy().await;
    let mut idle = server.connect().await;
    ask(&mut idle, "/").await;
    assert!(answer(&mut idle).await.ends_with("ok"));
    server.stop.send_replace(true);
    assert!(as_time_flies(ended(idle)).await);
    assert!(!server.serving.is_finished());
    server.go.notify_one();
    assert!(answer(&mut busy).await.ends_with("went on"));
    as_time_flies(server.serving).await.unwrap();
}
