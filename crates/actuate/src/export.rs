//! One short conversation with an NBD export, as a client of it: whether it lets anybody in, or a flush.

use crate::Deadline;
use crate::api::{Stream, connect_tcp, connect_unix, left};
use forebay_nbd::client::{Config, Event, Operation, ProtocolError, ReplyError, Session};
use forebay_nbd::wire::TransmissionFlags;
use forebay_nbd::{Succession, Transport, Uri};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::ToSocketAddrs;
use thiserror::Error;

/// What it is visited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// To be let in. An export over TLS is only connected to.
    Look,
    /// To have what it acknowledged on stable storage, which is nothing where it offers no flush. Not over TLS.
    Flush,
}

/// Why it came to nothing.
#[derive(Debug, Error)]
pub(crate) enum VisitError {
    /// Nobody answers there, or not to the end, or not in time.
    #[error(transparent)]
    Connection(#[from] io::Error),
    /// It says that it has not flushed. That may be its only word of lost data; a server of ours says it to whoever flushes there next as well, since we leave with it.
    #[error("it has not flushed: {error}")]
    NotFlushed {
        /// What it said.
        error: ReplyError,
        /// It is a server of ours.
        is_passed_on: bool,
    },
    /// It does not speak NBD, or does not know the export.
    #[error(transparent)]
    Protocol(ProtocolError),
}

impl VisitError {
    /// Whether nobody listens there.
    pub(crate) fn is_of_nobody(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        matches!(self, VisitError::Connection(error) if matches!(error.kind(), ConnectionRefused | NotFound))
    }

    /// Whether nothing was heard in time, as of a server that hangs.
    pub(crate) fn is_silence(&self) -> bool {
        use io::ErrorKind::{TimedOut, WouldBlock};
        matches!(self, VisitError::Connection(error) if matches!(error.kind(), TimedOut | WouldBlock))
    }
}

/// Opens the export that `uri` names, does the errand, and leaves politely.
pub(crate) fn visit(uri: &Uri, errand: Errand, deadline: Deadline) -> Result<(), VisitError> {
    let is_enough = uri.tls_required && errand == Errand::Look;
    if uri.tls_required && !is_enough {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "TLS is not spoken here").into());
    }
    match &uri.transport {
        Transport::Unix { path } => {
            let stream = connect_unix(path)?;
            if is_enough { Ok(()) } else { converse(stream, &uri.export, errand, deadline) }
        }
        Transport::Tcp { host, port } => {
            let addresses = (host.as_str(), *port).to_socket_addrs()?;
            let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
            for address in addresses {
                match connect_tcp(address, deadline) {
                    Ok(_) if is_enough => return Ok(()),
                    Ok(stream) => return converse(stream, &uri.export, errand, deadline),
                    Err(error) => last = error,
                }
            }
            Err(last.into())
        }
    }
}

fn converse(
    mut stream: impl Stream,
    export: &str,
    errand: Errand,
    deadline: Deadline,
) -> Result<(), VisitError> {
    // A client that names no run, and has nobody to pass on what it is told: where it leaves with an error, whoever flushes next hears of that.
    let id = RandomState::new().build_hasher().finish();
    let succession = Some(Succession { id, number: 1, lacks_flush: false });
    let mut session = Session::new(Config { block_status: false, succession, ..Config::new(export) });
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 4096];
    let (mut is_ours, mut has_left, mut is_done, mut failed) = (false, false, false, None);
    loop {
        let mut taken = 0;
        while !is_done {
            let parsed = session.receive(&input[taken..], &mut output).map_err(VisitError::Protocol)?;
            taken += parsed.consumed;
            match parsed.event {
                Event::NeedMore => break,
                Event::Ready(export) => {
                    is_ours = export.succeeds.is_some();
                    let (flags, flush) = (export.flags, TransmissionFlags::SEND_FLUSH);
                    if errand == Errand::Flush && flags.contains(flush) {
                        let asked = session.submit(0, Operation::Flush, &mut output);
                        asked.map_err(io::Error::other)?;
                        if is_ours {
                            // The farewell goes with it, so that a server of ours passes an error on whatever becomes of us. Servers of others may end without the answer then.
                            session.disconnect(&mut output);
                            has_left = true;
                        }
                    } else {
                        is_done = true;
                    }
                }
                Event::Done { result, .. } => {
                    failed = result.err();
                    is_done = true;
                }
                Event::Closed => return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
                _ => {}
            }
        }
        input.drain(..taken);
        if is_done && !has_left {
            // A farewell, so that nobody wonders where the client went.
            session.disconnect(&mut output);
        }
        stream.limit(left(deadline)?)?;
        stream.write_all(&output)?;
        output.clear();
        if is_done {
            let not_flushed = |error| Err(VisitError::NotFlushed { error, is_passed_on: is_ours });
            return failed.map_or(Ok(()), not_flushed);
        }
        stream.limit(left(deadline)?)?;
        match stream.read(&mut buffer)? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            count => input.extend_from_slice(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_nbd::wire::ErrorCode;
    use forebay_nbd::{ExportInfo, RunId, Succeeds, server};
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    /// What a server saw of its visitor.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Seen {
        flushes: u32,
        left_in_order: bool,
        /// It had taken leave before its flush was answered.
        leaves_beforehand: bool,
        names_no_run: bool,
    }

    /// A server of the export `db` for one client, whose flushes it refuses if it is told so; it is one of ours if it lets connections `succeed`.
    fn visited(
        export: &str,
        errand: Errand,
        refuses: bool,
        succeeds: Option<Succeeds>,
    ) -> (Result<(), VisitError>, Seen) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nbd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let serving = std::thread::spawn(move || {
            let db = ExportInfo { succeeds, ..ExportInfo::new("db", 4096) };
            let exports = BTreeMap::from([("db".to_owned(), db)]);
            let (mut stream, mut output) = (listener.accept().unwrap().0, Vec::new());
            let mut session = server::Session::new(server::Config::default(), &mut output);
            let (mut input, mut buffer, mut seen) = (Vec::new(), [0; 512], Seen::default());
            loop {
                let Ok(parsed) = session.receive(&input, &exports, &mut output) else { return seen };
                let (consumed, is_over) =
                    (parsed.consumed, matches!(parsed.event, server::Event::Disconnect(_)));
                let waits = matches!(parsed.event, server::Event::NeedMore);
                if let server::Event::Request { request, .. } = parsed.event {
                    seen.flushes += 1;
                    seen.leaves_beforehand = input.len() > consumed;
                    seen.names_no_run = session.succession().is_some_and(|place| place.client().is_none());
                    let replies = session.replies();
                    match refuses {
                        true => replies.error(request.cookie, ErrorCode::Io, "", &mut output),
                        false => replies.success(&request, &mut output),
                    }
                }
                input.drain(..consumed);
                let _ = stream.write_all(&output);
                output.clear();
                if is_over {
                    return Seen { left_in_order: true, ..seen };
                }
                if waits {
                    match stream.read(&mut buffer) {
                        Ok(0) | Err(_) => return seen,
                        Ok(count) => input.extend_from_slice(&buffer[..count]),
                    }
                }
            }
        });
        let deadline = Deadline::after(Duration::from_secs(10));
        let outcome = visit(&Uri::unix(&socket, export), errand, deadline);
        (outcome, serving.join().unwrap())
    }

    #[test]
    fn a_server_that_says_nothing_in_time_is_told_from_one_that_is_gone() {
        let is_silence = |kind: io::ErrorKind| VisitError::from(io::Error::from(kind)).is_silence();
        assert!(is_silence(io::ErrorKind::TimedOut) && is_silence(io::ErrorKind::WouldBlock));
        assert!(!is_silence(io::ErrorKind::ConnectionRefused));
    }

    #[test]
    fn who_looks_asks_for_nothing_and_who_flushes_hears_of_it() {
        let (outcome, seen) = visited("db", Errand::Look, false, None);
        assert!(outcome.is_ok() && seen == Seen { left_in_order: true, ..Seen::default() });
        let (outcome, seen) = visited("db", Errand::Flush, false, None);
        assert!(outcome.is_ok() && seen.flushes == 1);
        let (outcome, _) = visited("other", Errand::Flush, false, None);
        assert!(matches!(outcome, Err(VisitError::Protocol(_))));
    }

    /// The answer may be the only word of lost data, and its client is not the one that has lost some: a server of ours says it again once such a client has left in order, which it may not live to do behind the answer.
    #[test]
    fn who_is_told_that_something_is_lost_leaves_it_to_who_comes_next() {
        for succeeds in [None, Some(Succeeds { run: RunId(7), storage: None, keeper: None })] {
            let (outcome, seen) = visited("db", Errand::Flush, true, succeeds);
            let leaves_beforehand = succeeds.is_some();
            assert_eq!(seen, Seen { flushes: 1, left_in_order: true, leaves_beforehand, names_no_run: true });
            match outcome {
                Err(VisitError::NotFlushed { is_passed_on, .. }) => {
                    assert_eq!(is_passed_on, succeeds.is_some());
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
