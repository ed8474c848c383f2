//! What is looked up: PRESTO's objects, or blocks of 4 KiB of a recorded volume.

use forebay_sim::RecordedRequest;
use forebay_sim::presto::{Load, Object, Objects};
use forebay_trace::{Operation, ReadOptions, Source, TraceReader};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// As `forebay repro presto --traces` takes them.
const REQUESTS_MIN: usize = 10_000;
const REQUESTS_MAX: usize = 3_000_000;
const VOLUMES_MAX: usize = 6;

/// A look-up of one thing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) at_millis: u32,
    pub(crate) thing: u32,
}

/// What the things are.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// PRESTO's, of two sizes.
    Objects(Objects),
    Blocks,
}

/// All look-ups in order, of things that are numbered as they lie.
#[derive(Clone, Debug)]
pub(crate) struct Looks {
    pub(crate) kind: Kind,
    pub(crate) looks: Vec<Look>,
    /// Where each thing lies, in blocks.
    pub(crate) places: Vec<u64>,
    /// Whether an access looks up two things.
    pub(crate) both: bool,
}

impl Looks {
    /// Both objects of every access, or the large one, as if blocks were of one size.
    pub(crate) fn of_objects(load: &Load, both: bool) -> Looks {
        let things = |access: &forebay_sim::presto::Access| {
            let things = [load.objects.hm1(access.extent), load.objects.hm3(access.extent)];
            let looks = things.map(|object| Look { at_millis: access.at_millis, thing: object.0 });
            looks.into_iter().skip(usize::from(!both))
        };
        // Far from one another, so that no zone has both kinds.
        let place = |thing: u32| {
            let object = Object(thing);
            u64::from(load.objects.extent_of(object)) + (u64::from(thing >= load.objects.extents()) << 40)
        };
        Looks {
            kind: Kind::Objects(load.objects.clone()),
            looks: load.accesses.iter().flat_map(things).collect(),
            places: (0..load.objects.count() as u32).map(place).collect(),
            both,
        }
    }

    /// The blocks of every request.
    pub(crate) fn of_blocks(requests: &[RecordedRequest]) -> Looks {
        let blocks = |request: &RecordedRequest| {
            request.offset / BLOCK_BYTES
                ..=(request.offset + u64::from(request.length).max(1) - 1) / BLOCK_BYTES
        };
        let mut places: Vec<u64> = requests.iter().flat_map(blocks).collect();
        places.sort_unstable();
        places.dedup();
        let first = requests[0].at;
        let look = |request: &RecordedRequest| {
            let at_millis = (request.at.saturating_since(first).0 / 1_000_000) as u32;
            let thing = |block| places.binary_search(&block).expect("it is looked up") as u32;
            blocks(request).map(|block| Look { at_millis, thing: thing(block) }).collect::<Vec<_>>()
        };
        let looks = requests.iter().flat_map(look).collect();
        Looks { kind: Kind::Blocks, looks, places, both: false }
    }

    pub(crate) fn bytes(&self, thing: u32) -> u64 {
        match &self.kind {
            Kind::Objects(objects) => objects.bytes(Object(thing)),
            Kind::Blocks => BLOCK_BYTES,
        }
    }

    /// Milliseconds from the first to the last.
    pub(crate) fn span_millis(&self) -> u32 {
        self.looks.last().map_or(0, |look| look.at_millis)
    }

    /// The first look-up at or after `at_millis`.
    pub(crate) fn position(&self, at_millis: u32) -> usize {
        self.looks.partition_point(|look| look.at_millis < at_millis)
    }
}

/// The busiest volumes of each trace of a folder that has times and enough requests, by name.
pub(crate) fn recorded(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<(String, Vec<RecordedRequest>)> {
    let entries = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot read the folder of traces `{}`: {error}", folder.display()));
    let mut paths: Vec<_> =
        entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let all = |path: &std::path::PathBuf| {
        let volumes = busiest(path).unwrap_or_default();
        volumes
            .into_iter()
            .enumerate()
            .map(|(at, of)| (format!("{}#{at}", name(path)), of))
            .collect::<Vec<_>>()
    };
    paths.iter().filter(|path| wanted(&name(path))).flat_map(all).collect()
}

/// `None` if it is no trace, has no times, or has too few requests of one volume.
fn busiest(path: &Path) -> Option<Vec<Vec<RecordedRequest>>> {
    let source = Source::new(path.display().to_string(), File::open(path).ok()?);
    let mut reader = TraceReader::open(vec![source], &ReadOptions::default()).ok()?;
    if !reader.format().has_time() {
        return None;
    }
    let mut volumes: BTreeMap<u32, Vec<RecordedRequest>> = BTreeMap::new();
    let (mut batch, mut count) = (Vec::new(), 0);
    while count < REQUESTS_MAX && reader.next_batch(&mut batch).ok()? > 0 {
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
    let mut busiest: Vec<_> = volumes.into_values().filter(|volume| volume.len() >= REQUESTS_MIN).collect();
    busiest.sort_by_key(|volume| std::cmp::Reverse(volume.len()));
    busiest.truncate(VOLUMES_MAX);
    // In some traces requests stand where they ended.
    busiest.iter_mut().for_each(|volume| volume.sort_by_key(|request| request.at));
    Some(busiest)
}
