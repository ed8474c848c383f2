//! Telling a trace's format by its first bytes; the name only decides where content cannot.
//!
//! Every format has a test that a line or record passes or not; the format that most of the first ones pass is taken,
//! so that a damaged record is later reported with its place instead of making the whole trace unknown. What looks alike is told apart by
//! what its fields must be: "DiskSim" and "ms-dev" lines differ only in that one counts sectors and the other bytes,
//! which are all multiples of 512. Plain block numbers look like anything and are only believed by name; where they are small, they look
//! like records of libCacheSim whose blocks are used again after billions of requests, and then the name has to say which it is.

use crate::Format;
use crate::format::names;
use crate::formats::{blkparse, forebay, le};
use crate::text::{Fields, decimal_nanos, whole};

/// How much of a source's start detection looks at.
pub const HEAD_BYTES: usize = 64 << 10;

/// How many lines or records are looked at.
const RECORDS_LOOKED_AT: usize = 64;

/// At least two records of vscsi, which are told from others by their versions alone (ours).
const VSCSI_BYTES_MIN: usize = 80;

/// Text has at most one control character in so many bytes; random bytes have one in nine.
const CONTROL_BYTES_SHARE: usize = 32;

/// Lines of ms-dev that must all be multiples of 512 before that is taken for no accident.
const ALIGNED_LINES_MIN: usize = 4;

/// Why the format could not be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DetectError {
    /// There is no content.
    #[error("the trace is empty, so that its format cannot be told; name it with `--format`")]
    Empty,
    /// No format fits.
    #[error(
        "no known trace format fits the content ({content}); tried {}; name it with `--format` if it is one of them",
        names()
    )]
    Unknown {
        /// What the content looks like.
        content: String,
    },
    /// Several formats fit and the name decides for none of them.
    #[error("the content fits several formats ({}) and the name does not say which; name it with `--format`", list(.candidates))]
    Ambiguous {
        /// Those that fit.
        candidates: Vec<Format>,
    },
}

fn list(formats: &[Format]) -> String {
    formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
}

/// Tells the format of the trace that starts with `head` (decompressed, up to [`HEAD_BYTES`] of it); a head shorter
/// than that is taken for the whole trace.
///
/// `name` is the file's name; it only decides between formats that the content fits alike.
///
/// # Errors
/// [`DetectError`] if nothing fits, or several formats do.
pub fn detect(head: &[u8], name: Option<&str>) -> Result<Format, DetectError> {
    if head.is_empty() {
        return Err(DetectError::Empty);
    }
    let name = name.unwrap_or("").rsplit(['/', '\\']).next().unwrap_or("").to_ascii_lowercase();
    if let Some(format) = by_magic(head) {
        return Ok(format);
    }
    let is_text = is_text(head);
    let mut candidates = if is_text { by_lines(head) } else { Vec::new() };
    if candidates.is_empty() {
        candidates = by_records(head);
    }
    match candidates[..] {
        [format] => return Ok(format),
        [] if !is_text && head.len() >= 4 && named(&name, Format::LbnU32Le) => return Ok(Format::LbnU32Le),
        [] => {}
        _ => {
            let by_name: Vec<Format> =
                candidates.iter().copied().filter(|format| named(&name, *format)).collect();
            return match by_name[..] {
                [format] => Ok(format),
                _ => Err(DetectError::Ambiguous { candidates }),
            };
        }
    }
    let content = if is_text {
        let first = head.split(|byte| *byte == b'\n').next().unwrap_or(head);
        format!("text that starts with {}", crate::error::excerpt(first.trim_ascii()))
    } else {
        let first: Vec<String> = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("binary that starts with the bytes {}", first.join(" "))
    };
    Err(DetectError::Unknown { content })
}

/// Whether it looks like text; a few control characters are damage in a text, not a sign of binary content.
fn is_text(head: &[u8]) -> bool {
    let controls = head.iter().filter(|byte| **byte < b' ' && !byte.is_ascii_whitespace()).count();
    controls * CONTROL_BYTES_SHARE <= head.len()
}

/// Whether a file's name speaks for `format`.
fn named(name: &str, format: Format) -> bool {
    let words: &[&str] = match format {
        Format::Disksim => &["disksim", "ssdsim", "mqsim"],
        Format::MsDev => &["ms-dev", "msdev", "msr"],
        Format::LbnU32Le => &["lbn", "u32le"],
        Format::Vscsi => &["vscsi"],
        Format::OracleGeneral => &["oraclegeneral.", "oracle-general."],
        Format::OracleGeneralOpNs => &["opns"],
        _ => &[format.name()],
    };
    // A converted MSR trace is named after both; what it was converted to decides.
    if format == Format::MsDev && named(name, Format::Disksim) {
        return false;
    }
    words.iter().any(|word| name.contains(word))
}

/// Formats that say what they are.
fn by_magic(head: &[u8]) -> Option<Format> {
    if head.starts_with(&forebay::MAGIC) {
        return Some(Format::Forebay);
    }
    if head.len() >= 8 && le!(u64, head, 0) == LCS_MAGIC {
        return Some(Format::Lcs);
    }
    if head.len() >= 4
        && [le!(u32, head, 0), le!(u32, head, 0).swap_bytes()]
            .iter()
            .any(|n| n & 0xffff_ff00 == BLKTRACE_MAGIC)
    {
        return Some(Format::Blktrace);
    }
    if without_mark(head).starts_with(b"fio version ") {
        return Some(Format::FioIolog);
    }
    None
}

/// Text without the byte order mark that may stand before it, which is no part of its first line.
fn without_mark(head: &[u8]) -> &[u8] {
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head)
}

/// LCS starts and ends its header with it.
pub(crate) const LCS_MAGIC: u64 = 0x1234_5678_9abc_def0;
/// The upper 24 bits of the number that starts every blktrace record.
pub(crate) const BLKTRACE_MAGIC: u32 = 0x6561_7400;

/// Binary formats without a magic number that fit: at least three quarters of the first records must be sensible.
fn by_records(head: &[u8]) -> Vec<Format> {
    // Every record of vscsi says its version, which no other record does by accident; a young trace of it (small serial
    // numbers and times) has nothing that could not be a libCacheSim record.
    let is_vscsi = is_vscsi(head);
    if is_vscsi && (head.len() >= VSCSI_BYTES_MIN || is_of_whole_vscsi_records(head)) {
        return vec![Format::Vscsi];
    }
    let mut candidates = libcachesim(head);
    if is_vscsi {
        candidates.push(Format::Vscsi);
    }
    candidates
}

/// From so many requests to the next access on, a record is rather taken for two block numbers (ours): 2^32 is where the second one
/// begins, and no published trace has as many requests.
const NEXT_ACCESS_FAR: i64 = 1 << 32;

/// libCacheSim's formats without a magic number that fit, and plain block numbers where most records of these would be used again only
/// after [`NEXT_ACCESS_FAR`].
fn libcachesim(head: &[u8]) -> Vec<Format> {
    let mut candidates = Vec::new();
    let mut are_near = true;
    // A next access lies ahead or never comes; a record number above 2^40 is no record number.
    let next_is_sensible = |next: i64| next == -1 || next == i64::MAX || (1..1 << 40).contains(&next);
    let next_is_near = |next: i64| next < NEXT_ACCESS_FAR || next == i64::MAX;
    let size_is_sensible = |size: u32| size < 1 << 31;
    if most(head, 24, |record| {
        next_is_sensible(le!(i64, record, 16)) && size_is_sensible(le!(u32, record, 12))
    }) {
        candidates.push(Format::OracleGeneral);
        are_near &= most(head, 24, |record| next_is_near(le!(i64, record, 16)));
    }
    if most(head, 27, |record| {
        next_is_sensible(le!(i64, record, 19)) && size_is_sensible(le!(u32, record, 12)) && record[16] < 32
    }) {
        candidates.push(Format::OracleGeneralOpNs);
        are_near &= most(head, 27, |record| next_is_near(le!(i64, record, 19)));
    }
    if !are_near {
        candidates.push(Format::LbnU32Le);
    }
    candidates
}

/// Whether at least three quarters of the first records of `bytes` bytes are sensible.
fn most(head: &[u8], bytes: usize, sensible: impl Fn(&[u8]) -> bool) -> bool {
    let records = || head.chunks_exact(bytes).take(RECORDS_LOOKED_AT);
    let (all, good) = (records().len(), records().filter(|record| sensible(record)).count());
    all > 0 && good * 4 >= all * 3
}

/// Which version of vscsi `head` holds, by the version in each of its first records.
pub(crate) fn vscsi_version(head: &[u8]) -> Option<u8> {
    let is = |bytes: usize, at: usize, version: u8| most(head, bytes, |record| record[at + 1] == version);
    // Version 2 has its version at 2, version 1 at 14.
    if is(40, 2, 2) {
        Some(2)
    } else if is(32, 14, 1) {
        Some(1)
    } else {
        None
    }
}

fn is_vscsi(head: &[u8]) -> bool {
    let (bytes, at) = match vscsi_version(head) {
        Some(2) => (40, 0),
        Some(_) => (32, 12),
        None => return false,
    };
    // SCSI operation codes are one byte in a field of two.
    most(head, bytes, |record| le!(u16, record, at) < 256)
}

/// Whether there is nothing behind the last record of vscsi, as there is where what looks like one is two of another format.
fn is_of_whole_vscsi_records(head: &[u8]) -> bool {
    vscsi_version(head).is_some_and(|version| head.len().is_multiple_of(if version == 2 { 40 } else { 32 }))
}

/// Text formats that fit: most lines, and at least half of them, must be sensible, headers aside.
fn by_lines(head: &[u8]) -> Vec<Format> {
    let whole_trace = head.len() < HEAD_BYTES;
    let mut lines: Vec<&[u8]> = without_mark(head).split(|byte| *byte == b'\n').collect();
    if !whole_trace && lines.len() > 1 {
        lines.pop();
    }
    let lines: Vec<&[u8]> =
        lines.iter().map(|line| line.trim_ascii()).filter(|line| !line.is_empty()).collect();
    let Some(first) = lines.first() else { return Vec::new() };
    if first.eq_ignore_ascii_case(b"Timestamp,Response,IOType,LUN,Offset,Size") {
        return vec![Format::Systor17];
    }
    if first.starts_with(b"op_time,") {
        return vec![Format::CachelibCsv];
    }
    // The prose of blkreplay's header ends in a line that names the columns.
    if lines.iter().any(|line| is_blkreplay_columns(line)) {
        return vec![Format::Blkreplay];
    }
    let body = if first.starts_with(b"Timestamp,") { &lines[1..] } else { &lines[..] };
    // What blkparse prints behind a short trace has more lines than the trace.
    let end = body.iter().position(|line| blkparse::starts_summary(line)).filter(|end| *end > 0);
    let body = &body[..end.unwrap_or(body.len()).min(RECORDS_LOOKED_AT)];
    if body.is_empty() {
        return Vec::new();
    }
    let scores =
        TEXT_TESTS.map(|(format, sensible)| (format, body.iter().filter(|line| sensible(line)).count()));
    let best = scores.iter().map(|(_, score)| *score).max().unwrap_or(0);
    if best * 2 < body.len() {
        return Vec::new();
    }
    let mut candidates: Vec<Format> =
        scores.iter().filter(|(_, score)| *score == best).map(|(format, _)| *format).collect();
    // Sectors or bytes: bytes are multiples of 512 throughout, and sectors are not, by accident at most at first.
    if candidates.contains(&Format::MsDev) && body.len() >= ALIGNED_LINES_MIN {
        candidates.retain(|format| *format != Format::Disksim);
    }
    candidates
}

/// Whether the line is the one that names blkreplay's columns.
pub(crate) fn is_blkreplay_columns(line: &[u8]) -> bool {
    let mut fields = Fields::new(line);
    [&b"start"[..], b"sector", b"length", b"op"]
        .iter()
        .all(|name| fields.next(b';').is_some_and(|field| field.trim_ascii() == *name))
}

type LineTest = fn(&[u8]) -> bool;

const TEXT_TESTS: [(Format, LineTest); 12] = [
    (Format::Msr, |line| {
        csv::<7>(line)
            .is_some_and(|f| is_msr_type(f[3]) && [f[0], f[4], f[5], f[6]].iter().all(|f| number(f)))
    }),
    (Format::Spc, |line| {
        let mut fields = Fields::new(line);
        let mut next = || fields.next(b',').unwrap_or(b"").trim_ascii();
        number(next()) && number(next()) && number(next()) && is_letter(next(), b"rRwW") && decimal(next())
    }),
    (Format::Alibaba, |line| {
        csv::<5>(line)
            .is_some_and(|f| is_letter(f[1], b"rRwW") && [f[0], f[2], f[3], f[4]].iter().all(|f| number(f)))
    }),
    (Format::Tencent, |line| {
        csv::<5>(line).is_some_and(|f| is_letter(f[3], b"01") && f.iter().all(|f| number(f)))
    }),
    (Format::Systor17, |line| {
        csv::<6>(line).is_some_and(|f| {
            (f[2].is_empty() || is_letter(f[2], b"rRwW"))
                && decimal(f[0])
                && number(f[3])
                && number(f[4])
                && number(f[5])
        })
    }),
    (Format::Blkparse, is_blkparse),
    (Format::Blkreplay, |line| {
        let mut fields = Fields::new(line);
        let mut next = || fields.next(b';').unwrap_or(b"").trim_ascii();
        decimal(next())
            && number(next())
            && number(next())
            && matches!(next(), b"R" | b"W" | b"RA" | b"r" | b"w")
    }),
    (Format::Fiu, |line| {
        // The process's name may hold spaces: what stands behind it is counted from the end.
        let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        let [time, process, _, .., sector, sectors, operation, major, minor, _] = words[..] else {
            return false;
        };
        [time, process, sector, sectors, major, minor].iter().all(|field| number(field))
            && is_letter(operation, b"rRwW")
    }),
    (Format::Disksim, |line| {
        words::<5>(line).is_some_and(|f| decimal(f[0]) && f[1..].iter().all(|f| number(f)))
    }),
    (Format::MsDev, |line| {
        words::<5>(line).is_some_and(|f| {
            let is_bytes = |field: &[u8]| whole(field, "").is_ok_and(|bytes| bytes.is_multiple_of(512));
            decimal(f[0]) && number(f[1]) && is_bytes(f[2]) && is_bytes(f[3]) && is_letter(f[4], b"01")
        })
    }),
    (Format::ArcLis, |line| words::<4>(line).is_some_and(|f| f.iter().all(|f| number(f)))),
    (Format::Lirs, |line| words::<1>(line).is_some_and(|f| number(f[0]) || f[0] == b"*")),
];

fn number(field: &[u8]) -> bool {
    whole(field, "").is_ok()
}

fn decimal(field: &[u8]) -> bool {
    decimal_nanos(field, 1, "").is_ok()
}

fn is_letter(field: &[u8], letters: &[u8]) -> bool {
    matches!(field, [letter] if letters.contains(letter))
}

fn is_msr_type(field: &[u8]) -> bool {
    field.eq_ignore_ascii_case(b"read") || field.eq_ignore_ascii_case(b"write")
}

fn csv<const COUNT: usize>(line: &[u8]) -> Option<[&[u8]; COUNT]> {
    let mut fields = Fields::new(line);
    let mut all = [&b""[..]; COUNT];
    for field in &mut all {
        *field = fields.next(b',')?.trim_ascii();
    }
    fields.next(b',').is_none().then_some(all)
}

fn words<const COUNT: usize>(line: &[u8]) -> Option<[&[u8]; COUNT]> {
    let mut fields = Fields::new(line);
    let mut all = [&b""[..]; COUNT];
    for field in &mut all {
        *field = fields.next_word()?;
    }
    fields.next_word().is_none().then_some(all)
}

/// `maj,min cpu sequence seconds.nanoseconds pid action ...`
fn is_blkparse(line: &[u8]) -> bool {
    let mut fields = Fields::new(line);
    let device = fields.next_word().and_then(csv::<2>);
    let mut next = || fields.next_word().unwrap_or(b"");
    device.is_some_and(|f| number(f[0]) && number(f[1]))
        && number(next())
        && number(next())
        && decimal(next())
        && number(next())
        && next().first().is_some_and(u8::is_ascii_alphabetic)
}
