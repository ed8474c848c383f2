//! Asking a Prometheus server: HTTP/1.0 without TLS, for servers of this machine or network.

use forebay_units::Nanos;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// No answer is longer.
const ANSWER_BYTES_MAX: usize = 16 << 20;

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Data {
    result: Found,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Found {
    /// (seconds since 1970, the number as a text).
    Scalar(IgnoredAny, String),
    Vector(Vec<Series>),
}

#[derive(Deserialize)]
struct Series {
    /// Its labels.
    #[serde(default)]
    metric: BTreeMap<String, String>,
    /// (seconds since 1970, the number as a text); none of a native histogram.
    #[serde(default)]
    value: Option<(f64, String)>,
}

impl Series {
    /// What it is then.
    fn number(&self, query: &str) -> Result<f64, String> {
        let (_, text) =
            self.value.as_ref().ok_or_else(|| format!("`{query}` has no samples that are numbers"))?;
        let value: f64 = text.parse().map_err(|_| format!("`{query}` is `{text}`, expected a number"))?;
        if !value.is_finite() {
            return Err(format!("`{query}` is `{text}`, expected a number"));
        }
        Ok(value)
    }
}

/// What is asked of one server for one volume, one query after the other, within a time for all of them.
pub(super) struct Inquiry<'a> {
    url: &'a str,
    within: Duration,
    deadline: Instant,
    /// How many are asked, and how many were answered, however.
    queries: usize,
    answered: Cell<usize>,
}

impl<'a> Inquiry<'a> {
    /// One that begins now.
    pub(super) fn new(url: &'a str, within: Duration, queries: usize) -> Inquiry<'a> {
        Inquiry { url, within, deadline: Instant::now() + within, queries, answered: Cell::new(0) }
    }

    fn get(&self, path: &str) -> Result<Answered, String> {
        let answer = get(self.url, path, self.deadline).map_err(|error| match error {
            Unanswered::Late => format!(
                "it does not answer in time: {} of {} queries were answered within {}, which all of a volume's have together",
                self.answered.get(),
                self.queries,
                Nanos(self.within.as_nanos() as u64)
            ),
            Unanswered::Failed(reason) => reason,
        })?;
        self.answered.set(self.answered.get() + 1);
        Ok(answer)
    }
}

/// The number of the one series of `query` at `at_s`.
pub(super) fn number(of: &Inquiry<'_>, query: &str, at_s: f64) -> Result<f64, String> {
    let series = series(of, query, at_s)?;
    let [one] = &series[..] else {
        return Err(match series.len() {
            0 => format!(
                "`{query}` has no series now, expected one: it is not scraped any more, or goes by another name"
            ),
            several => format!("`{query}` has {several} series, expected one"),
        });
    };
    one.number(query)
}

/// Each bucket of the one histogram of `query` at `at_s`: (its label `le` in seconds, how many are at most as long), ascending. The last one is that of all.
pub(super) fn buckets(of: &Inquiry<'_>, query: &str, at_s: f64) -> Result<Vec<(f64, f64)>, String> {
    let mut buckets = Vec::new();
    for series in series(of, query, at_s)? {
        let edge = series.metric.get("le").and_then(|edge| edge.parse::<f64>().ok());
        let Some(edge) = edge.filter(|edge| !edge.is_nan()) else {
            let labels = series
                .metric
                .get("le")
                .map_or("without the label `le`".to_owned(), |le| format!("of `le=\"{le}\"`"));
            return Err(format!("`{query}` has a series {labels}, expected the buckets of a histogram"));
        };
        buckets.push((edge, series.number(query)?));
    }
    buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    if let Some([(edge, _), _]) = buckets.array_windows::<2>().find(|[(one, _), (next, _)]| one == next) {
        return Err(format!("`{query}` has several series of `le=\"{edge}\"`, expected one histogram's"));
    }
    if buckets.last().is_none_or(|(edge, _)| edge.is_finite()) {
        let count = buckets.len();
        return Err(format!(
            "`{query}` has {count} series and none of `le=\"+Inf\"`, expected the buckets of a histogram"
        ));
    }
    Ok(buckets)
}

/// The series that `query` has at `at_s`. The server itself says which have ended: of those of a while, as of a range of time, one that ended would be taken for
/// one that goes on, with samples that get older and older, and beside its successor for one of two.
fn series(of: &Inquiry<'_>, query: &str, at_s: f64) -> Result<Vec<Series>, String> {
    let path = format!("/api/v1/query?query={}&time={at_s:.3}", forebay_actuate::api::encoded(query));
    let of_query = |error: String| format!("of `{query}`: {error}");
    Ok(match ask(of, &path).map_err(of_query)? {
        Some(Found::Vector(series)) => series,
        Some(Found::Scalar(_, text)) => vec![Series { metric: BTreeMap::new(), value: Some((at_s, text)) }],
        None => Vec::new(),
    })
}

/// What time the server has, in seconds since 1970.
pub(super) fn time_of(of: &Inquiry<'_>) -> Result<f64, String> {
    match ask(of, "/api/v1/query?query=time()")? {
        Some(Found::Scalar(_, text)) => {
            text.parse().map_err(|_| format!("its time is `{text}`, expected seconds since 1970"))
        }
        None | Some(Found::Vector(_)) => Err("it does not say what time it has".to_owned()),
    }
}

/// Where a Prometheus server is asked.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::fleet) struct Server<'a> {
    /// Its name or address; one of IPv6 in brackets.
    host: &'a str,
    port: u16,
    /// Of its paths: empty, or a path without a slash at its end.
    prefix: &'a str,
}

impl<'a> Server<'a> {
    /// # Errors
    /// What `url` is, if nobody can be asked there; never with any of it, since it may hold a password.
    pub(in crate::fleet) fn of(url: &'a str) -> Result<Server<'a>, &'static str> {
        let rest = url.strip_prefix("http://").ok_or("another kind of address")?;
        if rest.contains('@') {
            return Err("another kind of address");
        }
        if rest.contains(|one: char| one.is_whitespace() || one.is_control() || "?#\\\"".contains(one)) {
            return Err("an address with a blank, a `?`, a `#`, a `\\` or a `\"`");
        }
        let (place, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let name_ends = if place.starts_with('[') { place.find(']').map_or(0, |at| at + 1) } else { 0 };
        let (host, port) = match place[name_ends..].rfind(':') {
            Some(at) => (&place[..name_ends + at], Some(&place[name_ends + at + 1..])),
            None => (place, None),
        };
        let is_name = |host: &str| {
            !host.is_empty() && host.bytes().all(|one| one.is_ascii_alphanumeric() || b"-._".contains(&one))
        };
        let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inside) => inside.parse::<Ipv6Addr>().is_ok(),
            None => is_name(host),
        };
        if !is_host {
            return Err("an address without a host, or with one that is no name and no IP address");
        }
        let port = port.map_or(Some(80), |port| port.parse().ok().filter(|port| *port > 0));
        let port = port.ok_or("an address with a port that is no number from 1 to 65535")?;
        Ok(Server { host, port, prefix: prefix.trim_end_matches('/') })
    }
}

/// A host as it is looked up.
fn name_of(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn ask(of: &Inquiry<'_>, path: &str) -> Result<Option<Found>, String> {
    let Answered { status, leads_to, body } = of.get(path)?;
    let is_good = status.starts_with('2');
    let answers = if is_good { String::new() } else { format!("it answers {status}: ") };
    // Errors are told in JSON, too.
    if body.starts_with('{') {
        let answer: Answer = serde_json::from_str(&body)
            .map_err(|error| format!("{answers}its answer is not understood: {error}"))?;
        return match (&*answer.status, answer.error) {
            ("success", _) => Ok(answer.data.map(|data| data.result)),
            (_, Some(error)) => Err(format!("{answers}{error}")),
            (said, None) => Err(format!("{answers}it says `{said}`")),
        };
    }
    let what = match (&*status, leads_to) {
        (_, Some(place)) => format!("go to `{}`", shown(&place)),
        ("401" | "403", _) => {
            return Err(format!(
                "{answers}it asks who is there, expected one that answers this machine without"
            ));
        }
        _ if body.trim_start().starts_with('<') => "a page of HTML".to_owned(),
        _ => format!("`{}`", shown(body.trim())),
    };
    let answers = if is_good { format!("it answers {status}: ") } else { answers };
    Err(format!("{answers}{what}, expected the JSON of a Prometheus server: is that where `url` leads?"))
}

/// The beginning of what a stranger says.
fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 100;
    let beginning: String = text.chars().take(SHOWN_MAX).collect();
    let rest = if beginning.len() < text.len() { "..." } else { "" };
    format!("{}{rest}", beginning.escape_debug())
}

/// What a look-up found, or why it found nothing.
type Addresses = Result<Vec<SocketAddr>, String>;
/// By name and port.
type LookUps = BTreeMap<(String, u16), Vec<SyncSender<Addresses>>>;

/// Who waits for the look-up of a name and port that is under way: there is one at a time of each, however many ask for it and give up.
static LOOK_UPS: Mutex<LookUps> = Mutex::new(BTreeMap::new());

/// The addresses of a name, at most so much later. The system's look-up cannot be told how long to take: a server of names that does not answer would hold up everybody whom the controller hears of.
fn addresses(host: &str, port: u16, within: Duration) -> std::io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let (found, finds) = mpsc::sync_channel(1);
    let key = (host.to_owned(), port);
    let mut look_ups = look_ups();
    let waiting = look_ups.entry(key.clone()).or_default();
    waiting.push(found);
    if waiting.len() == 1 {
        let looks = thread::Builder::new().name("look-up".to_owned()).spawn(move || look_up(&key));
        if let Err(error) = looks {
            look_ups.remove(&(host.to_owned(), port));
            return Err(error);
        }
    }
    drop(look_ups);
    let late = || format!("the address of `{host}` was not found in time");
    finds.recv_timeout(within).unwrap_or_else(|_| Err(late())).map_err(std::io::Error::other)
}

fn look_up(key: &(String, u16)) {
    let found = (key.0.as_str(), key.1).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let found = found.map_err(|error| error.to_string());
    for waits in look_ups().remove(key).unwrap_or_default() {
        // Nobody is there any more where it took too long.
        let _ = waits.send(found.clone());
    }
}

fn look_ups() -> MutexGuard<'static, LookUps> {
    LOOK_UPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection with the first of these that takes one.
fn connect(addresses: Vec<SocketAddr>, deadline: Instant) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("its name has no address");
    let count = addresses.len() as u32;
    for (address, untried) in addresses.into_iter().zip((1..=count).rev()) {
        // One that does not answer leaves time for the others.
        let left = deadline.saturating_duration_since(Instant::now()) / untried;
        match TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What a server answered.
struct Answered {
    /// HTTP's: three digits.
    status: String,
    /// Where it sends who asks, if it does.
    leads_to: Option<String>,
    body: String,
}

/// Why it did not.
#[derive(Debug)]
enum Unanswered {
    /// The time is over.
    Late,
    Failed(String),
}

fn get(url: &str, path: &str, deadline: Instant) -> Result<Answered, Unanswered> {
    let unfit = |found| Unanswered::Failed(format!("its `url` is {found}, expected an `http://` address"));
    let Server { host, port, prefix } = Server::of(url).map_err(unfit)?;
    let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let talk = || -> std::io::Result<Vec<u8>> {
        let mut stream = connect(addresses(name_of(host), port, left())?, deadline)?;
        stream.set_write_timeout(Some(left()))?;
        let mut request = String::new();
        let _ = write!(
            request,
            "GET {prefix}{path} HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: application/json\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let (mut answer, mut piece) = (Vec::new(), [0; 16 << 10]);
        while answer.len() < ANSWER_BYTES_MAX {
            // The timeout is that of one read: who says a word now and then has no more time than all.
            if Instant::now() >= deadline {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left()))?;
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => answer.extend_from_slice(&piece[..length]),
                // A socket with a timeout says so when the process was stopped and goes on.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(answer)
    };
    let answer = talk().map_err(|error| match error.kind() {
        // What Linux calls it when a socket's time is over.
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => Unanswered::Late,
        _ => Unanswered::Failed(format!("it does not answer: {error}")),
    })?;
    let text = String::from_utf8_lossy(&answer);
    let no_http = || {
        let said = shown(&text);
        Unanswered::Failed(format!("it does not speak HTTP: it says `{said}`, expected `HTTP/1.1 200 OK`"))
    };
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(no_http)?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or_else(no_http)?.to_owned();
    let leads_to = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
    });
    let leads_to = leads_to.filter(|_| status.starts_with('3'));
    Ok(Answered { status, leads_to, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn what_is_no_address_is_found_before_anybody_is_asked() {
        let server = |host, port, prefix| Ok(Server { host, port, prefix });
        for (url, expected) in [
            ("http://127.0.0.1:9090", server("127.0.0.1", 9090, "")),
            ("http://metrics.example/", server("metrics.example", 80, "")),
            ("http://metrics:9090/prometheus/", server("metrics", 9090, "/prometheus")),
            ("http://[::1]", server("[::1]", 80, "")),
            ("http://[fd00::1]:9090/p/q", server("[fd00::1]", 9090, "/p/q")),
        ] {
            assert_eq!(Server::of(url), expected, "{url}");
        }
        let (kind, host) = (
            "another kind of address",
            "an address without a host, or with one that is no name and no IP address",
        );
        let port = "an address with a port that is no number from 1 to 65535";
        let blank = "an address with a blank, a `?`, a `#`, a `\\` or a `\"`";
        for (url, found) in [
            ("https://127.0.0.1:9090", kind),
            ("127.0.0.1:9090", kind),
            ("http://user:password@127.0.0.1:9090", kind),
            ("http://", host),
            ("http:///prometheus", host),
            ("http://:9090", host),
            ("http://::1", host),
            ("http://[::1", host),
            ("http://[metrics]:9090", host),
            ("http://127.0.0.1:", port),
            ("http://127.0.0.1:0", port),
            ("http://127.0.0.1:99999", port),
            ("http://127.0.0.1:http", port),
            ("http://127.0.0.1:9090 ", blank),
            ("http://127.0.0.1:9090/?x=1", blank),
            ("http://127.0.0.1:9090\r\nHost: x", blank),
        ] {
            assert_eq!(Server::of(url), Err(found), "{url}");
        }
    }

    #[test]
    fn a_server_that_says_a_word_now_and_then_is_not_listened_to_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // What is not read would end the connection with an error.
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            let words = ["HTTP/1.0 200 OK\r\n\r\n"].into_iter().chain(std::iter::repeat_n(" ", 100));
            for word in words.chain(["{}"]) {
                if stream.write_all(word.as_bytes()).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        let of = Inquiry::new(&url, Duration::from_millis(300), 9);
        of.answered.set(4);
        let error = number(&of, "up", 20.0).unwrap_err();
        let late = "of `up`: it does not answer in time: 4 of 9 queries were answered within 300ms, which all of a volume's have together";
        assert_eq!(error, late);
        server.join().unwrap();
    }

    #[test]
    fn a_server_is_asked_and_what_it_says_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = [
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[20.0,"42"]}]}}"#,
            r#"{"status":"success","data":{"resultType":"scalar","result":[20.0,"43"]}}"#,
            r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#,
            r#"{"status":"success","data":{"result":[{"value":[20.0,"1"]},{"value":[20.0,"2"]}]}}"#,
            r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#,
            r#"{"status":"success","data":{"result":[{"value":[1.0,"NaN"]}]}}"#,
            "<html>",
            r#"{"status":"success","data":{"result":[
                {"metric":{"le":"+Inf"},"value":[2.0,"9"]},{"metric":{"le":"0.005"},"value":[2.0,"7"]}
            ]}}"#,
            r#"{"status":"success","data":{"result":[]}}"#,
            r#"{"status":"success","data":{"result":[{"metric":{"op":"read"},"value":[2.0,"7"]}]}}"#,
            r#"{"status":"success","data":{"result":[{"metric":{"le":"x"},"value":[2.0,"7"]}]}}"#,
            r#"{"status":"success","data":{"result":[{"metric":{"le":"1"},"value":[2.0,"7"]}]}}"#,
            r#"{"status":"success","data":{"result":[
                {"metric":{"le":"+Inf","volume":"a"},"value":[2.0,"7"]},{"metric":{"le":"+Inf","volume":"b"},"value":[2.0,"7"]}
            ]}}"#,
            r#"{"status":"success","data":{"result":[{"metric":{"le":"+Inf"},"histogram":[2.0,{}]}]}}"#,
        ];
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let length = stream.read(&mut request).unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                assert!(
                    request.starts_with("GET /api/v1/query?query=a%7Bb%3D%221%22%7D&time=20.000 "),
                    "{request}"
                );
                write!(stream, "HTTP/1.0 200 OK\r\n\r\n{answer}").unwrap();
            }
        });
        let of = Inquiry::new(&url, Duration::from_secs(5), 99);
        let ask = || number(&of, "a{b=\"1\"}", 20.0);
        assert_eq!(ask(), Ok(42.0));
        assert_eq!(ask(), Ok(43.0));
        // Of what ended a while ago nothing is told, by the server itself.
        assert!(ask().unwrap_err().starts_with("`a{b=\"1\"}` has no series now, expected one: "));
        assert_eq!(ask().unwrap_err(), "`a{b=\"1\"}` has 2 series, expected one");
        assert_eq!(ask().unwrap_err(), "of `a{b=\"1\"}`: parse error");
        assert!(ask().unwrap_err().contains("expected a number"));
        let page = "it answers 200: a page of HTML, expected the JSON of a Prometheus server";
        let error = ask().unwrap_err();
        assert!(error.contains(page), "{error}");
        let ask = || buckets(&of, "a{b=\"1\"}", 20.0);
        assert_eq!(ask(), Ok(vec![(0.005, 7.0), (f64::INFINITY, 9.0)]));
        for told in [
            "has 0 series and none of `le=\"+Inf\"`",
            "has a series without the label `le`",
            "has a series of `le=\"x\"`",
            "has 1 series and none of `le=\"+Inf\"`",
            "has several series of `le=\"inf\"`, expected one histogram's",
            "has no samples that are numbers",
        ] {
            let error = ask().unwrap_err();
            assert!(error.contains(told), "{error}, expected {told}");
        }
        server.join().unwrap();
        let refused = |url| time_of(&Inquiry::new(url, Duration::from_millis(300), 1)).unwrap_err();
        assert!(refused("http://127.0.0.1:1").contains("does not answer"));
        assert!(refused("https://a").contains("another kind of address"));
    }

    #[test]
    fn who_answers_something_else_is_told_with_what_it_says() {
        let json = r#"{"status":"error","errorType":"unavailable","error":"TSDB not ready"}"#;
        let long = "x".repeat(200);
        for (answer, told) in [
            (format!("HTTP/1.1 503 Service Unavailable\r\n\r\n{json}"), "it answers 503: TSDB not ready"),
            (
                "HTTP/1.1 503 No\r\n\r\nnot yet\n".to_owned(),
                "it answers 503: `not yet`, expected the JSON of",
            ),
            (
                "HTTP/1.1 302 Found\r\nlocation: https://there/p\r\n\r\n<a>".to_owned(),
                "it answers 302: go to `https://there/p`, expected the JSON of",
            ),
            (
                "HTTP/1.1 404 No\r\n\r\n<html>".to_owned(),
                "it answers 404: a page of HTML, expected the JSON of",
            ),
            (
                "HTTP/1.1 401 No\r\n\r\n<html>".to_owned(),
                "it answers 401: it asks who is there, expected one that",
            ),
            (format!("HTTP/1.1 200 OK\r\n\r\n{long}"), "xxx...`, expected the JSON of"),
            ("HTTP/1.1 500 No\r\n\r\n{}".to_owned(), "it answers 500: its answer is not understood"),
            ("SSH-2.0-x\r\n".to_owned(), "it does not speak HTTP: it says `SSH-2.0-x\\r\\n`, expected"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let error = thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
                    stream.write_all(answer.as_bytes()).unwrap();
                });
                number(&Inquiry::new(&url, Duration::from_secs(5), 1), "up", 20.0).unwrap_err()
            });
            assert!(error.contains(told) && error.starts_with("of `up`: "), "{error}, expected {told}");
        }
    }

    #[test]
    fn all_addresses_of_a_name_are_tried_and_a_number_is_not_looked_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        assert_eq!(connect(vec![nobody, there], deadline).unwrap().peer_addr().unwrap(), there);
        assert!(connect(vec![nobody], deadline).is_err());
        assert!(connect(Vec::new(), deadline).unwrap_err().to_string().contains("no address"));
        // Several who ask for one name at once share its look-up.
        let found = thread::scope(|scope| {
            let asks = || addresses("localhost", 81, Duration::from_secs(10)).unwrap();
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(asks)).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(found.iter().all(|of| !of.is_empty() && *of == found[0]), "{found:?}");
        // At once: without a thread, and without time for one.
        assert_eq!(addresses("::1", 80, Duration::ZERO).unwrap(), ["[::1]:80".parse().unwrap()]);
        assert!(
            addresses("localhost", 80, Duration::from_secs(10))
                .unwrap()
                .iter()
                .all(|address| address.ip().is_loopback())
        );
    }
}
