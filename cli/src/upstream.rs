//! The gRPC connection to one worker: connect with backoff, keepalive, metadata, deadlines.
//!
//! Nothing that was sent is sent again here: a lost connection ends the calls that were on it.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ramen_proto::v1::JsonRpc;
use ramen_proto::v1::mcp_client::McpClient;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use crate::connect::KeySource;

/// Room for one message of 4 MiB with its protobuf frame.
const MAX_REPLY: usize = 4 * 1024 * 1024 + 1024;
/// How long a caller waits for a connection before it hears `UNAVAILABLE`.
const PATIENCE: Duration = Duration::from_secs(2);
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a worker is and how to speak to it.
#[derive(Clone)]
pub struct Target {
    /// `host:port`, for messages.
    pub address: String,
    /// The endpoint with its TLS settings.
    pub endpoint: Endpoint,
    /// `authorization`, `ramen-group`, `ramen-zone`.
    pub metadata: MetadataMap,
    /// Where the key in the metadata comes from.
    pub(crate) key: KeySource,
    /// The deadline of one call.
    pub timeout: Duration,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The metadata holds the key.
        f.debug_struct("Target")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A connection that comes back by itself.
#[derive(Clone, Debug)]
pub struct Upstream {
    target: Arc<Target>,
    link: Arc<Mutex<Link>>,
    hurry: CancellationToken,
}

#[derive(Debug, Default)]
struct Link {
    channel: Option<(u64, Channel)>,
    serial: u64,
    failures: u32,
    next_try: Option<Instant>,
    last_error: String,
}

/// A channel and the serial under which it can be given up.
struct Lease {
    channel: Channel,
    serial: u64,
}

/// The two ends of a `Session` stream.
pub struct Session {
    /// Messages to the worker; the stream stays open while this lives.
    pub outgoing: mpsc::Sender<JsonRpc>,
    /// Messages from the worker.
    pub incoming: Streaming<JsonRpc>,
}

impl Upstream {
    /// Connects on first use.
    pub fn new(target: Target) -> Self {
        let Target {
            address,
            endpoint,
            metadata,
            key,
            timeout,
        } = target;
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        Self {
            target: Arc::new(Target {
                address,
                endpoint,
                metadata,
                key,
                timeout,
            }),
            link: Arc::default(),
            hurry: CancellationToken::new(),
        }
    }

    /// From now on nobody waits for a worker that is away: an attempt to connect that fails is the last one.
    pub fn hurry(&self) {
        self.hurry.cancel();
    }

    /// `host:port` of the worker.
    pub fn address(&self) -> &str {
        &self.target.address
    }

    /// The deadline of one call.
    pub fn timeout(&self) -> Duration {
        self.target.timeout
    }

    /// One message through `Call`; an empty answer means none.
    pub async fn call(&self, body: Bytes) -> Result<Bytes, Status> {
        let timeout = self.target.timeout;
        let work = async {
            let lease = self.lease().await?;
            let mut client = client(lease.channel.clone());
            let reply = client
                .call(self.request(JsonRpc { body }, Some(timeout)))
                .await;
            self.judge(&lease, reply)
                .await
                .map(|reply| reply.into_inner().body)
        };
        tokio::time::timeout(timeout, work)
            .await
            .unwrap_or_else(|_| Err(too_late(timeout)))
    }

    /// Opens a `Session` and sends `first` on it. No deadline is set: the caller keeps one where it wants it.
    pub async fn session(&self, first: Vec<Bytes>) -> Result<Session, Status> {
        let lease = self.lease().await?;
        let (outgoing, messages) = mpsc::channel(first.len() + 8);
        for body in first {
            // The channel has room for all of them.
            let _ = outgoing.try_send(JsonRpc { body });
        }
        let mut client = client(lease.channel.clone());
        let reply = client
            .session(self.request(ReceiverStream::new(messages), None))
            .await;
        let incoming = self.judge(&lease, reply).await?.into_inner();
        Ok(Session { outgoing, incoming })
    }

    /// Asks `grpc.health.v1.Health` and returns the name of the status.
    pub async fn health(&self, service: &str) -> Result<&'static str, Status> {
        use tonic_health::pb::health_check_response::ServingStatus;
        use tonic_health::pb::health_client::HealthClient;
        let timeout = self.target.timeout;
        let work = async {
            let lease = self.lease().await?;
            let message = tonic_health::pb::HealthCheckRequest {
                service: service.to_owned(),
            };
            let reply = HealthClient::new(lease.channel.clone())
                .check(self.request(message, Some(timeout)))
                .await;
            self.judge(&lease, reply)
                .await
                .map(|reply| reply.into_inner().status)
        };
        let status = tokio::time::timeout(timeout, work)
            .await
            .unwrap_or_else(|_| Err(too_late(timeout)))?;
        Ok(ServingStatus::try_from(status).map_or("UNKNOWN", |s| s.as_str_name()))
    }

    fn request<T>(&self, message: T, timeout: Option<Duration>) -> Request<T> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.target.metadata.clone();
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        request
    }

    /// Turns transport errors into `UNAVAILABLE` with their cause, and gives up the connection they came from; says of a
    /// refused key which one it was.
    async fn judge<T>(&self, lease: &Lease, reply: Result<T, Status>) -> Result<T, Status> {
        let status = match reply {
            Ok(reply) => return Ok(reply),
            Err(status) => status,
        };
        // What tonic says on either side when the deadline that goes with the call has passed.
        if status.code() == Code::Cancelled && status.message() == "Timeout expired" {
            return Err(too_late(self.target.timeout));
        }
        if status.code() == Code::Unauthenticated {
            let (message, hint) = (status.message(), self.target.key.hint());
            return Err(Status::unauthenticated(format!("{message}; {hint}")));
        }
        if !is_transport(&status) {
            return Err(status);
        }
        let mut link = self.link.lock().await;
        if link
            .channel
            .as_ref()
            .is_some_and(|(serial, _)| *serial == lease.serial)
        {
            link.channel = None;
        }
        Err(transport_status(&status))
    }

    /// The connection, made now if there is none; waits at most [`PATIENCE`], and in a hurry for no second attempt.
    async fn lease(&self) -> Result<Lease, Status> {
        let give_up = Instant::now() + PATIENCE.min(self.target.timeout);
        let down = |why: &str| {
            Status::unavailable(format!("cannot connect to {}: {why}", self.target.address))
        };
        let Ok(mut link) = tokio::time::timeout_at(give_up, self.link.lock()).await else {
            return Err(down("still trying"));
        };
        loop {
            if let Some((serial, channel)) = &link.channel {
                return Ok(Lease {
                    channel: channel.clone(),
                    serial: *serial,
                });
            }
            match link.next_try {
                Some(at) if at > give_up => return Err(down(&link.last_error)),
                Some(at) if at > Instant::now() => {
                    let pause = tokio::time::sleep_until(at);
                    if self.hurry.run_until_cancelled(pause).await.is_none() {
                        return Err(down(&link.last_error));
                    }
                }
                Some(_) | None => {}
            }
            let tried = tokio::time::timeout_at(give_up, self.target.endpoint.connect()).await;
            let why = match tried {
                Ok(Ok(channel)) => {
                    link.serial += 1;
                    link.channel = Some((link.serial, channel));
                    link.failures = 0;
                    link.next_try = None;
                    continue;
                }
                Ok(Err(error)) => root_cause(&error),
                Err(_) => "no answer".to_owned(),
            };
            let backoff = FIRST_BACKOFF
                .saturating_mul(1 << link.failures.min(10))
                .min(MAX_BACKOFF);
            link.failures += 1;
            link.next_try = Some(Instant::now() + backoff);
            link.last_error = why;
        }
    }
}

#[cfg(test)]
impl Upstream {
    /// Attempts to connect that failed since the last one that did not.
    pub(crate) async fn failures(&self) -> u32 {
        self.link.lock().await.failures
    }
}

fn client(channel: Channel) -> McpClient<Channel> {
    McpClient::new(channel)
        .max_decoding_message_size(MAX_REPLY)
        .max_encoding_message_size(MAX_REPLY)
}

fn too_late(timeout: Duration) -> Status {
    Status::deadline_exceeded(format!("no answer within {} s", timeout.as_secs_f64()))
}

/// Whether the status was made on this side, out of a broken connection, instead of being sent by the worker.
pub fn is_transport(status: &Status) -> bool {
    let local = matches!(
        status.code(),
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
    );
    local && (status.source().is_some() || status.message().starts_with("Service was not ready"))
}

/// A transport error as `UNAVAILABLE` with its cause.
pub fn transport_status(status: &Status) -> Status {
    let why = status
        .source()
        .map_or_else(|| status.message().to_owned(), root_cause);
    Status::unavailable(format!("the connection to the worker was lost: {why}"))
}

/// The text of the innermost error: that is where the operating system speaks.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
