//! What lies between two parts: a relay, reached over a unix socket or TCP, that cuts, holds one direction, and delivers late what a client has sent that is gone.

use rustix::net::{Shutdown, shutdown};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long one end hears nothing of the end of the other, where it does late.
const LATE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Default)]
pub(super) struct Manners {
    /// Nothing goes on from clients to the server.
    pub(super) holds_requests: bool,
    /// And nothing the other way.
    pub(super) holds_answers: bool,
    /// What comes from clients that are gone is delivered for a while.
    pub(super) is_late: bool,
}

/// Whose connections are cut.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Clients,
    Servers,
    Both,
}

#[derive(Default)]
struct State {
    manners: Manners,
    /// The sockets of client and server of each connection.
    pairs: Vec<Arc<[File; 2]>>,
    is_closing: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    to: PathBuf,
}

/// Where it is reached.
enum Entrance {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Entrance {
    fn accept(&self) -> std::io::Result<OwnedFd> {
        match self {
            Entrance::Unix(listener) => listener.accept().map(|(client, _)| client.into()),
            Entrance::Tcp(listener) => {
                let (client, _) = listener.accept()?;
                client.set_nodelay(true)?;
                Ok(client.into())
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

pub(super) struct Relay {
    shared: Arc<Shared>,
    pub(super) address: Address,
}

impl Relay {
    /// One that is reached at this path, or else over TCP, and passes on to `to`.
    pub(super) fn start(path: Option<&Path>, to: &Path) -> Relay {
        let (entrance, address) = if let Some(path) = path {
            let listener = UnixListener::bind(path).expect("the folder takes sockets");
            (Entrance::Unix(listener), Address::Unix(path.to_owned()))
        } else {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
            let address = listener.local_addr().expect("it is bound");
            (Entrance::Tcp(listener), Address::Tcp(address))
        };
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), to: to.to_owned() });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            loop {
                let client = entrance.accept();
                if accepting.state().is_closing {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&accepting.to)) else { continue };
                let pair = Arc::new([File::from(client), File::from(OwnedFd::from(server))]);
                accepting.state().pairs.push(Arc::clone(&pair));
                for from in [0, 1] {
                    let (shared, pair) = (Arc::clone(&accepting), Arc::clone(&pair));
                    std::thread::spawn(move || shared.copy(&pair, from));
                }
            }
        });
        Relay { shared, address }
    }

    pub(super) fn behave(&self, manners: Manners) {
        self.shared.state().manners = manners;
        self.shared.changed.notify_all();
    }

    pub(super) fn cut(&self, side: Side) {
        let ends = match side {
            Side::Clients => 0..1,
            Side::Servers => 1..2,
            Side::Both => 0..2,
        };
        for pair in &self.shared.state().pairs {
            for end in &pair[ends.clone()] {
                let _ = shutdown(end, Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.behave(Manners::default());
        self.shared.state().is_closing = true;
        self.cut(Side::Both);
        let _ = match &self.address {
            Address::Unix(path) => UnixStream::connect(path).map(OwnedFd::from),
            Address::Tcp(address) => TcpStream::connect(address).map(OwnedFd::from),
        };
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while it is held")
    }

    /// Passes on what comes from one end, up to its end.
    fn copy(&self, pair: &Arc<[File; 2]>, from: usize) {
        let (mut source, mut target) = (&pair[from], &pair[1 - from]);
        let is_from_client = from == 0;
        let is_held = |state: &mut State| match is_from_client {
            true => state.manners.holds_requests,
            false => state.manners.holds_answers,
        };
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = source.read(&mut buffer) {
            let state =
                self.changed.wait_while(self.state(), is_held).expect("nobody panics while it is held");
            let is_late = state.manners.is_late;
            drop(state);
            // Answers for whom nobody waits any more are taken, so that what was asked goes on.
            if target.write_all(&buffer[..count]).is_err() && (is_from_client || !is_late) {
                break;
            }
        }
        let until = Instant::now() + LATE;
        while is_from_client && self.state().manners.is_late && Instant::now() < until && self.is_there(pair)
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = shutdown(target, if is_from_client { Shutdown::Write } else { Shutdown::Both });
        if !is_from_client {
            let _ = shutdown(source, Shutdown::Both);
            self.state().pairs.retain(|other| !Arc::ptr_eq(other, pair));
        }
    }

    /// Whether the server's end goes on.
    fn is_there(&self, pair: &Arc<[File; 2]>) -> bool {
        let state = self.state();
        !state.is_closing && state.pairs.iter().any(|other| Arc::ptr_eq(other, pair))
    }
}
