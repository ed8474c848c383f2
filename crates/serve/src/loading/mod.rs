//! Loading of caches: whether, what, how fast, and how far it is. Hot zones that the controller names, snapshots of an earlier cache, and what a
//! person asks for go the same way.
//!
//! Wishes come in from anywhere ([`LoadBook`]); a thread of its own reads snapshots, has `control` decide, starts the data path's warm-up, and paces
//! it by what the clients of the same storage feel. It loads nothing itself, and the data path obeys its own rules about what may be
//! inserted: if this thread dies, a warm-up goes on at its last rate.
//!
//! Invariant: a volume has one warm-up at a time; a wish that comes while one runs begins another with what is left out by both: what is
//! cached is skipped.

mod book;

pub use book::LoadChoice;
pub(crate) use book::{LoadBook, LoadState};

use crate::clock::unix_ms;
use crate::config::VolumeConfig;
use crate::daemon::{Shared, remember};
use crate::history::{Batch, DatedDecision};
use crate::snapshots::{Series, SnapshotConfig, StoreError, USED_AGAIN, identity};
use book::{LoadPlan, LoadSpeed, Wish};
use forebay_appliance::CommandError;
use forebay_appliance::volume::{PrewarmPlan, PrewarmProgress, VolumePulse};
use forebay_cache::Insertion;
use forebay_cache::snapshot::{Activity, CHUNK_BLOCKS, Snapshot};
use forebay_control::prewarm::{
    Entry, LoadScore, Look, Pace, ScoreTable, SecondLook, TICK_MS, Takeover, TakeoverInput, TakeoverSkip,
    decide_takeover, keep_best, load_order,
};
use forebay_control::warmup::WarmupRules;
use forebay_control::{Decision, DecisionKind, Fact, VolumeId};
use forebay_units::{BlockRange, BlockSize, ByteRange, Bytes, with_causes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thiserror::Error;

/// A tick of the pace.
const TICK: Duration = Duration::from_millis(TICK_MS);
/// How often wishes are looked for while nothing is loaded.
const IDLE_TICK: Duration = Duration::from_millis(250);
/// The newest snapshots, of which the activity is believed.
const RECENT: usize = 4;

/// Why a cache is not loaded, or not stopped being loaded, on request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PrewarmError {
    /// No snapshots are kept.
    #[error(
        "no snapshots are kept: none of `snapshots.directory`, `snapshots.origin` and `snapshots.database` is set"
    )]
    NoSnapshots,
    /// The volume's quota is 0.
    #[error("volume `{volume}` has no cache that could be loaded: its quota is 0")]
    NoCache {
        /// Which.
        volume: String,
    },
    /// There is no such volume, or its origin is absent.
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Has a volume's cache loaded because a person says so.
pub(crate) fn ask(shared: &Shared, volume: &str, choice: LoadChoice) -> Result<(), PrewarmError> {
    let pulse = shared.appliance.pulse(volume)?;
    if shared.config.snapshots.is_none() {
        return Err(PrewarmError::NoSnapshots);
    }
    if pulse.cache.quota_blocks == 0 {
        return Err(PrewarmError::NoCache { volume: volume.to_owned() });
    }
    shared.books.loads().asked(volume, choice);
    Ok(())
}

/// Stops a volume's warm-up, and what was to follow.
pub(crate) fn cancel(shared: &Shared, volume: &str) -> Result<(), PrewarmError> {
    shared.books.loads().forget(volume);
    let under_way = shared.appliance.pulse(volume)?.prewarm.filter(|progress| progress.ended.is_none());
    shared.appliance.cancel_prewarm(volume)?;
    if let (Some(progress), Some(at)) = (under_way, place_of(shared, volume)) {
        let facts = vec![
            Fact::number("loaded", progress.loaded_bytes.get() as f64, "bytes"),
            Fact::number("remaining", progress.remaining_bytes.get() as f64, "bytes"),
        ];
        let summary = format!("the loading of {volume}'s cache is stopped, as was ordered");
        decided(shared, at, DecisionKind::PrewarmCancelled, summary, facts);
    }
    Ok(())
}

/// Runs until the daemon stops.
pub(crate) fn run(shared: &Shared) {
    let mut loader =
        Loader { running: BTreeMap::new(), left: BTreeMap::new(), unread: BTreeMap::new(), ticks: 0 };
    loop {
        let tick = if loader.running.is_empty() { IDLE_TICK } else { TICK };
        if !shared.sleep_until(Instant::now() + tick) {
            return;
        }
        loader.pace(shared);
        let (wishes, cancelled) = shared.books.loads().take();
        loader.left.retain(|volume, _| !cancelled.contains(volume));
        loader.unread.retain(|volume, _| !cancelled.contains(volume));
        for (volume, wish) in wishes {
            loader.start(shared, &volume, &wish);
        }
        loader.read_again(shared);
        loader.look_again(shared);
    }
}

/// A warm-up that runs.
struct Running {
    pace: Pace,
    /// The volumes that use the same storage, with what they had waited until the last tick: this one among them.
    felt_by: BTreeMap<String, (u64, u64)>,
    /// When the speed was last looked at, and how far it was then.
    measured: (Instant, PrewarmProgress),
}

struct Loader {
    running: BTreeMap<String, Running>,
    left: BTreeMap<String, LeftToItself>,
    /// Wishes whose snapshots could not be read, because of their place.
    unread: BTreeMap<String, Wish>,
    ticks: u64,
}

/// Waits so far, and how long they were.
fn waits(pulse: &VolumePulse) -> (u64, u64) {
    (pulse.counters.waits, pulse.counters.waited_ns)
}

/// The place of a volume in the configuration.
fn place_of(shared: &Shared, volume: &str) -> Option<usize> {
    shared.config.volumes.iter().position(|config| config.name == volume)
}

/// Blocks that were looked for in the cache so far.
fn lookups(pulse: &VolumePulse) -> u64 {
    pulse.cache.hits + pulse.cache.misses
}

impl Loader {
    /// One tick of every warm-up that runs.
    fn pace(&mut self, shared: &Shared) {
        self.ticks += 1;
        let mut pulses: BTreeMap<String, VolumePulse> = BTreeMap::new();
        self.running.retain(|volume, running| {
            let mut pulse = |name: &str| {
                let known = pulses.get(name).copied();
                let pulse = known.or_else(|| shared.appliance.pulse(name).ok())?;
                pulses.insert(name.to_owned(), pulse);
                Some(pulse)
            };
            let (mut count, mut ns) = (0, 0);
            for (name, before) in &mut running.felt_by {
                let Some(pulse) = pulse(name) else { continue };
                let now = waits(&pulse);
                count += now.0.saturating_sub(before.0);
                ns += now.1.saturating_sub(before.1);
                *before = now;
            }
            let Some(progress) = pulse(volume).and_then(|pulse| pulse.prewarm) else { return false };
            if progress.ended.is_some() {
                tracing::info!(volume, ?progress, "loading has ended");
                shared.books.loads().plans.remove(volume);
                return false;
            }
            running.pace.tick(count, ns);
            let rate = Bytes(running.pace.bytes_per_second());
            if progress.bytes_per_second != Some(rate)
                && shared.appliance.set_prewarm_rate(volume, Some(rate)).is_err()
            {
                return false;
            }
            running.measure(shared, volume, progress);
            true
        });
    }

    /// Takes up what snapshots were wished for, once their place answers.
    fn read_again(&mut self, shared: &Shared) {
        let is_unreadable = shared.snapshot_store.as_ref().is_none_or(|store| store.is_unreadable());
        if self.unread.is_empty() || is_unreadable {
            return;
        }
        for (volume, wish) in std::mem::take(&mut self.unread) {
            let is_wanted = {
                let mut loads = shared.books.loads();
                let is_wanted = !loads.cancelled.contains(&volume);
                loads.starting.extend(is_wanted.then(|| volume.clone()));
                is_wanted
            };
            if is_wanted {
                self.start(shared, &volume, &wish);
            }
        }
    }

    /// Decides anew on caches that should have filled themselves by now.
    fn look_again(&mut self, shared: &Shared) {
        let mut due = Vec::new();
        self.left.retain(|volume, left| {
            let Ok(pulse) = shared.appliance.pulse(volume) else { return false };
            match left.look.look(pulse.at, lookups(&pulse)) {
                Look::Wait => true,
                Look::Decide(lookups_per_s) => {
                    let input = TakeoverInput {
                        lookups_per_s,
                        quota_blocks: pulse.cache.quota_blocks.into(),
                        resident_blocks: pulse.cache.resident_blocks.into(),
                        ..left.resumed.input
                    };
                    let takeover = decide_takeover(&input, &left.rules);
                    let mut facts = left.resumed.facts.clone();
                    facts.push(Fact::number("lookups_since", lookups_per_s, "blocks/s"));
                    due.push((
                        volume.clone(),
                        Resumed { input, takeover, facts, ..left.resumed.clone() },
                        left.rules,
                    ));
                    false
                }
                Look::Abandon => false,
            }
        });
        for (volume, resumed, rules) in due {
            // That it is still left to itself is told already.
            if !matches!(resumed.takeover, Takeover::Load { .. }) {
                continue;
            }
            let is_wanted = {
                let mut loads = shared.books.loads();
                let is_wanted = !loads.cancelled.contains(&volume);
                loads.starting.extend(is_wanted.then(|| volume.clone()));
                is_wanted
            };
            if let Some(at) = place_of(shared, &volume).filter(|_| is_wanted) {
                tell(shared, at, &resumed, false);
                self.load(shared, at, &Wish::default(), rules, Some(resumed));
            }
        }
    }

    /// Decides on a wish, and starts what is to be loaded.
    fn start(&mut self, shared: &Shared, volume: &str, wish: &Wish) {
        if wish.snapshots {
            self.left.remove(volume);
            self.unread.remove(volume);
        }
        let Some(at) = place_of(shared, volume) else { return };
        let block_size = shared.config.volumes[at].block_size;
        let mut rules = shared.config.control.rules.warmup;
        wish.choice.apply(&mut rules);
        let mut found = None;
        if let Some(config) = shared.config.snapshots.as_ref().filter(|_| wish.snapshots) {
            match resume(shared, config, volume, block_size, rules, wish.asked) {
                Ok(resumed) => {
                    if let Takeover::Skip(TakeoverSkip::FillsItself { own_s, .. }) = resumed.takeover
                        && let Ok(pulse) = shared.appliance.pulse(volume)
                    {
                        let look = SecondLook::new(own_s, pulse.at, lookups(&pulse));
                        let left = LeftToItself { resumed: resumed.clone(), rules, look };
                        self.left.insert(volume.to_owned(), left);
                    }
                    tell(shared, at, &resumed, wish.asked);
                    found = Some(resumed);
                }
                Err(error) => {
                    // Not by whether it can be read by now: then nobody would take the wish up.
                    if matches!(&error, ResumeError::Unread { source, .. } if !source.is_of_one_volume()) {
                        let wish = Wish { zones: Vec::new(), ..wish.clone() };
                        self.unread.insert(volume.to_owned(), wish);
                    }
                    tracing::warn!(volume, error = with_causes(&error), "snapshots are not looked at");
                }
            }
        }
        self.load(shared, at, wish, rules, found);
    }

    /// Starts to load zones that are wished for, and what is to be loaded of snapshots.
    fn load(
        &mut self,
        shared: &Shared,
        at: usize,
        wish: &Wish,
        rules: WarmupRules,
        resumed: Option<Resumed>,
    ) {
        let (volume, block_size) =
            (shared.config.volumes[at].name.as_str(), shared.config.volumes[at].block_size);
        let mut ranges = wish.zones.clone();
        let mut rate = wish.zones_per_second;
        let mut source = "hot zones";
        let before = resumed.as_ref().map(|resumed| resumed.activity).unwrap_or_default();
        if let Some(Resumed { takeover: Takeover::Load { bytes_per_second, .. }, loads, .. }) = resumed {
            source = if ranges.is_empty() { "snapshots" } else { "hot zones, snapshots" };
            let bytes = |blocks: &BlockRange| {
                ByteRange::new(blocks.first << block_size.shift(), blocks.count() << block_size.shift())
            };
            ranges.extend(loads.iter().map(bytes));
            rate = rate.max(bytes_per_second);
        }
        // Reading snapshots takes its time, and somebody may have thought better of it.
        let is_wished = || shared.books.loads().starting.contains(volume);
        if ranges.is_empty() || !is_wished() {
            return;
        }
        let pace = Pace::new(rate, rules.bytes_per_second_max);
        let plan = PrewarmPlan {
            ranges,
            bytes_per_second: Some(Bytes(pace.bytes_per_second())),
            insertion: if rules.insertion == Entry::Head {
                Insertion::Prewarm
            } else {
                Insertion::PrewarmTail
            },
            own_partition: rules.insertion == Entry::OwnPartition,
        };
        // Known before it begins, so that no snapshot is taken without.
        if shared.config.snapshots.is_some()
            && let Ok(seen) = shared.appliance.observe(volume, false)
        {
            let blocks = plan.blocks(seen.size.get(), block_size).collect();
            let plan = LoadPlan { blocks, block_size, activity: before };
            shared.books.loads().plans.insert(volume.to_owned(), Arc::new(plan));
        }
        if let Err(error) = shared.appliance.prewarm(volume, plan) {
            tracing::error!(volume, %error, "loading does not start");
            shared.books.loads().plans.remove(volume);
            return;
        }
        // Who cancels forgets the wish first: what does not see it here ends what was just started.
        if !is_wished() {
            let _ = shared.appliance.cancel_prewarm(volume);
            return;
        }
        let origin = shared.origins.0[at];
        let of_origin =
            shared.config.volumes.iter().zip(&shared.origins.0).filter(|(_, other)| **other == origin);
        let felt_by = of_origin
            .filter_map(|(config, _)| {
                Some((config.name.clone(), waits(&shared.appliance.pulse(&config.name).ok()?)))
            })
            .collect();
        let Some(progress) = shared.appliance.pulse(volume).ok().and_then(|pulse| pulse.prewarm) else {
            return;
        };
        let measured = (Instant::now(), progress);
        self.running.insert(volume.to_owned(), Running { pace, felt_by, measured });
        shared.books.loads().states.insert(volume.to_owned(), LoadState { source, speed: None });
    }
}

impl Running {
    /// Once a second, how fast it goes.
    fn measure(&mut self, shared: &Shared, volume: &str, progress: PrewarmProgress) {
        let (since, before) = self.measured;
        let span = since.elapsed().as_secs_f64();
        if span < 1.0 {
            return;
        }
        self.measured = (Instant::now(), progress);
        let per_second = |more: Bytes, less: Bytes| more.get().saturating_sub(less.get()) as f64 / span;
        let now = LoadSpeed {
            loaded: per_second(progress.loaded_bytes, before.loaded_bytes),
            done: per_second(before.remaining_bytes, progress.remaining_bytes),
        };
        if let Some(state) = shared.books.loads().states.get_mut(volume) {
            state.speed = Some(state.speed.map_or(now, |before| before.then(now)));
        }
    }
}

/// What was decided on a volume whose cache was left to fill itself.
struct LeftToItself {
    resumed: Resumed,
    rules: WarmupRules,
    look: SecondLook,
}

/// What snapshots come to.
#[derive(Clone)]
struct Resumed {
    input: TakeoverInput,
    takeover: Takeover,
    /// The best first.
    loads: Vec<BlockRange>,
    /// How the cache was used lately.
    activity: Activity,
    facts: Vec<Fact>,
}

/// Why nothing is known of a volume's snapshots.
#[derive(Debug, Error)]
enum ResumeError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("cannot read `{place}`")]
    Unread { place: String, source: Box<StoreError> },
}

/// Reads the snapshots of a volume, scores their blocks, and has it decided what of them is loaded. A person who `asked` gets all there is room for.
fn resume(
    shared: &Shared,
    config: &SnapshotConfig,
    volume: &str,
    block_size: BlockSize,
    mut rules: WarmupRules,
    asked: bool,
) -> Result<Resumed, ResumeError> {
    let seen = shared.appliance.observe(volume, false)?;
    let store = shared.snapshot_store.as_ref().expect("snapshots are configured");
    let now_unix_s = unix_ms().max(0) as u64 / 1000;
    let (identity, of) = (identity(volume, &seen.origin), config.clone());
    let series = store
        .ask_while_serving(shared, move |store| store.read(identity, block_size.bytes(), &of, now_unix_s))
        .map_err(|source| ResumeError::Unread {
            place: config.place.to_string(),
            source: Box::new(source),
        })?;
    let Series { snapshots, refused } = series;
    shared.snapshot_counters.used.fetch_add(snapshots.len() as u64, Ordering::Relaxed);
    shared.snapshot_counters.refused.fetch_add(refused.len() as u64, Ordering::Relaxed);
    for (place, reason) in &refused {
        tracing::warn!(volume, place, reason = with_causes(reason), "a snapshot is refused");
    }
    let activity_of = |snapshots: &[Snapshot]| {
        let each = snapshots.iter().map(|snapshot| snapshot.header().activity);
        each.fold(Activity::default(), Activity::then)
    };
    let hit_ratio_of = |of: &Activity| (of.lookups > 0).then(|| of.hits as f64 / of.lookups as f64);
    let activity = activity_of(&snapshots[snapshots.len().saturating_sub(RECENT)..]);
    let cache = seen.observation.cache;
    let scored = score(rules.score, &snapshots, block_size.blocks_for(seen.size), cache.quota_blocks.into());
    let mut reused = 0;
    if let Some(newest) = snapshots.last() {
        newest.for_each(|_, score| reused += u64::from(score >= USED_AGAIN));
    }
    let input = TakeoverInput {
        blocks: scored.known,
        reused_blocks: reused,
        working_set_blocks: activity.working_set_blocks,
        lookups_per_s: activity.lookups as f64 * 1e3 / activity.span_ms.max(1) as f64,
        hit_ratio: hit_ratio_of(&activity),
        hit_ratio_before: hit_ratio_of(&activity_of(&snapshots)),
        quota_blocks: cache.quota_blocks.into(),
        resident_blocks: cache.resident_blocks.into(),
        block_bytes: block_size.bytes(),
    };
    let mut takeover = decide_takeover(&input, &rules);
    if asked && input.blocks > 0 {
        (rules.hit_ratio_min, rules.spared_min) = (0.0, 0.0);
        let lookups_per_s = input.lookups_per_s.max(1.0);
        let hit_ratio = Some(input.hit_ratio.unwrap_or(0.0));
        takeover = decide_takeover(
            &TakeoverInput { hit_ratio, lookups_per_s, working_set_blocks: 0, ..input },
            &rules,
        );
    }
    let loads = match takeover {
        // Few, and perhaps wanted later.
        Takeover::Skip(TakeoverSkip::FillsItself { blocks, .. }) | Takeover::Load { blocks, .. } => {
            load_order(scored.best, blocks)
        }
        Takeover::Skip(_) => Vec::new(),
    };
    let bytes = |blocks: u64| (blocks << block_size.shift()) as f64;
    let mut facts = vec![
        Fact::number("snapshots", snapshots.len() as f64, ""),
        Fact::number("snapshots_refused", refused.len() as f64, ""),
        Fact::number("known", bytes(input.blocks), "bytes"),
        Fact::number("used_again", bytes(reused), "bytes"),
        Fact::number("working_set", bytes(input.working_set_blocks), "bytes"),
        Fact::number("lookups", input.lookups_per_s, "blocks/s"),
        Fact::number("quota", bytes(input.quota_blocks), "bytes"),
        Fact::text("score", rules.score.name()),
        Fact::text("insertion", rules.insertion.name()),
    ];
    facts.extend(input.hit_ratio.map(|ratio| Fact::number("hit_ratio", ratio, "")));
    if let Some(newest) = snapshots.last() {
        let age_s = unix_ms() as f64 / 1e3 - newest.header().taken_at_unix_s as f64;
        facts.push(Fact::number("newest_age", age_s.max(0.0), "s"));
    }
    Ok(Resumed { input, takeover, loads, activity, facts })
}

/// What is known of a series.
struct Scored {
    /// Blocks that it names.
    known: u64,
    /// The best of them with their scores.
    best: Vec<(f32, u64)>,
}

/// Scores the blocks of a series below `volume_blocks`, and keeps the `most` best: a snapshot takes a few bytes for a run of any length, and may be anybody's. 32 bytes for each that is kept.
fn score(by: LoadScore, snapshots: &[Snapshot], volume_blocks: u64, most: u64) -> Scored {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let turns = if by.counts_used_again() { 2 } else { 1 };
    let mut chunks: BTreeSet<u32> = BTreeSet::new();
    for snapshot in snapshots {
        snapshot.for_each_chunk(|chunk| {
            chunks.insert(chunk);
        });
    }
    let mut scored = Scored { known: 0, best: Vec::new() };
    let mut places = Vec::new();
    for chunk in chunks {
        let first = u64::from(chunk) * CHUNK_BLOCKS;
        let mut table = ScoreTable::new(by.heuristic(), CHUNK_BLOCKS as usize);
        table.add_spans(turns * snapshots.len() as u32, CHUNK_BLOCKS as usize, |_, number, add| {
            let least = if number % turns == 0 { 0 } else { USED_AGAIN };
            snapshots[(number / turns) as usize].places_scored(chunk, least, &mut places);
            add(&places);
        });
        let blocks = volume_blocks.saturating_sub(first).min(CHUNK_BLOCKS) as usize;
        let known = (0..blocks).map(|place| (table.score(place), first + place as u64));
        let before = scored.best.len();
        scored.best.extend(known.filter(|(score, _)| *score > 0.0));
        scored.known += (scored.best.len() - before) as u64;
        // Seldom, so that each block is looked at a few times in all.
        if scored.best.len() >= most.saturating_mul(2).max(CHUNK_BLOCKS as usize) {
            keep_best(&mut scored.best, most);
        }
    }
    scored
}

/// Puts the decision where people find it.
fn tell(shared: &Shared, at: usize, resumed: &Resumed, asked: bool) {
    let VolumeConfig { name, block_size, .. } = &shared.config.volumes[at];
    let (takeover, mut facts) = (&resumed.takeover, resumed.facts.clone());
    let kind = match takeover {
        // Who never had a snapshot need not be told so at every start, but where somebody wants it loaded.
        Takeover::Skip(TakeoverSkip::NoSnapshot) if !asked && facts.iter().all(is_zero_count) => {
            tracing::info!(volume = name, "no snapshots of it yet: its cache begins empty");
            return;
        }
        Takeover::Skip(reason) => {
            facts.push(Fact::text("reason", reason.to_string()));
            DecisionKind::PrewarmSkipped
        }
        Takeover::Load { blocks, bytes_per_second, spared, .. } => {
            facts.push(Fact::number("size", (blocks << block_size.shift()) as f64, "bytes"));
            facts.push(Fact::number("first_rate", *bytes_per_second as f64, "bytes/s"));
            facts.push(Fact::number("spared", *spared, ""));
            DecisionKind::PrewarmStarted
        }
    };
    if asked {
        facts.push(Fact::text("ordered", "by a person"));
    }
    decided(shared, at, kind, takeover.summary(name, block_size.bytes()), facts);
}

/// Logs and keeps what was decided on the loading of a volume's cache.
fn decided(shared: &Shared, at: usize, kind: DecisionKind, summary: String, facts: Vec<Fact>) {
    let name = &shared.config.volumes[at].name;
    tracing::info!(volume = name, ?kind, "{summary}");
    let decision = Decision {
        at: shared.appliance.now(),
        volume: VolumeId(at as u32),
        volume_name: name.clone(),
        kind,
        summary,
        facts,
        alternatives: Vec::new(),
    };
    let decisions = vec![DatedDecision { at_unix_ms: unix_ms(), decision }];
    remember(&mut shared.state(), &decisions);
    if let Some(history) = &shared.history {
        history.keep(Batch { intervals: Vec::new(), decisions });
    }
}

/// Whether a fact does not count snapshots, or counts none.
fn is_zero_count(fact: &Fact) -> bool {
    !fact.name.starts_with("snapshots") || fact.value == forebay_control::FactValue::Number(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Daemon;
    use crate::config::{Config, OriginConfig, SnapshotPlace};
    use forebay_cache::snapshot::{SnapshotHeader, SnapshotWriter};

    #[test]
    fn what_lies_behind_the_end_of_a_volume_that_was_cut_is_not_loaded() {
        let header = SnapshotHeader {
            volume: identity("a", "somewhere"),
            block_bytes: 4096,
            volume_blocks: 256,
            sequence: 1,
            taken_at_unix_s: 0,
            activity: Activity::default(),
        };
        let mut writer = SnapshotWriter::new(header, true).unwrap();
        [5, 99, 100, 200].into_iter().for_each(|block| writer.push(block, USED_AGAIN).unwrap());
        let snapshots = [Snapshot::parse(writer.finish(), header.volume).unwrap()];
        let scored = score(LoadScore::KRecent, &snapshots, 100, 256);
        let blocks = scored.best.into_iter().map(|(_, block)| block);
        assert_eq!((blocks.collect::<Vec<u64>>(), scored.known), (vec![5, 99], 2));
    }

    /// A run of any length takes a few bytes in a snapshot.
    #[test]
    fn of_a_snapshot_of_all_of_a_large_volume_no_more_is_kept_than_the_cache_takes() {
        let volume_blocks = 40 * CHUNK_BLOCKS;
        let header = |sequence| SnapshotHeader {
            volume: identity("a", "somewhere"),
            block_bytes: 4096,
            volume_blocks,
            sequence,
            taken_at_unix_s: 0,
            activity: Activity::default(),
        };
        let of = |sequence, blocks: std::ops::Range<u64>| {
            let mut writer = SnapshotWriter::new(header(sequence), true).unwrap();
            blocks.for_each(|block| writer.push(block, USED_AGAIN).unwrap());
            Snapshot::parse(writer.finish(), header(sequence).volume).unwrap()
        };
        // The blocks of the newer one are the best.
        let last = 39 * CHUNK_BLOCKS;
        let snapshots = [of(1, 0..volume_blocks), of(2, last..last + 100)];
        let scored = score(LoadScore::KRecent, &snapshots, volume_blocks, 100);
        assert_eq!(scored.known, volume_blocks);
        assert!(scored.best.len() <= 2 * CHUNK_BLOCKS as usize, "{}", scored.best.len());
        // In bands, one behind the other.
        let loads = load_order(scored.best, 100);
        assert_eq!(loads.iter().map(|range| range.count()).sum::<u64>(), 100);
        assert_eq!((loads[0].first, loads.last().unwrap().end), (last, last + 100));
    }

    #[test]
    fn what_is_cancelled_while_its_snapshots_are_read_is_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshots.db");
        let snapshots =
            SnapshotConfig { place: SnapshotPlace::Database(path.clone()), ..SnapshotConfig::new("") };
        let volume = VolumeConfig::new("a", OriginConfig::Memory { size: Bytes::mib(1) });
        let mut config = Config::new(vec![volume]);
        config.snapshots = Some(snapshots.clone());
        config.control.enabled = false;
        let daemon = Daemon::start(config).unwrap();
        let shared = daemon.shared();
        let header = SnapshotHeader {
            volume: identity("a", &shared.appliance.observe("a", false).unwrap().origin),
            block_bytes: 4096,
            volume_blocks: 256,
            sequence: 1,
            taken_at_unix_s: unix_ms() as u64 / 1000,
            activity: Activity::default(),
        };
        let mut writer = SnapshotWriter::new(header, true).unwrap();
        (0..50).for_each(|block| writer.push(block, USED_AGAIN).unwrap());
        let store = shared.snapshot_store.as_ref().unwrap();
        let (bytes, kept) = (writer.finish(), snapshots.clone());
        store.write(shared, move |store| store.write(&header, &bytes, 0, &kept)).unwrap();
        shared.appliance.set_quota("a", Bytes::mib(1)).unwrap();
        let wait = |what: &str, done: &dyn Fn() -> bool| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while !done() {
                assert!(Instant::now() < deadline, "{what}");
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        let taken = || shared.books.loads().wishes.is_empty();
        // Another host has the database for a moment.
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        ask(shared, "a", LoadChoice::default()).unwrap();
        wait("the wish is not taken", &taken);
        cancel(shared, "a").unwrap();
        other.execute_batch("ROLLBACK").unwrap();
        wait("the snapshot is not read", &|| shared.snapshot_counters.used.load(Ordering::Relaxed) == 1);
        // Of nobody, so that the one before is done with when it is taken.
        shared.books.loads().begins("nobody");
        wait("the next wish is not taken", &taken);
        assert_eq!(shared.appliance.pulse("a").unwrap().prewarm, None);
        // Asked for again, it is loaded.
        ask(shared, "a", LoadChoice::default()).unwrap();
        wait("it is not loaded", &|| shared.appliance.pulse("a").unwrap().prewarm.is_some());
        daemon.shutdown();
    }
}
