//! Recorded loads: every trace of a folder that has times and enough requests, the busiest volume of each.

use crate::failure::{Context, Failure};
use crate::input::{self, trace_failure};
use crate::output::say;
use forebay_report::Table;
use forebay_sim::RecordedRequest;
use forebay_trace::{Operation, ReadOptions, TraceReader};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Fewer requests say nothing, and more take too long, so that the first ones are taken (ours).
const REQUESTS_MIN: usize = 10_000;
const REQUESTS_MAX: usize = 300_000;

/// What a folder held.
#[derive(Default)]
pub(super) struct Recorded {
    /// Names and requests.
    pub(super) traces: Vec<(String, Arc<[RecordedRequest]>)>,
    /// Files that were left out, and why.
    pub(super) left_out: Vec<(String, String)>,
}

/// Files that were left out, and why, as a report shows it; `None` where none was.
pub(super) fn left_out_table(left_out: &[(String, String)]) -> Option<Table> {
    let mut table = Table::new(["file", "why"]).with_caption("Left out");
    for (name, reason) in left_out {
        table.push([name, reason]);
    }
    (!left_out.is_empty()).then_some(table)
}

/// Reads the traces of a folder.
pub(super) fn read(folder: &Path) -> Result<Recorded, Failure> {
    let shown = folder.display();
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).context(format_args!("cannot read the folder `{shown}`"))? {
        let path = entry.context(format_args!("cannot read the folder `{shown}`"))?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let mut found = Recorded::default();
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match read_one(path) {
            Ok(Ok(requests)) => found.traces.push((name, requests)),
            Ok(Err(reason)) => found.left_out.push((name, reason)),
            Err(failure) => found.left_out.push((name, failure.message().to_owned())),
        }
    }
    if found.traces.is_empty() {
        for (name, reason) in &found.left_out {
            say(format_args!("left out: {name}: {reason}"));
        }
        return Err(Failure::new(format!(
            "the folder `{shown}` holds no trace with times and enough requests"
        )));
    }
    Ok(found)
}

/// The inner error says why it is left out.
fn read_one(path: &Path) -> Result<Result<Arc<[RecordedRequest]>, String>, Failure> {
    let mut reader = TraceReader::open(input::open(&[path.to_path_buf()])?, &ReadOptions::default())
        .map_err(trace_failure)?;
    if !reader.format().has_time() {
        return Ok(Err("the format has no times".to_owned()));
    }
    let mut volumes: BTreeMap<u32, Vec<RecordedRequest>> = BTreeMap::new();
    let (mut batch, mut count) = (Vec::new(), 0);
    while count < REQUESTS_MAX && reader.next_batch(&mut batch).map_err(trace_failure)? > 0 {
        for request in &batch {
            let writes = match request.operation {
                Operation::Read => false,
                Operation::Write => true,
                _ => continue,
            };
            let Ok(length @ 1..) = u32::try_from(request.length) else { continue };
            let recorded = RecordedRequest { at: request.time, offset: request.offset, length, writes };
            volumes.entry(request.volume.0).or_default().push(recorded);
            count += 1;
        }
    }
    let mut busiest = volumes.into_values().max_by_key(Vec::len).unwrap_or_default();
    if busiest.len() < REQUESTS_MIN {
        return Ok(Err(format!("{} requests of one volume are too few", busiest.len())));
    }
    // In some traces requests stand where they ended: the first may be of a later time than the last.
    busiest.sort_by_key(|request| request.at);
    if busiest[0].at == busiest[busiest.len() - 1].at {
        return Ok(Err("all requests have one time".to_owned()));
    }
    Ok(Ok(busiest.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_stand_in_another_order_are_those_of_their_times() {
        let folder = tempfile::tempdir().unwrap();
        // MSR's layout, in tenths of microseconds: each request 10 ms after the one before, but the latest of all stands first.
        let line =
            |number: u64| format!("{},host,0,Read,{},4096,0\n", 1_000_000 + number * 100_000, number << 12);
        let count = REQUESTS_MIN as u64;
        let lines: String = std::iter::once(count).chain(0..count).map(line).collect();
        std::fs::write(folder.path().join("trace.csv"), lines).unwrap();
        let found = read(folder.path()).unwrap();
        let requests = &found.traces[0].1;
        assert_eq!((requests.len(), requests[0].offset), (REQUESTS_MIN + 1, 0));
        assert!(requests.windows(2).all(|pair| pair[0].at < pair[1].at));
        assert_eq!((requests[REQUESTS_MIN].at - requests[0].at).as_secs_f64(), 100.0);
    }
}
