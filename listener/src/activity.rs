//! What a connection does, and how one that does nothing ends.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::slow::{SlowReader, until_written};

/// How often a connection is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Where places are short, one that did nothing for so long gives up its own.
const CROWDED_IDLE: Duration = Duration::from_secs(1);

/// How long a connection may do nothing.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Until its first request.
    pub first_request: Duration,
    /// Between requests; then it is asked to end.
    pub idle: Duration,
    /// Since it began; then it is asked to end, which spreads long-lived clients over servers again.
    pub max_age: Option<Duration>,
    /// While the peer takes nothing of what is sent to it.
    pub unread: Option<Duration>,
    /// After it was asked to end with nothing open. Only where answers are [`Held`]: else an answer
    /// on its way does not count as open.
    pub linger: Option<Duration>,
}

/// What a connection did. Times are milliseconds after `begin`; 0: never.
pub(crate) struct Activity {
    begin: Instant,
    open: AtomicUsize,
    last: AtomicU64,
    stuck: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            begin: Instant::now(),
            open: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            stuck: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        let passed = self.begin.elapsed().as_millis();
        u64::try_from(passed).unwrap_or(u64::MAX).max(1)
    }

    fn since(&self, time: &AtomicU64) -> Duration {
        let time = Duration::from_millis(time.load(Ordering::Relaxed));
        self.begin.elapsed().saturating_sub(time)
    }

    fn mark(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// The peer took something, or takes nothing now.
    pub(crate) fn written(&self, some: bool) {
        let stuck = self.stuck.load(Ordering::Relaxed) != 0;
        if some == stuck {
            let since = if some { 0 } else { self.now() };
            self.stuck.store(since, Ordering::Relaxed);
        }
    }

    fn is_crowded(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 1
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    fn is_silent(&self) -> bool {
        self.last.load(Ordering::Relaxed) == 0
    }

    fn is_idle_for(&self, time: Duration) -> bool {
        !self.is_open() && self.since(&self.last) > time
    }

    fn is_unread_for(&self, time: Duration) -> bool {
        self.stuck.load(Ordering::Relaxed) != 0 && self.since(&self.stuck) > time
    }
}

/// A connection that was accepted.
pub struct Connection {
    /// The other side.
    pub peer: IpAddr,
    pub(crate) activity: Arc<Activity>,
    pub(crate) cut: Arc<Notify>,
    pub(crate) bounds: Bounds,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) crowded: Arc<AtomicBool>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// What is to be done about a connection.
enum Verdict {
    Keep,
    AskToEnd,
    Break(&'static str),
}

impl Connection {
    /// Where its requests are counted.
    pub fn requests(&self) -> Requests {
        Requests(Arc::clone(&self.activity))
    }

    /// Who is notified when the connection has to end at once.
    pub fn cut(&self) -> Arc<Notify> {
        Arc::clone(&self.cut)
    }

    /// Runs the connection to its end; `ask` tells it that it takes no more requests. It is boxed,
    /// because a future keeps both the argument that it got and the place where it pins it.
    pub async fn drive<C, E>(
        self: Box<Self>,
        mut connection: Pin<Box<C>>,
        ask: impl Fn(Pin<&mut C>),
    ) -> io::Result<()>
    where
        C: Future<Output = Result<(), E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut stopping = self.stopping.clone();
        let cut = self.cut();
        let mut look = tokio::time::interval(LOOK_EVERY);
        let mut asked = None::<Instant>;
        let mut stopped = false;
        loop {
            tokio::select! {
                ended = Gather::new(connection.as_mut(), &self.activity) => return ended.map_err(io::Error::other),
                _ = stopping.wait_for(|stopping| *stopping), if !stopped => {
                    stopped = true;
                    if asked.is_none() {
                        asked = Some(Instant::now());
                        ask(connection.as_mut());
                    }
                }
                () = cut.notified() => return Err(io::Error::other("an answer was not read in time")),
                _ = look.tick() => match self.judge(asked) {
                    Verdict::Keep => {}
                    Verdict::AskToEnd => {
                        asked = Some(Instant::now());
                        ask(connection.as_mut());
                    }
                    Verdict::Break(why) => return Err(io::Error::other(why)),
                },
            }
        }
    }

    fn judge(&self, asked: Option<Instant>) -> Verdict {
        let (bounds, activity) = (&self.bounds, &self.activity);
        let age = activity.begin.elapsed();
        let crowded = self.crowded.load(Ordering::Relaxed);
        let patience = if crowded {
            CROWDED_IDLE
        } else {
            bounds.first_request
        };
        if activity.is_silent() && !activity.is_open() && age > patience {
            return Verdict::Break("no request in time");
        }
        if bounds
            .unread
            .is_some_and(|time| activity.is_unread_for(time))
        {
            return Verdict::Break("an answer was not read in time");
        }
        if let Some(asked) = asked {
            let lingers = bounds.linger.is_some_and(|time| asked.elapsed() > time);
            return if lingers && !activity.is_open() {
                Verdict::Break("the peer does not end the connection")
            } else {
                Verdict::Keep
            };
        }
        let idle = if crowded { CROWDED_IDLE } else { bounds.idle };
        let old = bounds.max_age.is_some_and(|time| age > time);
        if old || activity.is_idle_for(idle) {
            Verdict::AskToEnd
        } else {
            Verdict::Keep
        }
    }
}

/// Lets the tasks go first that are ready to run. Woken from its own poll, a task goes to the end of the queue.
pub async fn behind_the_others() {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Lets those go first who have something for the connection, while it has several open requests.
///
/// Answers come in bunches. The runtime runs the connection right after the first of them is ready, which would write
/// each answer by a system call of its own (and wake the other side for it).
struct Gather<'a, C> {
    connection: Pin<&'a mut C>,
    activity: &'a Activity,
    waited: bool,
}

impl<'a, C> Gather<'a, C> {
    fn new(connection: Pin<&'a mut C>, activity: &'a Activity) -> Self {
        Self {
            connection,
            activity,
            waited: false,
        }
    }
}

impl<C: Future> Future for Gather<'_, C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = self.get_mut();
        if this.activity.is_crowded() && !this.waited {
            this.waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.waited = false;
        this.connection.as_mut().poll(cx)
    }
}

/// Counts the requests of a connection.
pub struct Requests(Arc<Activity>);

impl Requests {
    /// One more; it counts as open until this is dropped.
    pub fn open(&self) -> Open {
        Open::new(Arc::clone(&self.0))
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Requests")
    }
}

/// A request that is open.
pub struct Open(Arc<Activity>);

impl Open {
    fn new(activity: Arc<Activity>) -> Self {
        activity.mark();
        activity.open.fetch_add(1, Ordering::Relaxed);
        Self(activity)
    }
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Open")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.mark();
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body whose request is open until all of it went out.
#[derive(Debug)]
pub struct Held<B> {
    body: B,
    open: Option<Open>,
    /// Of a large answer, until its bytes were written.
    unwritten: Option<Arc<(SlowReader<()>, Option<Open>)>>,
}

impl<B: http_body::Body> Held<B> {
    /// Holds the request open for this body.
    pub fn new(body: B, open: Open) -> Self {
        Self {
            body,
            open: Some(open),
            unwritten: None,
        }
    }

    /// Ends the connection when the body is large and is not read in time.
    #[must_use]
    pub fn read_or(mut self, cut: &Arc<Notify>) -> Self {
        let size = self.body.size_hint().exact().unwrap_or(0);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if let Some(slow) = SlowReader::watch(size, || (), cut) {
            self.unwritten = Some(Arc::new((slow, self.open.take())));
        }
        self
    }
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Self {
            body, unwritten, ..
        } = self.get_mut();
        let polled = Pin::new(body).poll_frame(cx);
        let Some(unwritten) = unwritten else {
            return polled;
        };
        let keep = |data| until_written(data, Arc::clone(unwritten));
        polled.map_ok(|frame| frame.map_data(keep))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
