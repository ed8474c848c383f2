//! Sources of bytes: named readers, transparently decompressed, archives taken apart. Opens no files.

use crate::TraceError;
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

/// A named stream of bytes, as the edge opened it.
pub struct Source {
    /// The file's name (or path), for messages, for volume names of formats that have none, and as the tie-breaker
    /// of detection.
    pub name: String,
    /// The bytes, compressed or not.
    pub read: Box<dyn Read + Send>,
}

impl Source {
    /// The source `name` with the bytes of `read`.
    pub fn new(name: impl Into<String>, read: impl Read + Send + 'static) -> Source {
        Source { name: name.into(), read: Box::new(read) }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A source whose bytes are the trace's own.
pub(crate) struct Plain {
    pub(crate) name: String,
    /// The outermost encoding that was taken off, for messages; `None` where there was none.
    pub(crate) encoding: Option<&'static str>,
    pub(crate) read: Box<dyn Read + Send>,
}

/// The members of tar archives are held in memory, because per-CPU files must be merged while tar stores them one
/// behind the other; 1 GiB of them at most.
const ARCHIVE_BYTES_MAX: u64 = 1 << 30;
/// And so many (ours): a machine has fewer processors, and each is read through buffers of its own, of some 50 KiB, however short it is.
const MEMBERS_MAX: usize = 4_096;

/// Compressions inside compressions (a `.gz` member of a `.tar.zst`) are taken off to this depth.
const ENCODINGS_MAX: u32 = 4;

/// The most memory that an xz stream may ask for; `xz -9` needs 65 MiB. (zstd's own limit is 128 MiB.)
const XZ_MEMORY_MAX: u64 = 256 << 20;

/// Enough for the magic number of tar at 257..262.
const MAGIC_BYTES: usize = 262;

/// Takes compression off and archives apart.
pub(crate) fn expand(source: Source) -> Result<Vec<Plain>, TraceError> {
    expand_to(source.name, source.read, None, ENCODINGS_MAX)
}

fn expand_to(
    name: String,
    mut read: Box<dyn Read + Send>,
    encoding: Option<&'static str>,
    depth: u32,
) -> Result<Vec<Plain>, TraceError> {
    let mut head = Vec::with_capacity(MAGIC_BYTES);
    let result = (&mut read).take(MAGIC_BYTES as u64).read_to_end(&mut head);
    result.map_err(|error| read_error(&name, encoding, head.len() as u64, error))?;
    let kind = magic(&head).filter(|_| depth > 0);
    let whole: Chain<Cursor<Vec<u8>>, Box<dyn Read + Send>> = Cursor::new(head).chain(read);
    let (encoding_new, read): (&'static str, Box<dyn Read + Send>) = match kind {
        None => return Ok(vec![Plain { name, encoding, read: Box::new(whole) }]),
        Some(Encoding::Tar) => return members(&name, whole, depth),
        Some(Encoding::Gzip) => {
            ("gzip", Box::new(Gzip::Member(Box::new(GzDecoder::new(BufReader::new(whole))))))
        }
        Some(Encoding::Zstd) => (
            "zstd",
            Box::new(
                zstd::stream::read::Decoder::new(whole)
                    .map_err(|error| read_error(&name, Some("zstd"), 0, error))?,
            ),
        ),
        Some(Encoding::Xz) => {
            let stream =
                liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_MAX, liblzma::stream::CONCATENATED)
                    .map_err(|error| read_error(&name, Some("xz"), 0, error.into()))?;
            ("xz", Box::new(liblzma::read::XzDecoder::new_stream(whole, stream)))
        }
        Some(Encoding::Bzip2) => ("bzip2", Box::new(bzip2::read::MultiBzDecoder::new(whole))),
    };
    expand_to(name, read, Some(encoding_new), depth - 1)
}

/// Members of gzip, one behind the other. Zeros behind the last one are no data, as for gzip itself: tapes and devices are filled up with them.
enum Gzip<R> {
    Member(Box<GzDecoder<BufReader<R>>>),
    Between(BufReader<R>),
    End,
}

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // Whatever fails leaves it where it was: an interrupted read is made again.
            let is_over = match self {
                Gzip::Member(member) => match member.read(buffer)? {
                    0 if !buffer.is_empty() => true,
                    count => return Ok(count),
                },
                Gzip::Between(rest) => {
                    let bytes = rest.fill_buf()?;
                    let (all, zeros) = (bytes.len(), bytes.iter().take_while(|byte| **byte == 0).count());
                    rest.consume(zeros);
                    if all == 0 {
                        *self = Gzip::End;
                    }
                    zeros < all
                }
                Gzip::End => return Ok(0),
            };
            if is_over {
                *self = match std::mem::replace(self, Gzip::End) {
                    Gzip::Member(member) => Gzip::Between(member.into_inner()),
                    Gzip::Between(rest) => Gzip::Member(Box::new(GzDecoder::new(rest))),
                    Gzip::End => Gzip::End,
                };
            }
        }
    }
}

/// The regular files of an archive, each expanded in its turn.
fn members(name: &str, read: impl Read, depth: u32) -> Result<Vec<Plain>, TraceError> {
    let corrupt = |error| read_error(name, Some("tar"), 0, error);
    let mut archive = tar::Archive::new(read);
    let mut plain = Vec::new();
    let mut left = ARCHIVE_BYTES_MAX;
    for entry in archive.entries().map_err(corrupt)? {
        let mut entry = entry.map_err(corrupt)?;
        let kind = entry.header().entry_type();
        // `tar --sparse` stores a file with holes as a kind of its own.
        let is_file = kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse();
        if !is_file || entry.size() == 0 {
            continue;
        }
        let member = format!("{name}:{}", String::from_utf8_lossy(&entry.path_bytes()));
        let size = entry.size();
        if size > left {
            return Err(TraceError::ArchiveTooLarge { file: name.to_owned(), limit: ARCHIVE_BYTES_MAX });
        }
        left -= size;
        if plain.len() >= MEMBERS_MAX {
            return Err(TraceError::ArchiveOfTooMany { file: name.to_owned(), limit: MEMBERS_MAX });
        }
        // The size is the archive's claim: grow with what really comes, do not trust it with one allocation.
        let mut content = Vec::new();
        (&mut entry).take(size).read_to_end(&mut content).map_err(corrupt)?;
        if content.len() as u64 != size {
            let error = io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("member `{member}` ends after {} of {size} bytes", content.len()),
            );
            return Err(corrupt(error));
        }
        plain.extend(expand_to(member, Box::new(Cursor::new(content)), Some("tar"), depth - 1)?);
    }
    Ok(plain)
}

/// What [`TraceError`] a failure to read is.
pub(crate) fn read_error(
    name: &str,
    encoding: Option<&'static str>,
    offset: u64,
    error: io::Error,
) -> TraceError {
    let file = name.to_owned();
    match encoding {
        Some(encoding) => TraceError::Corrupt { file, encoding, offset, error },
        None => TraceError::Read { file, offset, error },
    }
}

enum Encoding {
    Gzip,
    Zstd,
    Xz,
    Bzip2,
    Tar,
}

/// The encoding by magic number: RFC 1952 section 2.3.1, RFC 8878 section 3.1.1 (and .2: skippable frames), the .xz
/// format's section 2.1.1.1, bzip2's `BZh` with the level and the block magic, POSIX ustar at 257.
fn magic(head: &[u8]) -> Option<Encoding> {
    match head {
        [0x1f, 0x8b, 8, ..] => Some(Encoding::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Encoding::Zstd),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Encoding::Xz),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Some(Encoding::Bzip2),
        _ if head.get(257..262) == Some(b"ustar") => Some(Encoding::Tar),
        _ => None,
    }
}

/// The name without folders and without the endings of compressions and archives.
pub(crate) fn stem(name: &str) -> &str {
    let mut stem = name.rsplit(['/', '\\', ':']).next().unwrap_or(name);
    while let Some((front, end)) = stem.rsplit_once('.') {
        if front.is_empty()
            || !["gz", "zst", "zstd", "xz", "bz2"].contains(&end.to_ascii_lowercase().as_str())
        {
            break;
        }
        stem = front;
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read_all(source: Source) -> Result<Vec<(String, Vec<u8>)>, String> {
        let mut all = Vec::new();
        for mut plain in expand(source).map_err(|error| error.to_string())? {
            let mut content = Vec::new();
            plain.read.read_to_end(&mut content).map_err(|error| error.to_string())?;
            all.push((plain.name, content));
        }
        Ok(all)
    }

    fn compress(kind: &str, content: &[u8]) -> Vec<u8> {
        match kind {
            "gz" => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(content).unwrap();
                encoder.finish().unwrap()
            }
            "zst" => zstd::encode_all(content, 1).unwrap(),
            "xz" => {
                let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
                encoder.write_all(content).unwrap();
                encoder.finish().unwrap()
            }
            _ => {
                let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                encoder.write_all(content).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    #[test]
    fn every_compression_with_several_streams_behind_each_other() {
        for kind in ["gz", "zst", "xz", "bz2"] {
            let mut bytes = compress(kind, b"first ");
            bytes.extend(compress(kind, b"second"));
            let all = read_all(Source::new("x", Cursor::new(bytes))).unwrap();
            assert_eq!(all, [("x".to_owned(), b"first second".to_vec())], "{kind}");
        }
    }

    #[test]
    fn zeros_behind_gzip_are_no_data_and_anything_else_is_damage() {
        let zeros = vec![0; 100_000];
        let padded = [compress("gz", b"one, "), compress("gz", b"two"), zeros.clone()].concat();
        let all = read_all(Source::new("t.gz", Cursor::new(padded.clone()))).unwrap();
        assert_eq!(all, [("t.gz".to_owned(), b"one, two".to_vec())]);
        // A member behind them is one, however they came there; what is none is told.
        let behind = [padded.clone(), compress("gz", b", three")].concat();
        assert_eq!(read_all(Source::new("t.gz", Cursor::new(behind))).unwrap()[0].1, b"one, two, three");
        assert!(read_all(Source::new("t.gz", Cursor::new([&padded[..], b"tail"].concat()))).is_err());
    }

    /// A read that a signal interrupts is made again, wherever in the stream that was.
    #[test]
    fn interrupted_reads_lose_nothing() {
        struct Interrupted(Cursor<Vec<u8>>, bool);
        impl Read for Interrupted {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.1 = !self.1;
                match self.1 {
                    true => Err(io::ErrorKind::Interrupted.into()),
                    false => self.0.read(&mut buffer[..1]),
                }
            }
        }
        let whole = [compress("gz", b"one, "), vec![0; 3], compress("gz", b"two")].concat();
        let all = read_all(Source::new("t.gz", Interrupted(Cursor::new(whole), false))).unwrap();
        assert_eq!(all[0].1, b"one, two");
    }

    #[test]
    fn a_cut_or_damaged_stream_is_an_error() {
        let content: Vec<u8> = (0..40_000u32).flat_map(|n| (n ^ (n << 7)).to_le_bytes()).collect();
        for kind in ["gz", "zst", "xz", "bz2"] {
            let whole = compress(kind, &content);
            for cut in [whole.len() - 1, whole.len() / 2, 12] {
                let result = read_all(Source::new("x", Cursor::new(whole[..cut].to_vec())));
                assert!(result.is_err(), "{kind} cut at {cut} of {}", whole.len());
            }
            let mut damaged = whole.clone();
            let middle = damaged.len() / 2;
            damaged[middle] ^= 0x55;
            // zstd without a checksum may decode other bytes; then they are not the content.
            let result = read_all(Source::new("x", Cursor::new(damaged)));
            assert!(result.is_err() || result.unwrap()[0].1 != content, "{kind}");
        }
    }

    #[test]
    fn members_of_an_archive_are_sources_of_their_own() {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, content) in
            [("a/sdb.blktrace.0", &b"zero"[..]), ("a/sdb.blktrace.1", &compress("gz", b"one"))]
        {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            builder.append_data(&mut header, name, content).unwrap();
        }
        let archive = builder.into_inner().unwrap();
        let all = read_all(Source::new("t.tar.zst", Cursor::new(compress("zst", &archive)))).unwrap();
        assert_eq!(all[0], ("t.tar.zst:a/sdb.blktrace.0".to_owned(), b"zero".to_vec()));
        assert_eq!(all[1], ("t.tar.zst:a/sdb.blktrace.1".to_owned(), b"one".to_vec()));
        let error = read_all(Source::new("t.tar", Cursor::new(archive[..514].to_vec()))).unwrap_err();
        assert!(error.contains("corrupt tar stream"), "{error}");
    }

    #[test]
    fn an_archive_of_more_members_than_processors_that_any_machine_has_is_refused() {
        let archive = |members: usize| {
            let mut builder = tar::Builder::new(Vec::new());
            for member in 0..members {
                let mut header = tar::Header::new_ustar();
                header.set_size(1);
                header.set_mode(0o644);
                header.set_cksum();
                builder.append_data(&mut header, member.to_string(), &b"x"[..]).unwrap();
            }
            read_all(Source::new("t.tar", Cursor::new(builder.into_inner().unwrap())))
        };
        assert_eq!(archive(MEMBERS_MAX).unwrap().len(), MEMBERS_MAX);
        let error = archive(MEMBERS_MAX + 1).unwrap_err();
        assert!(error.contains("more than 4096 members"), "{error}");
    }

    #[test]
    fn a_file_with_holes_is_a_member_like_any_other() {
        let octal = |number: u64| -> [u8; 12] { format!("{number:011o}\0").as_bytes().try_into().unwrap() };
        let mut header = tar::Header::new_gnu();
        header.set_path("sparse").unwrap();
        header.set_entry_type(tar::EntryType::GNUSparse);
        header.set_size(4);
        let gnu = header.as_gnu_mut().unwrap();
        // A hole of 1 KiB and four bytes.
        (gnu.sparse[0].offset, gnu.sparse[0].numbytes) = (octal(1024), octal(4));
        gnu.realsize = octal(1028);
        header.set_cksum();
        let mut builder = tar::Builder::new(Vec::new());
        builder.append(&header, &b"tail"[..]).unwrap();
        let archive = builder.into_inner().unwrap();
        let all = read_all(Source::new("t.tar", Cursor::new(archive))).unwrap();
        assert_eq!(all, [("t.tar:sparse".to_owned(), [&[0; 1024][..], b"tail"].concat())]);
    }

    #[test]
    fn stems() {
        assert_eq!(stem("/a/b/web.vscsi.zst"), "web.vscsi");
        assert_eq!(stem("x.tar.zst:d/sdb.blktrace.3"), "sdb.blktrace.3");
        assert_eq!(stem(".gz"), ".gz");
    }
}
