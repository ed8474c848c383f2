//! One module per format: its field layout, its parser, and its tests. The drivers here turn a parser of one line or
//! of one record into a decoder of a stream, and add the place to its errors.

mod alibaba;
pub(crate) mod blkparse;
mod blkreplay;
mod blktrace;
mod cachelib_csv;
mod disksim;
mod fio_iolog;
mod fiu;
pub(crate) mod forebay;
mod lcs;
mod ms_dev;
mod msr;
mod oracle_general;
mod pages;
mod spc;
mod systor17;
mod tencent;
mod vscsi;

use crate::detect::{HEAD_BYTES, vscsi_version};
use crate::error::{Bad, Position, TraceError};
use crate::input::Input;
use crate::reader::BATCH_REQUESTS;
use crate::state::State;
use crate::{Format, Ids, Operation, ReadOptions, Request};
use forebay_units::BlockSize;

/// Nanoseconds of the units that formats count in.
const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// The sector of all formats that count sectors.
const SECTOR: u64 = 512;

/// `R` or `W` in either case.
#[inline]
fn read_or_write(field: &[u8], name: &str) -> Result<Operation, Bad> {
    match field.trim_ascii() {
        b"R" | b"r" => Ok(Operation::Read),
        b"W" | b"w" => Ok(Operation::Write),
        text => Err(Bad::field(name, text, "`R` or `W`")),
    }
}

/// Turns a source into requests.
pub(crate) trait Decoder: Send {
    /// Appends the next requests to `out` until it holds [`BATCH_REQUESTS`] or somewhat fewer; none at the end.
    fn decode(
        &mut self,
        input: &mut Input,
        state: &mut State,
        out: &mut Vec<Request>,
    ) -> Result<(), TraceError>;
}

/// A format of lines.
pub(crate) trait LineParser: Send {
    /// The request that `line` holds, or `None` for a well-formed line that is none.
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad>;

    /// What is left at the end, if the format holds requests back.
    fn finish(&mut self) -> Result<Option<Request>, Bad> {
        Ok(None)
    }
}

/// The decoder of a format of lines.
struct Lines<P>(P);

impl<P: LineParser> Decoder for Lines<P> {
    fn decode(
        &mut self,
        input: &mut Input,
        state: &mut State,
        out: &mut Vec<Request>,
    ) -> Result<(), TraceError> {
        while out.len() < BATCH_REQUESTS {
            let parsed = match input.next_line()? {
                None => {
                    let finished = self.0.finish();
                    match finished {
                        Ok(Some(request)) => out.push(request),
                        Ok(None) => {}
                        Err(bad) => state.malformed(&input.name, input.line_position(), bad)?,
                    }
                    break;
                }
                // An empty line separates nothing from nothing in all of these formats.
                Some(Ok(line)) if line.trim_ascii().is_empty() => continue,
                Some(line) => line.and_then(|line| self.0.parse(line, state)),
            };
            match parsed {
                Ok(Some(request)) => out.push(request),
                Ok(None) => state.ignored += 1,
                Err(bad) => state.malformed(&input.name, input.line_position(), bad)?,
            }
        }
        Ok(())
    }
}

/// A format of records of one size.
pub(crate) trait RecordParser: Send {
    /// Bytes per record.
    const BYTES: usize;

    /// What a record is called in messages.
    const NAME: &'static str;

    /// Appends what the whole records in `bytes` hold. On an error, what is in `out` was parsed and the number is
    /// that of the record at fault.
    fn parse(&mut self, bytes: &[u8], state: &mut State, out: &mut Vec<Request>) -> Result<(), (usize, Bad)>;
}

/// Appends what `parse` makes of each record of `BYTES` bytes.
#[inline]
fn each_record<const BYTES: usize>(
    bytes: &[u8],
    out: &mut Vec<Request>,
    mut parse: impl FnMut(&[u8; BYTES]) -> Result<Request, Bad>,
) -> Result<(), (usize, Bad)> {
    for (number, record) in bytes.chunks_exact(BYTES).enumerate() {
        let record = record.try_into().expect("chunks have the size asked for");
        out.push(parse(record).map_err(|bad| (number, bad))?);
    }
    Ok(())
}

/// The decoder of a format of records of one size.
struct Records<P>(P);

impl<P: RecordParser> Decoder for Records<P> {
    fn decode(
        &mut self,
        input: &mut Input,
        state: &mut State,
        out: &mut Vec<Request>,
    ) -> Result<(), TraceError> {
        while out.len() < BATCH_REQUESTS {
            let buffered = input.require(P::BYTES)?;
            if buffered.len() < P::BYTES {
                let left = buffered.len();
                if left > 0 {
                    let position = Position::Byte(input.offset());
                    input.consume(left);
                    let expected = format!("{} of {} bytes", P::NAME, P::BYTES);
                    state.malformed(
                        &input.name,
                        position,
                        Bad::new(format!("only {left} bytes at the end"), expected),
                    )?;
                }
                break;
            }
            let count = (buffered.len() / P::BYTES).min(BATCH_REQUESTS - out.len());
            match self.0.parse(&buffered[..count * P::BYTES], state, out) {
                Ok(()) => input.consume(count * P::BYTES),
                Err((number, bad)) => {
                    input.consume(number * P::BYTES);
                    let position = Position::Byte(input.offset());
                    state.malformed(&input.name, position, bad)?;
                    input.consume(P::BYTES);
                }
            }
        }
        Ok(())
    }
}

/// The little-endian number at `at`, which must lie in `bytes`.
macro_rules! le {
    ($type:ty, $bytes:expr, $at:expr) => {{
        const SIZE: usize = std::mem::size_of::<$type>();
        <$type>::from_le_bytes($bytes[$at..$at + SIZE].try_into().expect("the slice has the number's size"))
    }};
}
pub(crate) use le;

/// The decoder of `format` for `input`, whose head it may look at.
pub(crate) fn decoder(
    format: Format,
    input: &mut Input,
    options: &ReadOptions,
) -> Result<Box<dyn Decoder>, TraceError> {
    let stem = crate::source::stem(&input.name).to_owned();
    Ok(match format {
        Format::Forebay => Box::new(forebay::Blocks::new(input.name.clone())),
        Format::Msr => Box::new(Lines(msr::Msr::new())),
        Format::OracleGeneral => Box::new(Records(oracle_general::OracleGeneral::new(stem, options))),
        Format::OracleGeneralOpNs => Box::new(Records(lcs::OpNs::new(options))),
        Format::Lcs => lcs::lcs(input, stem, options)?,
        Format::Spc => Box::new(Lines(spc::Spc::new())),
        Format::Blktrace => Box::new(blktrace::Blktrace::new(options)),
        Format::Blkparse => Box::new(Lines(blkparse::Blkparse::new(options))),
        Format::FioIolog => Box::new(Lines(fio_iolog::FioIolog::new(options))),
        Format::Vscsi => match vscsi_version(input.require(HEAD_BYTES)?) {
            Some(2) => Box::new(Records(vscsi::Vscsi::<2, 40>::new(stem))),
            // A first record that is of neither version is an error of version 1, which is the usual one.
            _ => Box::new(Records(vscsi::Vscsi::<1, 32>::new(stem))),
        },
        Format::Alibaba => Box::new(Lines(alibaba::Alibaba::new())),
        Format::Tencent => Box::new(Lines(tencent::Tencent::new())),
        Format::Systor17 => Box::new(Lines(systor17::Systor17::new())),
        Format::Fiu => Box::new(Lines(fiu::Fiu::new())),
        Format::Blkreplay => Box::new(Lines(blkreplay::Blkreplay::new(stem, options))),
        Format::Disksim => Box::new(Lines(disksim::Disksim::new(input.require(HEAD_BYTES)?, options))),
        Format::MsDev => Box::new(Lines(ms_dev::MsDev::new())),
        Format::ArcLis => Box::new(Lines(pages::ArcLis::new(stem, options))),
        Format::Lirs => Box::new(Lines(pages::Lirs::new(stem, options))),
        Format::LbnU32Le => Box::new(Records(pages::LbnU32Le::new(stem, options))),
        Format::CachelibCsv => Box::new(Lines(cachelib_csv::CachelibCsv::new(stem))),
    })
}

/// Whether times are counted from an epoch, so that the trace's zero is its smallest early time. The other formats
/// count from a start of their own, which is kept.
pub(crate) fn times_are_absolute(format: Format) -> bool {
    match format {
        Format::Msr
        | Format::Blktrace
        | Format::Vscsi
        | Format::Alibaba
        | Format::Tencent
        | Format::Systor17
        | Format::Fiu
        | Format::OracleGeneral
        | Format::OracleGeneralOpNs
        | Format::Lcs
        | Format::CachelibCsv => true,
        Format::Forebay
        | Format::Spc
        | Format::Blkparse
        | Format::FioIolog
        | Format::Blkreplay
        | Format::Disksim
        | Format::MsDev
        | Format::ArcLis
        | Format::Lirs
        | Format::LbnU32Le => false,
    }
}

/// The page of a trace that counts pages or opaque ids.
pub(crate) fn natural_block(format: Format, options: &ReadOptions) -> Option<BlockSize> {
    let has_ids = matches!(format, Format::OracleGeneral | Format::OracleGeneralOpNs | Format::Lcs);
    (format.counts_pages() || has_ids && options.ids != Ids::Sectors).then_some(options.page_size)
}
