//! A listener whose connections are bounded in number and time, and on which nobody who is silent keeps others out for long.
//!
//! A connection that lives longer than [`CONNECTION_TIME_MAX`] is ended. Where as many are served as may be, and another client has connected, whoever has asked nothing for
//! [`CROWDED_TIME_MAX`] gives way to it, the one that has been silent longest first: half a request is nothing asked, and one that waits for its answer is not ended; one that is answered and takes nothing for so long is.

use axum::serve::Listener;
use forebay_units::{Nanos, Sparing};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// A connection that lives longer is ended: nothing here takes so long (ours).
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);

/// So long who asks nothing may keep a place at least, also where others wait for it (ours).
const CROWDED_TIME_MAX: Duration = Duration::from_secs(1);

/// That somebody gave way is told once in so long, with how often it was since (ours).
const TOLD_EVERY: Nanos = Nanos::secs(60);

/// What ends a request's head.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Since when a connection waits for its client to ask.
#[derive(Debug)]
struct Silence {
    /// `None` while it is asked something.
    since: Option<Instant>,
    /// Bytes of [`HEAD_END`] that came last.
    of_end: usize,
    /// Something else came before them: empty lines alone are no request.
    has_text: bool,
}

impl Silence {
    fn new() -> Silence {
        Silence { since: Some(Instant::now()), of_end: 0, has_text: false }
    }

    /// The client sent this.
    fn heard(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.of_end = match self.of_end {
                at if *byte == HEAD_END[at] => at + 1,
                _ => usize::from(*byte == HEAD_END[0]),
            };
            self.has_text |= !HEAD_END.contains(byte);
            if self.of_end == HEAD_END.len() {
                self.of_end = 0;
                if std::mem::take(&mut self.has_text) {
                    self.since = None;
                }
            }
        }
    }

    /// It takes some of its answer. Whether more of that comes is not known here.
    fn answered(&mut self) {
        self.since = Some(Instant::now());
    }
}

/// What is known of a connection from outside.
struct Served {
    silence: Arc<Mutex<Silence>>,
    end: oneshot::Sender<()>,
}

impl Served {
    fn silent_since(&self) -> Option<Instant> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner).since
    }
}

/// A listener that serves at most so many at once.
pub(crate) struct Bounded<L> {
    inner: L,
    places: Arc<Semaphore>,
    served: Vec<Served>,
    began: Instant,
    gave_way: Sparing,
}

impl<L> Bounded<L> {
    pub(crate) fn new(inner: L, connections_max: usize) -> Bounded<L> {
        Bounded {
            inner,
            places: Arc::new(Semaphore::new(connections_max)),
            served: Vec::new(),
            began: Instant::now(),
            gave_way: Sparing::new(1, TOLD_EVERY),
        }
    }

    /// Tells that somebody gives way, unless that was told of late.
    fn tell(&mut self) {
        let now = self.began.elapsed().into();
        let why = "a client of HTTP asks nothing, and others wait; disconnected";
        if let Some((untold, _)) = self.gave_way.untold(now) {
            tracing::warn!(untold, "{why}");
        }
        if self.gave_way.tells(now, || why.to_owned()) {
            tracing::warn!("{why}");
        }
    }

    /// A place for who has connected.
    async fn place(&mut self) -> OwnedSemaphorePermit {
        loop {
            let has_left = |served: &Served| served.end.is_closed();
            self.served.retain(|served| !has_left(served));
            let silent = |(at, served): (usize, &Served)| Some((served.silent_since()?, at));
            let oldest = self.served.iter().enumerate().filter_map(silent).min();
            let wait = oldest.map(|(since, _)| CROWDED_TIME_MAX.saturating_sub(since.elapsed()));
            let freed = Arc::clone(&self.places).acquire_owned();
            // Who is asked something now may be silent soon.
            match tokio::time::timeout(wait.unwrap_or(CROWDED_TIME_MAX), freed).await {
                Ok(place) => return place.expect("nobody closes the semaphore"),
                Err(_) => {
                    if let Some((since, at)) = oldest
                        && self.served[at].silent_since() == Some(since)
                    {
                        self.tell();
                        let _ = self.served.swap_remove(at).end.send(());
                    }
                }
            }
        }
    }
}

impl<L: Listener> Listener for Bounded<L> {
    type Io = Connection<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (io, address) = self.inner.accept().await;
        let place = self.place().await;
        let silence = Arc::new(Mutex::new(Silence::new()));
        let (end, ends) = oneshot::channel();
        self.served.push(Served { silence: Arc::clone(&silence), end });
        let deadline = Box::pin(tokio::time::sleep(CONNECTION_TIME_MAX));
        (Connection { io, deadline, ends: Some(ends), silence, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}

/// A connection that counts while it lives, and does not live for ever.
pub(crate) struct Connection<I> {
    io: I,
    deadline: Pin<Box<tokio::time::Sleep>>,
    /// `None` once it is over.
    ends: Option<oneshot::Receiver<()>>,
    silence: Arc<Mutex<Silence>>,
    _place: OwnedSemaphorePermit,
}

impl<I> Connection<I> {
    fn silence(&self) -> std::sync::MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its time is over, or somebody else has its place. Wakes whoever asks when it is.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let Some(ends) = &mut self.ends else { return true };
        if self.deadline.as_mut().poll(context).is_ready() || Pin::new(ends).poll(context).is_ready() {
            self.ends = None;
        }
        self.ends.is_none()
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Connection<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        self.silence().heard(&buffer.filled()[before..]);
        polled
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Connection<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let polled = Pin::new(&mut self.io).poll_write(context, bytes);
        if polled.is_ready() {
            self.silence().answered();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    const PATIENCE: Duration = Duration::from_secs(30);
    /// How long an answer takes.
    const BUSY: Duration = Duration::from_secs(3);

    /// Two places; `/busy` keeps one for a while. It serves until the test ends.
    fn server() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let busy = || async {
            tokio::time::sleep(BUSY).await;
            "done"
        };
        let routes = Router::new().route("/", get(|| async { "here" })).route("/busy", get(busy));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(Bounded::new(listener, 2), routes).await
            })
        });
        address
    }

    fn ask(address: SocketAddr, said: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        stream
    }

    fn answer(stream: &mut TcpStream) -> String {
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn who_asks_nothing_or_half_a_request_gives_way_to_who_waits() {
        let address = server();
        let mut silent: Vec<TcpStream> = ["", "GET / HT"].map(|said| ask(address, said)).into();
        // The third takes the place of the first, which was answered and asks nothing more.
        for _ in 0..3 {
            let mut kept = ask(address, "GET / HTTP/1.1\r\nhost: x\r\n\r\n");
            let mut buffer = [0; 12];
            kept.read_exact(&mut buffer).unwrap();
            assert_eq!(&buffer, b"HTTP/1.1 200");
            // It is silent now, and the next one waits for a place.
            silent.push(kept);
        }
        assert!(silent[..2].iter_mut().all(|stream| answer(stream).is_empty()), "they had their time");
    }

    #[test]
    fn who_is_being_answered_keeps_its_place() {
        let address = server();
        let busy = || ask(address, "GET /busy HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let mut busy = [busy(), busy()];
        let mut waits = ask(address, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        assert!(answer(&mut waits).ends_with("here"));
        assert!(busy.iter_mut().all(|stream| answer(stream).ends_with("done")));
    }

    #[test]
    fn a_request_is_one_when_its_head_is_whole_however_it_comes() {
        let mut silence = Silence::new();
        for bytes in ["\r\n\r\n\r\n\r\n", "GET / HTTP/1.1\r", "\n\r", "\r\n\r"] {
            silence.heard(bytes.as_bytes());
            assert!(silence.since.is_some());
        }
        silence.heard(b"\n");
        assert!(silence.since.is_none());
        silence.answered();
        assert!(silence.since.is_some());
    }
}
