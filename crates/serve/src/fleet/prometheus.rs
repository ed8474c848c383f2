//! A Prometheus server as a source: counters by `query_range`, differences of which are intervals.
//!
//! It knows no histograms of single requests and no locality: a volume that only it tells of can be judged, and no cache is sized for it.
//! HTTP/1.0 without TLS, for servers of this machine or network.

use super::tables::PrometheusTable;
use forebay_control::{VolumeId, VolumeObservation};
use forebay_units::Nanos;
use forebay_workload::LatencyHistogram;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// No answer is longer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// What is asked for is so long ago: samples that are taken together do not come in together (ours).
const SETTLED_S: f64 = 0.2;
/// Requests per second above which a counter is taken to have jumped (ours: no volume completes as many).
const RATE_MAX: f64 = 1e8;

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
    Matrix(Vec<Series>),
}

#[derive(Deserialize)]
struct Series {
    /// (seconds since 1970, the number as a text).
    values: Vec<(f64, String)>,
}

/// Counters at an instant, in the order of [`Counters::of`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counters {
    at_s: f64,
    reads: f64,
    read_seconds: f64,
    writes: f64,
    write_seconds: f64,
}

impl Counters {
    /// Asks for the newest of each, at most `span_s` old; they are as old as the sample of the reads is. An expression is taken to be of the moment.
    /// By the server's clock: that of this machine may be set, and what was true an hour ago would be taken for what is.
    pub(super) fn ask(table: &PrometheusTable, span_s: f64, within: Duration) -> Result<Counters, String> {
        let deadline = Instant::now() + within;
        let now_s = time_of(&table.url, deadline)? - SETTLED_S;
        let query = |query: &str| newest(&table.url, query, now_s, span_s, deadline);
        let optional = |of: &Option<String>| of.as_deref().map_or(Ok(0.0), query);
        // What is told is as of when it is asked, and stays the same from sample to sample: only the server knows of when it is.
        let at_s = query(&format!("timestamp({})", table.reads))?;
        let reads = query(&table.reads)?;
        let read_seconds = query(&table.read_seconds)?;
        let (writes, write_seconds) = (optional(&table.writes)?, optional(&table.write_seconds)?);
        Ok(Counters { at_s, reads, read_seconds, writes, write_seconds })
    }

    /// What happened since `before`, which was asked for `asked_s` ago; `None` while there is nothing new. Samples are at most `oldest_s` old.
    ///
    /// # Errors
    /// What cannot be so: counters that went back, or that jumped, and samples of times that cannot have come.
    pub(super) fn since(
        &self,
        before: &Counters,
        asked_s: f64,
        oldest_s: f64,
        id: VolumeId,
    ) -> Result<Option<(VolumeObservation, Nanos)>, &'static str> {
        let span_s = self.at_s - before.at_s;
        if span_s < 0.0 || span_s > asked_s + oldest_s {
            return Err("the clock of its samples was set");
        }
        if span_s == 0.0 {
            return Ok(None);
        }
        let (reads, writes) = (self.reads - before.reads, self.writes - before.writes);
        let (read_s, write_s) =
            (self.read_seconds - before.read_seconds, self.write_seconds - before.write_seconds);
        if [reads, writes, read_s, write_s].iter().any(|difference| *difference < 0.0) {
            return Err("its counters began anew");
        }
        // NaN is refused with the rest.
        if !((reads + writes) / span_s <= RATE_MAX && read_s + write_s < 1e9) {
            return Err("its counters jumped");
        }
        let span = Nanos::from_secs_f64(span_s);
        let latencies = |count: f64, seconds: f64| {
            let mut all = LatencyHistogram::new();
            if count >= 1.0 {
                all.record_many(Nanos::from_secs_f64(seconds / count), count.round() as u64);
            }
            all.snapshot()
        };
        let seen = VolumeObservation {
            arrivals: (reads + writes).round() as u64,
            misses: latencies(reads, read_s),
            writes: latencies(writes, write_s),
            // By Little's law; how long nobody waited is not known.
            outstanding_max: ((read_s + write_s) / span_s).ceil().min(1e6) as u32,
            idle: Nanos((span.0 as f64 * (1.0 - (read_s + write_s) / span_s).max(0.0)) as u64),
            ..VolumeObservation::idle(id, span)
        };
        Ok(Some((seen, span)))
    }
}

/// The newest sample of the one series of `query`.
fn newest(url: &str, query: &str, now_s: f64, span_s: f64, deadline: Instant) -> Result<f64, String> {
    let step_s = (span_s / 10.0).max(0.1);
    let path = format!(
        "/api/v1/query_range?query={}&start={:.3}&end={now_s:.3}&step={step_s:.3}",
        forebay_actuate::api::encoded(query),
        now_s - span_s,
    );
    let series = match ask(url, &path, deadline)? {
        Some(Found::Matrix(series)) => series,
        None | Some(Found::Scalar(..)) => Vec::new(),
    };
    let [one] = &series[..] else {
        return Err(format!("`{query}` has {} series, expected one", series.len()));
    };
    let (_, text) = one.values.last().ok_or_else(|| format!("`{query}` has no samples"))?;
    let value: f64 = text.parse().map_err(|_| format!("`{query}` is `{text}`, expected a number"))?;
    if !value.is_finite() {
        return Err(format!("`{query}` is `{text}`, expected a number"));
    }
    Ok(value)
}

/// What time the server has, in seconds since 1970.
fn time_of(url: &str, deadline: Instant) -> Result<f64, String> {
    match ask(url, "/api/v1/query?query=time()", deadline)? {
        Some(Found::Scalar(_, text)) => {
            text.parse().map_err(|_| format!("its time is `{text}`, expected seconds since 1970"))
        }
        None | Some(Found::Matrix(_)) => Err("it does not say what time it has".to_owned()),
    }
}

fn ask(url: &str, path: &str, deadline: Instant) -> Result<Option<Found>, String> {
    let body = get(url, path, deadline)?;
    let answer: Answer =
        serde_json::from_str(&body).map_err(|error| format!("its answer is not understood: {error}"))?;
    if answer.status != "success" {
        return Err(answer.error.unwrap_or_else(|| format!("it says `{}`", answer.status)));
    }
    Ok(answer.data.map(|data| data.result))
}

fn get(url: &str, path: &str, deadline: Instant) -> Result<String, String> {
    let rest = url.strip_prefix("http://").ok_or_else(|| format!("`{url}` is no `http://` address"))?;
    let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let talk = || -> std::io::Result<Vec<u8>> {
        let address = address.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| std::io::Error::other("its name has no address"))?;
        let mut stream = TcpStream::connect_timeout(&address, left())?;
        stream.set_write_timeout(Some(left()))?;
        let mut request = String::new();
        let slash = if prefix.is_empty() { "" } else { "/" };
        let _ = write!(
            request,
            "GET {slash}{}{path} HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\r\n",
            prefix.trim_end_matches('/')
        );
        stream.write_all(request.as_bytes())?;
        let (mut answer, mut piece) = (Vec::new(), [0; 16 << 10]);
        while answer.len() < ANSWER_BYTES_MAX {
            // The timeout is that of one read: who says a word now and then has no more time than all.
            if Instant::now() >= deadline {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left()))?;
            match stream.read(&mut piece)? {
                0 => break,
                length => answer.extend_from_slice(&piece[..length]),
            }
        }
        Ok(answer)
    };
    let answer = talk().map_err(|error| format!("it does not answer: {error}"))?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or("it does not speak HTTP")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    // Errors are told in JSON, too.
    if status.starts_with('2') || body.starts_with('{') {
        Ok(body.to_owned())
    } else {
        Err(format!("it answers {status}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn counters(at_s: f64, reads: f64, read_seconds: f64) -> Counters {
        Counters { at_s, reads, read_seconds, ..Counters::default() }
    }

    #[test]
    fn differences_are_intervals_and_what_cannot_be_is_said() {
        let before = counters(100.0, 1_000.0, 4.0);
        let since = |after: Counters| after.since(&before, 2.0, 60.0, VolumeId(3));
        // 500 reads in 2 s that took 1 s together: 250/s of 2 ms, half an outstanding request.
        let (seen, span) = since(counters(102.0, 1_500.0, 5.0)).unwrap().unwrap();
        assert_eq!((span, seen.arrivals, seen.misses.mean()), (Nanos::secs(2), 500, Some(Nanos::millis(2))));
        assert_eq!((seen.outstanding_max, seen.idle), (1, Nanos::secs(1)));
        assert_eq!(since(before).map(|seen| seen.is_none()), Ok(true));
        assert_eq!(since(counters(102.0, 3.0, 0.1)).unwrap_err(), "its counters began anew");
        assert_eq!(since(counters(102.0, 1e12, 5.0)).unwrap_err(), "its counters jumped");
        assert_eq!(since(counters(102.0, f64::NAN, 5.0)).unwrap_err(), "its counters jumped");
        // A sample of before may have been a minute old; an hour may not have passed in two seconds, nor a second back.
        assert!(since(counters(161.0, 1_500.0, 5.0)).is_ok_and(|seen| seen.is_some()));
        assert_eq!(since(counters(3_702.0, 1_500.0, 5.0)).unwrap_err(), "the clock of its samples was set");
        assert_eq!(since(counters(99.0, 1_500.0, 5.0)).unwrap_err(), "the clock of its samples was set");
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
        let answer = get(&url, "/", Instant::now() + Duration::from_millis(300));
        assert!(answer.as_ref().is_err_and(|error| error.contains("does not answer")), "{answer:?}");
        server.join().unwrap();
    }

    #[test]
    fn a_server_is_asked_and_what_it_says_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = [
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[10.0,"41"],[11.5,"42"]]}]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#,
            r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#,
            r#"{"status":"success","data":{"result":[{"values":[[1.0,"NaN"]]}]}}"#,
            "<html>",
        ];
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let length = stream.read(&mut request).unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                assert!(
                    request.starts_with("GET /api/v1/query_range?query=a%7Bb%3D%221%22%7D&start="),
                    "{request}"
                );
                write!(stream, "HTTP/1.0 200 OK\r\n\r\n{answer}").unwrap();
            }
        });
        let ask = || newest(&url, "a{b=\"1\"}", 20.0, 10.0, Instant::now() + Duration::from_secs(5));
        assert_eq!(ask(), Ok(42.0));
        assert_eq!(ask().unwrap_err(), "`a{b=\"1\"}` has 0 series, expected one");
        assert_eq!(ask().unwrap_err(), "parse error");
        assert!(ask().unwrap_err().contains("expected a number"));
        assert!(ask().unwrap_err().contains("not understood"));
        server.join().unwrap();
        let deadline = Instant::now() + Duration::from_millis(300);
        assert!(get("http://127.0.0.1:1", "/", deadline).unwrap_err().contains("does not answer"));
        assert!(get("https://a", "/", deadline).unwrap_err().contains("no `http://` address"));
    }
}
