//! From the traces that a scenario names to the requests of its loads.

use super::place;
use crate::document::Document;
use crate::failure::Failure;
use crate::input::{self, trace_failure};
use crate::recorded::recorded;
use forebay_sim::scenario::{LoadTable, Scenario, VolumeTable};
use forebay_sim::{RecordedRequest, Traces};
use forebay_trace::{ReadOptions, TraceReader, VolumeIndex};
use std::path::Path;
use std::sync::Arc;

/// Reads the trace of every load that has one.
pub(super) fn read(document: &Document, scenario: &Scenario, folder: &Path) -> Result<Traces, Failure> {
    let mut traces = Traces::new();
    for (at, volume) in scenario.volume.iter().enumerate() {
        for (place, load) in volume.load.iter().enumerate() {
            if let Some(path) = &load.trace {
                let key = format!("volume[{at}].load[{place}].trace");
                let requests = read_one(document, &key, volume, load, &folder.join(path))?;
                traces.insert((at, place), requests);
            }
        }
    }
    Ok(traces)
}

fn read_one(
    document: &Document,
    key: &str,
    volume: &VolumeTable,
    load: &LoadTable,
    path: &Path,
) -> Result<Arc<[RecordedRequest]>, Failure> {
    let options = ReadOptions { page_size: volume.block_size(), ..ReadOptions::default() };
    // What is wrong with a trace is told with who names it; `--format`, of which its hints speak, is not to be had here.
    let placed = |failure: Failure| place::failure(document, key, failure.message());
    let failed = |error| {
        placed(trace_failure(error)).with_hint(
            "`forebay trace convert` makes one that is read here, with `--format` where it is needed",
        )
    };
    let opened = input::open(&[path.to_path_buf()]).map_err(placed)?;
    let mut reader = TraceReader::open(opened, &options).map_err(failed)?;
    if !reader.format().has_time() {
        let message = format!("a {} trace has no times", reader.format());
        return Err(place::failure(document, key, message));
    }
    let mut requests: Vec<RecordedRequest> = Vec::new();
    let mut batch = Vec::new();
    let mut wanted: Option<VolumeIndex> = None;
    let mut records = 0;
    while reader.next_batch(&mut batch).map_err(failed)? > 0 {
        if let Some(name) = &load.trace_volume
            && wanted.is_none()
        {
            wanted = reader.volumes().iter().position(|known| known == name).map(|at| VolumeIndex(at as u32));
        }
        for request in &batch {
            records += 1;
            if load.trace_volume.is_some() && wanted != Some(request.volume) {
                continue;
            }
            let request = recorded(request, requests.len(), records);
            requests.extend(request.map_err(|message| {
                place::failure(document, key, format!("`{}`: {message}", path.display()))
            })?);
        }
    }
    if requests.is_empty() {
        let message = match &load.trace_volume {
            Some(name) => format!("the trace holds no read or write of a volume `{name}`"),
            None => "the trace holds neither a read nor a write".to_owned(),
        };
        return Err(place::failure(document, key, message));
    }
    Ok(requests.into())
}
