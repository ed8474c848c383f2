//! NBD URIs: how people name an export on a server, as in `nbd://host/disk` and `nbd+unix:///disk?socket=/run/s`.
//!
//! It resolves and opens nothing. Parsing and formatting are inverse. Source: `doc/uri.md` of NetworkBlockDevice/nbd;
//! where that leaves a choice to the client we refuse rather than guess: a TCP address needs a host, a Unix address
//! has none, and a query parameter that we do not know is an error.

use crate::wire::{PORT, STRING_BYTES_MAX};
use forebay_units::Secret;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A TCP port.
    Tcp {
        /// Name or address; an IPv6 address without its brackets.
        host: String,
        /// Port, not 0.
        port: u16,
    },
    /// A Unix domain socket.
    Unix {
        /// Its path; a first byte of 0 means the abstract namespace.
        path: PathBuf,
    },
}

/// How the two sides prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UriTlsType {
    /// Not at all.
    Anonymous,
    /// By certificates.
    X509,
    /// By a shared key.
    Psk,
}

/// A server, an export, and how to get there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uri {
    /// Where.
    pub transport: Transport,
    /// The export's name; empty for the default export.
    pub export: String,
    /// Whether the connection must be protected by TLS (`nbds`, `nbds+unix`); otherwise it may be.
    pub tls_required: bool,
    /// User for TLS with shared keys.
    pub user: Option<String>,
    /// `tls-type`.
    pub tls_type: Option<UriTlsType>,
    /// `tls-hostname`: the name that the server's certificate must carry.
    pub tls_hostname: Option<String>,
    /// `tls-verify-peer`; verify unless it says no.
    pub tls_verify_peer: Option<bool>,
}

/// Why a text is no NBD URI.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseUriError {
    /// Not one of ours.
    #[error(
        "scheme of a URI that begins with {} is not one of `nbd://`, `nbds://`, `nbd+unix://`, `nbds+unix://`",
        if .0.is_empty() { "none".to_owned() } else { format!("`{}`", .0) }
    )]
    Scheme(String),
    /// A character that a URI cannot hold.
    #[error("`{0}` must be percent-encoded in a URI")]
    Character(char),
    /// `%` without two hexadecimal digits, and what follows it.
    #[error("`%` in `{0}` is not followed by two hexadecimal digits")]
    Percent(String),
    /// Text that is not UTF-8 once decoded, by its first byte that is none.
    #[error("`{0}` is not UTF-8 when decoded")]
    NotUtf8(String),
    /// A TCP address without a host.
    #[error("host is missing, as in `nbd://host/export`")]
    HostMissing,
    /// Brackets that do not enclose an IPv6 address.
    #[error("`{0}` is not an IPv6 address in brackets")]
    Brackets(String),
    /// Not a port.
    #[error("port `{0}` is not a number from 1 to 65535")]
    Port(String),
    /// A host in the address of a Unix socket.
    #[error("a Unix socket has no host, found `{0}`; write `nbd+unix:///export?socket=PATH`")]
    UnixHost(String),
    /// A Unix address without a socket.
    #[error("query parameter `socket` with the path of the Unix socket is missing")]
    SocketMissing,
    /// A socket in a TCP address.
    #[error("query parameter `socket` belongs to `nbd+unix` and `nbds+unix` only")]
    SocketOverTcp,
    /// Something behind `#`.
    #[error("an NBD URI has no fragment, found `#`")]
    Fragment,
    /// A parameter that we do not know.
    #[error("query parameter `{0}` is not known")]
    Parameter(String),
    /// A parameter twice.
    #[error("query parameter `{0}` is given twice")]
    Duplicate(String),
    /// A parameter with a value that it does not have.
    #[error("query parameter `{name}` is `{found}`, expected {expected}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// What came.
        found: String,
        /// What may come.
        expected: &'static str,
    },
    /// An export name that the protocol cannot carry.
    #[error("export name has {0} bytes or holds NUL; at most 4096 bytes without NUL can be sent")]
    ExportName(usize),
}

impl Uri {
    /// An export of a server at a TCP port.
    pub fn tcp(host: impl Into<String>, port: u16, export: impl Into<String>) -> Uri {
        Uri::new(Transport::Tcp { host: host.into(), port }, export.into())
    }

    /// An export of a server at a Unix socket.
    pub fn unix(path: impl Into<PathBuf>, export: impl Into<String>) -> Uri {
        Uri::new(Transport::Unix { path: path.into() }, export.into())
    }

    fn new(transport: Transport, export: String) -> Uri {
        Uri {
            transport,
            export,
            tls_required: false,
            user: None,
            tls_type: None,
            tls_hostname: None,
            tls_verify_peer: None,
        }
    }
}

impl FromStr for Uri {
    type Err = ParseUriError;

    fn from_str(text: &str) -> Result<Uri, ParseUriError> {
        // No more than its beginning: behind it may be a password.
        let unknown = || {
            let end = text.find([':', '@', '/']).unwrap_or(text.len());
            ParseUriError::Scheme(text[..end].to_owned())
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(unknown)?;
        let (tls_required, is_unix) = match scheme.to_ascii_lowercase().as_str() {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(unknown()),
        };
        if rest.contains('#') {
            return Err(ParseUriError::Fragment);
        }
        if let Some(bad) = rest.chars().find(|c| !c.is_ascii_graphic() || "\"<>\\^`{|}".contains(*c)) {
            return Err(ParseUriError::Character(bad));
        }
        let (before_query, query) =
            rest.split_once('?').map_or((rest, ""), |(before, query)| (before, query));
        let (authority, path) = match before_query.find('/') {
            Some(at) => (&before_query[..at], &before_query[at + 1..]),
            None => (before_query, ""),
        };
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => {
                // What is wrong in it is not shown: it may hold a password.
                let hidden = |error| match error {
                    ParseUriError::Percent(_) => ParseUriError::Percent("USER".to_owned()),
                    ParseUriError::NotUtf8(_) => ParseUriError::NotUtf8("USER".to_owned()),
                    other => other,
                };
                (Some(decode_text(user).map_err(hidden)?), address)
            }
            None => (None, authority),
        };
        let export = decode_text(path)?;
        if export.len() > STRING_BYTES_MAX || export.contains('\0') {
            return Err(ParseUriError::ExportName(export.len()));
        }
        let query = Query::parse(query)?;
        let transport = match (is_unix, query.socket) {
            (true, None) => return Err(ParseUriError::SocketMissing),
            (true, Some(_)) if !address.is_empty() => {
                return Err(ParseUriError::UnixHost(address.to_owned()));
            }
            (true, Some(path)) => Transport::Unix { path: PathBuf::from(OsString::from_vec(path)) },
            (false, Some(_)) => return Err(ParseUriError::SocketOverTcp),
            // With a `/` in a password what comes before it looks like a port.
            (false, None) => parse_address(address).map_err(|error| match error {
                ParseUriError::Port(_) if user.is_none() && rest.contains('@') => {
                    ParseUriError::Port("PORT".to_owned())
                }
                other => other,
            })?,
        };
        Ok(Uri {
            transport,
            export,
            tls_required,
            user,
            tls_type: query.tls_type,
            tls_hostname: query.tls_hostname,
            tls_verify_peer: query.tls_verify_peer,
        })
    }
}

#[derive(Default)]
struct Query {
    socket: Option<Vec<u8>>,
    tls_type: Option<UriTlsType>,
    tls_hostname: Option<String>,
    tls_verify_peer: Option<bool>,
}

impl Query {
    fn parse(text: &str) -> Result<Query, ParseUriError> {
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, raw) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode_text(name)?;
            let duplicate = match name.as_str() {
                "socket" => {
                    let path = decode(raw)?;
                    if path.is_empty() {
                        return Err(ParseUriError::SocketMissing);
                    }
                    query.socket.replace(path).is_some()
                }
                "tls-type" => {
                    let kind = match raw {
                        "anon" => UriTlsType::Anonymous,
                        "x509" => UriTlsType::X509,
                        "psk" => UriTlsType::Psk,
                        _ => return Err(value("tls-type", raw, "`anon`, `x509` or `psk`")),
                    };
                    query.tls_type.replace(kind).is_some()
                }
                "tls-hostname" => query.tls_hostname.replace(decode_text(raw)?).is_some(),
                "tls-verify-peer" => {
                    let verify = match raw {
                        "0" => false,
                        "1" => true,
                        _ => return Err(value("tls-verify-peer", raw, "`0` or `1`")),
                    };
                    query.tls_verify_peer.replace(verify).is_some()
                }
                _ => return Err(ParseUriError::Parameter(name)),
            };
            if duplicate {
                return Err(ParseUriError::Duplicate(name));
            }
        }
        Ok(query)
    }
}

fn value(name: &'static str, found: &str, expected: &'static str) -> ParseUriError {
    ParseUriError::Value { name, found: found.to_owned(), expected }
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`.
fn parse_address(address: &str) -> Result<Transport, ParseUriError> {
    let (host, port) = if let Some(rest) = address.strip_prefix('[') {
        let brackets = || ParseUriError::Brackets(address.to_owned());
        let (host, after) = rest.split_once(']').ok_or_else(brackets)?;
        let host = decode_text(host)?;
        let numeric = host.split_once('%').map_or(host.as_str(), |(numeric, _zone)| numeric);
        if numeric.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(brackets());
        }
        let port = match after.strip_prefix(':') {
            Some(port) => port,
            None if after.is_empty() => "",
            None => return Err(brackets()),
        };
        (host, port)
    } else {
        let (host, port) = address.split_once(':').unwrap_or((address, ""));
        (decode_text(host)?, port)
    };
    if host.is_empty() {
        return Err(ParseUriError::HostMissing);
    }
    let port = match port {
        "" => PORT,
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => digits
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| ParseUriError::Port(digits.to_owned()))?,
        other => return Err(ParseUriError::Port(other.to_owned())),
    };
    Ok(Transport::Tcp { host, port })
}

/// Undoes percent-encoding. `+` means itself: this is RFC 3986, not a web form. Of what cannot be undone no more is told than where it ends: a name may hold a secret.
fn decode(text: &str) -> Result<Vec<u8>, ParseUriError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let at = text.len() - bytes.len() - 1;
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16)).map(|d| d as u8);
        match (digit(), digit()) {
            (Some(high), Some(low)) => decoded.push(high << 4 | low),
            _ => return Err(ParseUriError::Percent(text[at..].chars().take(3).collect())),
        }
    }
    Ok(decoded)
}

fn decode_text(text: &str) -> Result<String, ParseUriError> {
    String::from_utf8(decode(text)?).map_err(|error| {
        // The text itself is UTF-8, so that this was encoded.
        let found = error.as_bytes()[error.utf8_error().valid_up_to()];
        ParseUriError::NotUtf8(format!("%{found:02X}"))
    })
}

/// Writes `bytes`, percent-encoded but for RFC 3986's unreserved characters and those in `also`.
fn encode(f: &mut fmt::Formatter<'_>, bytes: &[u8], also: &str) -> fmt::Result {
    for byte in bytes {
        let plain = char::from(*byte);
        if byte.is_ascii_alphanumeric() || "-._~".contains(plain) || also.contains(plain) {
            write!(f, "{plain}")?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

impl Uri {
    /// The same for people and logs: what stands in the export's name like a secret of Forebay's (`NAME.SECRET`, `NAME.SECRET@EPOCH`) is `SECRET`, and
    /// so is a password behind the user's name.
    ///
    /// An export of somebody else's whose name ends in as long a word behind a dot is shown so, too.
    pub fn shown(&self) -> Uri {
        if let Some((name, _)) = self.user.as_ref().and_then(|user| user.split_once(':')) {
            return Uri { user: Some(format!("{name}:SECRET")), ..self.clone() }.with_export_shown();
        }
        self.with_export_shown()
    }

    /// Whether it names a password, `USER:PASSWORD@`. Nothing in the protocol uses one, but people write it all the same.
    pub fn has_password(&self) -> bool {
        self.user.as_ref().is_some_and(|user| user.contains(':'))
    }

    fn with_export_shown(&self) -> Uri {
        let (name, epoch) = match self.export.rsplit_once('@') {
            Some((name, epoch)) if epoch.bytes().all(|byte| byte.is_ascii_digit()) => (name, Some(epoch)),
            _ => (self.export.as_str(), None),
        };
        let Some((name, _)) = name.rsplit_once('.').filter(|(_, last)| Secret::new(*last).is_some()) else {
            return self.clone();
        };
        let epoch = epoch.map(|epoch| format!("@{epoch}")).unwrap_or_default();
        Uri { export: format!("{name}.SECRET{epoch}"), ..self.clone() }
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls_required { "nbds" } else { "nbd" })?;
        f.write_str(if matches!(self.transport, Transport::Unix { .. }) { "+unix://" } else { "://" })?;
        if let Some(user) = &self.user {
            encode(f, user.as_bytes(), ":")?;
            f.write_str("@")?;
        }
        if let Transport::Tcp { host, port } = &self.transport {
            if host.contains(':') {
                f.write_str("[")?;
                encode(f, host.as_bytes(), ":")?;
                f.write_str("]")?;
            } else {
                encode(f, host.as_bytes(), "")?;
            }
            if *port != PORT {
                write!(f, ":{port}")?;
            }
        }
        f.write_str("/")?;
        encode(f, self.export.as_bytes(), "/:@+,=")?;
        let mut separator = "?";
        let mut parameter = |f: &mut fmt::Formatter<'_>, name: &str, bytes: &[u8]| {
            write!(f, "{separator}{name}=")?;
            separator = "&";
            encode(f, bytes, "/:@,")
        };
        if let Transport::Unix { path } = &self.transport {
            parameter(f, "socket", path.as_os_str().as_bytes())?;
        }
        if let Some(kind) = self.tls_type {
            let word = match kind {
                UriTlsType::Anonymous => "anon",
                UriTlsType::X509 => "x509",
                UriTlsType::Psk => "psk",
            };
            parameter(f, "tls-type", word.as_bytes())?;
        }
        if let Some(hostname) = &self.tls_hostname {
            parameter(f, "tls-hostname", hostname.as_bytes())?;
        }
        if let Some(verify) = self.tls_verify_peer {
            parameter(f, "tls-verify-peer", if verify { b"1" } else { b"0" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Uri, ParseUriError> {
        text.parse()
    }

    #[test]
    fn what_is_shown_tells_no_secret() {
        let shown = |export: &str| Uri::tcp("h", 1, export).shown().export;
        assert_eq!(shown("db.open-the-storage"), "db.SECRET");
        assert_eq!(shown("a.b.open-the-storage@12"), "a.b.SECRET@12");
        // 15 letters are no secret, nor is a name without a dot, nor what a secret cannot hold.
        for export in [
            "db",
            "db@7",
            "",
            "disk.qcow2",
            "db.open-the-storag",
            "open-the-storage@x",
            "db.open the storage",
        ] {
            assert_eq!(shown(export), export);
        }
    }

    #[test]
    fn the_document_s_examples() {
        for (text, export) in [
            ("nbd://example.com/disk", "disk"),
            ("nbd+unix:///disk?socket=sock", "disk"),
            ("nbd://example.com/", ""),
            ("nbd://example.com", ""),
            ("nbd://example.com//disk", "/disk"),
            ("nbd://example.com/hello%20world", "hello world"),
        ] {
            assert_eq!(parse(text).unwrap().export, export, "{text}");
        }
        let uri = parse("nbd+unix:///?socket=%00/abstract").unwrap();
        assert_eq!(uri, Uri::unix(OsString::from_vec(b"\0/abstract".to_vec()), ""));
    }

    #[test]
    fn addresses() {
        assert_eq!(parse("nbd://h").unwrap(), Uri::tcp("h", 10809, ""));
        assert_eq!(parse("NBD://h:/x").unwrap(), Uri::tcp("h", 10809, "x"));
        assert_eq!(parse("nbd://[::1]:7/x").unwrap(), Uri::tcp("::1", 7, "x"));
        let uri = parse("nbds://alice@[fe80::1%25eth0]/x?tls-type=psk&tls-verify-peer=0").unwrap();
        assert!(uri.tls_required && uri.user.as_deref() == Some("alice"));
        assert_eq!(uri.transport, Transport::Tcp { host: "fe80::1%eth0".into(), port: 10809 });
        assert_eq!((uri.tls_type, uri.tls_verify_peer), (Some(UriTlsType::Psk), Some(false)));
    }

    #[test]
    fn refusals_say_why() {
        use ParseUriError as E;
        assert!(matches!(parse("http://h/x"), Err(E::Scheme(_))));
        for secret in
            ["ndb://u:hunter2@h/x", "u:hunter2@h", "nbd://u:hunter2%zz@h/x", "nbd://u:hunter2%ff@h/x"]
        {
            let error = parse(secret).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(matches!(parse("nbd:h"), Err(E::Scheme(_))));
        assert_eq!(parse("nbd:///x"), Err(E::HostMissing));
        assert_eq!(parse("nbd://h:0/x"), Err(E::Port("0".into())));
        assert_eq!(parse("nbd://h:65536/x"), Err(E::Port("65536".into())));
        assert_eq!(parse("nbd://h:+7/x"), Err(E::Port("+7".into())));
        assert!(matches!(parse("nbd://[::1/x"), Err(E::Brackets(_))));
        assert!(matches!(parse("nbd://[zz]/x"), Err(E::Brackets(_))));
        assert!(matches!(parse("nbd://[::1]7/x"), Err(E::Brackets(_))));
        assert_eq!(parse("nbd+unix:///x"), Err(E::SocketMissing));
        assert_eq!(parse("nbd+unix:///x?socket="), Err(E::SocketMissing));
        assert_eq!(parse("nbd+unix://h/x?socket=s"), Err(E::UnixHost("h".into())));
        assert_eq!(parse("nbd://h/x?socket=s"), Err(E::SocketOverTcp));
        assert_eq!(parse("nbd://h/x?sokcet=s"), Err(E::Parameter("sokcet".into())));
        assert_eq!(parse("nbd+unix:///x?socket=s&socket=t"), Err(E::Duplicate("socket".into())));
        assert!(matches!(parse("nbds://h/x?tls-type=rsa"), Err(E::Value { .. })));
        assert_eq!(parse("nbd://user:hunter2/x@host/db"), Err(E::Port("PORT".into())));
        assert_eq!(parse("nbd://h/%4"), Err(E::Percent("%4".into())));
        assert_eq!(parse("nbd://h/hunter2%4z%zz"), Err(E::Percent("%4z".into())));
        assert_eq!(parse("nbd://h/hunter2%c3%a9%ffx"), Err(E::NotUtf8("%FF".into())));
        assert_eq!(parse("nbd://h/%ff"), Err(E::NotUtf8("%FF".into())));
        assert_eq!(parse("nbd://h/x%c3"), Err(E::NotUtf8("%C3".into())));
        assert!(matches!(parse("nbd://h/a%00"), Err(E::ExportName(2))));
        assert!(matches!(parse(&format!("nbd://h/{}", "a".repeat(4097))), Err(E::ExportName(4097))));
        assert_eq!(parse("nbd://h/a b"), Err(E::Character(' ')));
        assert_eq!(parse("nbd://h/a#b"), Err(E::Fragment));
    }

    #[test]
    fn a_password_is_not_shown() {
        let uri = parse("nbds://alice:open-sesame@h/x").unwrap();
        assert!(uri.has_password());
        assert_eq!(uri.to_string(), "nbds://alice:open-sesame@h/x");
        assert_eq!(uri.shown().to_string(), "nbds://alice:SECRET@h/x");
        let both = parse("nbds://alice:open-sesame@h/x.0123456789abcdef@7").unwrap();
        assert_eq!(both.shown().to_string(), "nbds://alice:SECRET@h/x.SECRET@7");
        let named = parse("nbds://alice@h/x").unwrap();
        assert!(!named.has_password() && named.shown() == named);
    }

    fn transports() -> impl Strategy<Value = Transport> {
        let v6 = any::<u128>().prop_map(|bits| std::net::Ipv6Addr::from_bits(bits).to_string());
        let host = prop_oneof!["[a-z0-9.-]{1,20}", v6];
        let path = proptest::collection::vec(any::<u8>(), 1..30);
        prop_oneof![
            (host, 1..=u16::MAX).prop_map(|(host, port)| Transport::Tcp { host, port }),
            path.prop_map(|path| Transport::Unix { path: PathBuf::from(OsString::from_vec(path)) }),
        ]
    }

    proptest! {
        #[test]
        fn what_was_formatted_parses_to_the_same(
            transport in transports(),
            export in "[^\0]{0,40}",
            tls_required: bool,
            user in proptest::option::of("\\PC{1,10}"),
            tls_hostname in proptest::option::of("[a-z.&=#%]{1,10}"),
            tls_verify_peer in proptest::option::of(any::<bool>()),
        ) {
            let uri = Uri {
                tls_required, user, tls_hostname, tls_verify_peer, tls_type: Some(UriTlsType::X509),
                ..Uri::new(transport, export)
            };
            prop_assert_eq!(uri.to_string().parse::<Uri>(), Ok(uri));
        }

        #[test]
        fn no_text_panics(text in "(nbd|nbds|nbd\\+unix)://\\PC{0,40}") {
            if let Ok(uri) = text.parse::<Uri>() {
                prop_assert_eq!(uri.to_string().parse::<Uri>(), Ok(uri));
            }
        }
    }
}
