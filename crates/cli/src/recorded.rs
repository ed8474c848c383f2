//! From the requests of a trace to those that the simulator plays.

use forebay_sim::RecordedRequest;
use forebay_trace::{Operation, Request};

/// More requests of one load than this are refused: they are held in memory, 24 bytes each (ours).
const REQUESTS_MAX: usize = 100_000_000;

/// The request as the simulator plays it, behind `known` others of its load; `None` of what neither reads nor writes a byte. `number` is that of its record, from
/// 1, among those of the trace that could be read.
///
/// # Errors
/// What is wrong with it, in words: it asks for 4 GiB or more, or there are more than can be held.
pub(crate) fn recorded(
    request: &Request,
    known: usize,
    number: u64,
) -> Result<Option<RecordedRequest>, String> {
    let writes = match request.operation {
        Operation::Read => false,
        Operation::Write => true,
        Operation::Flush | Operation::Discard | Operation::Other => return Ok(None),
    };
    if request.length == 0 {
        return Ok(None);
    }
    if known == REQUESTS_MAX {
        return Err(format!("the trace holds more than {REQUESTS_MAX} requests of this volume"));
    }
    let length = u32::try_from(request.length).map_err(|_| {
        format!(
            "record {number} of the trace asks for {} bytes, and a request that is simulated for less than 4GiB: leave it out, or cut it into shorter ones",
            request.length
        )
    })?;
    Ok(Some(RecordedRequest { at: request.time, offset: request.offset, length, writes }))
}
