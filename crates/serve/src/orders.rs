//! What a controller elsewhere orders of this data path: quotas, warm-up from zones, draining.
//!
//! `forebay appliance` serves without a controller of its own; whoever sized it sends these over HTTP. Nothing is decided here: what
//! cannot be done is refused, and said why.

use crate::config::{CacheConfig, VolumeConfig};
use crate::daemon::Shared;
use crate::loading::{self, LoadChoice, PrewarmError};
use crate::objects::{self, Object};
use forebay_appliance::{CommandError, Drained};
use forebay_control::prewarm::{Entry, LoadScore};
use forebay_units::{ByteRange, Bytes};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use thiserror::Error;

/// Ranges of one warm-up order: what a cache of a gibibyte held in single blocks of 4 KiB (ours).
pub(crate) const RANGES_MAX: usize = 262_144;
/// The most bytes of such an order, whose ranges are of any volume.
pub(crate) const PREWARM_BYTES_MAX: usize = 80 * RANGES_MAX;
/// How long a drain may take at most (ours): its answer must come before the connection of who asked is ended.
const DRAIN_MS_MAX: u64 = 50_000;

/// Volumes whose caches were ordered while the controller that sizes them was off. They stay theirs when a controller dies, of whatever size they are then, until one takes
/// them away: the next controller knows as little as the one before why somebody wanted them.
#[derive(Debug, Default)]
pub(crate) struct Ordered(BTreeSet<String>);

impl Ordered {
    pub(crate) fn has(&self, volume: &str) -> bool {
        self.0.contains(volume)
    }

    /// The cache has so many blocks from here on, by an order.
    fn ordered(&mut self, volume: &str, blocks: u64) {
        if blocks == 0 {
            self.0.remove(volume);
        } else {
            self.0.insert(volume.to_owned());
        }
    }

    /// The controller took the cache away: what it grants later is its own.
    pub(crate) fn taken_away(&mut self, volume: &str) {
        self.0.remove(volume);
    }
}

/// Why an order was not carried out. Nothing has changed then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum OrderError {
    /// The body is not what it should be.
    #[error("the order is not understood: {reason}")]
    NotUnderstood {
        /// What is wrong with it.
        reason: String,
    },
    /// The volume's quota is the controller's.
    #[error(
        "the cache of volume `{volume}` is sized by the controller of this daemon; pause that (`forebay pause`), or give the volume a fixed `cache`"
    )]
    Controlled {
        /// The volume.
        volume: String,
    },
    /// All quotas together would pass the memory for caches.
    #[error(
        "{asked} for volume `{volume}` is more than is left of `cache.memory`: {left} of {memory}, of which other volumes have {others} and the controller {controllers}{}",
        of_paused(*controllers)
    )]
    TooMuch {
        /// The volume.
        volume: String,
        /// What was asked for.
        asked: Bytes,
        /// What the other volumes and the controller leave.
        left: Bytes,
        /// What other volumes have that it does not size.
        others: Bytes,
        /// What it may grant; nothing while it is paused.
        controllers: Bytes,
        /// All there is.
        memory: Bytes,
    },
    /// Loading cannot begin.
    #[error(transparent)]
    Prewarm(#[from] PrewarmError),
    /// There is no such volume.
    #[error(transparent)]
    Command(#[from] CommandError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaOrder {
    bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrewarmOrder {
    #[serde(default)]
    ranges: Option<Vec<Object<RangeOrder>>>,
    #[serde(default)]
    bytes_per_second: Option<u64>,
    #[serde(default)]
    insertion: Option<Entry>,
    #[serde(default)]
    score: Option<LoadScore>,
    #[serde(default, deserialize_with = "given")]
    cache_share_max: Option<f64>,
}

/// What is named is a number: `null` is what JSON makes of one that is none.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    f64::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeOrder {
    offset: u64,
    length: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainOrder {
    within_ms: u64,
}

fn of_paused(controllers: Bytes) -> &'static str {
    if controllers > Bytes::ZERO { ", granted or not: `forebay pause` frees that" } else { "" }
}

fn understood<T: DeserializeOwned>(body: &[u8]) -> Result<T, OrderError> {
    objects::read(body).map_err(|error| OrderError::NotUnderstood { reason: error.to_string() })
}

/// Sets the quota of a volume that no controller sizes.
pub(crate) fn set_quota(shared: &Shared, volume: &str, body: &[u8]) -> Result<Value, OrderError> {
    let QuotaOrder { bytes } = understood(body)?;
    let asked = Bytes(bytes);
    // One order at a time, or two could take the same memory.
    let mut ordered = shared.books.quota_orders();
    let controls = shared.switch.is_on();
    let is_controlled =
        |config: &VolumeConfig| controls && matches!(config.cache, CacheConfig::Controlled { .. });
    let volumes = &shared.config.volumes;
    shared.appliance.pulse(volume)?;
    let config = volumes.iter().find(|config| config.name == volume).expect("what is served is configured");
    if is_controlled(config) {
        return Err(OrderError::Controlled { volume: volume.to_owned() });
    }
    let memory = shared.config.cache_memory;
    // The controller's is its own, granted or not.
    let controllers =
        if volumes.iter().any(is_controlled) { shared.config.controllers_memory() } else { Bytes::ZERO };
    let others = taken(shared, |config| config.name != volume && !is_controlled(config));
    let left = Bytes((memory.get() - controllers.get()).saturating_sub(others.get()));
    if asked > left {
        let volume = volume.to_owned();
        return Err(OrderError::TooMuch { volume, asked, left, others, controllers, memory });
    }
    // Less than a block is no cache, so that an order of it is one to take the cache away.
    let blocks = bytes >> config.block_size.shift();
    let quota = Bytes(blocks << config.block_size.shift());
    shared.appliance.set_quota(volume, quota)?;
    ordered.ordered(volume, blocks);
    tracing::info!(volume, %quota, "quota set as ordered");
    Ok(json!({ "quota_bytes": quota.get() }))
}

/// What the caches of those volumes take together that `which` names.
pub(crate) fn taken(shared: &Shared, which: impl Fn(&VolumeConfig) -> bool) -> Bytes {
    let (absent, leaving) = {
        let state = shared.state();
        (state.absent.keys().cloned().collect::<BTreeSet<String>>(), state.leaving.clone())
    };
    let quota = |config: &VolumeConfig| match (config.cache, leaving.get(&config.name)) {
        // It has its quota as soon as it is there.
        (CacheConfig::Fixed(quota), _) if absent.contains(&config.name) => quota.get(),
        // It has it until what is in flight is answered.
        (_, Some(quota)) => quota.get(),
        _ => quota_of(shared, &config.name).get(),
    };
    let volumes = shared.config.volumes.iter().filter(|config| which(config));
    Bytes(volumes.map(quota).fold(0, u64::saturating_add))
}

/// The quota of a volume that is served.
fn quota_of(shared: &Shared, volume: &str) -> Bytes {
    let seen = shared.appliance.observe(volume, false);
    seen.map_or(Bytes::ZERO, |seen| seen.observation.quota_bytes)
}

/// Loads a cache: the ranges that `body` names, the most wanted first, or without them what its snapshots say.
pub(crate) fn prewarm(shared: &Shared, volume: &str, body: &[u8]) -> Result<Value, OrderError> {
    let order: PrewarmOrder = understood(if body.is_empty() { b"{}" } else { body })?;
    let PrewarmOrder { ranges, bytes_per_second, insertion, score, cache_share_max } = order;
    let refuse = |reason: String| Err(OrderError::NotUnderstood { reason });
    if bytes_per_second == Some(0) {
        return refuse("`bytes_per_second` is 0: expected at least 1".to_owned());
    }
    let Some(ranges) = ranges else {
        if let Some(share) = cache_share_max.filter(|share| !(0.0..=1.0).contains(share)) {
            return refuse(format!("`cache_share_max` is {share}: expected 0 to 1"));
        }
        let choice = LoadChoice { score, insertion, cache_share_max, bytes_per_second_max: bytes_per_second };
        loading::ask(shared, volume, choice)?;
        return Ok(json!({}));
    };
    if score.is_some() || cache_share_max.is_some() {
        return refuse(
            "`score` and `cache_share_max` are for what snapshots say, not for `ranges`".to_owned(),
        );
    }
    if ranges.len() > RANGES_MAX {
        return refuse(format!("{} ranges: expected at most {RANGES_MAX}", ranges.len()));
    }
    shared.appliance.pulse(volume)?;
    let rules = &shared.config.control.rules.warmup;
    let rate = bytes_per_second.unwrap_or(rules.bytes_per_second_max).min(rules.bytes_per_second_max);
    // What passes the end of the address space is nothing that could be loaded; the volume's end is looked at where its size is known.
    let ranges: Vec<ByteRange> = ranges
        .iter()
        .filter(|Object(range)| range.length > 0 && range.offset.checked_add(range.length).is_some())
        .map(|Object(range)| ByteRange::new(range.offset, range.length))
        .collect();
    let count = ranges.len();
    shared.books.loads().ranges(volume, ranges, rate, insertion);
    Ok(json!({ "ranges": count }))
}

/// Has a volume answer what it has in flight and then disconnect its clients; it is not served any more.
pub(crate) fn drain(shared: &Shared, volume: &str, body: &[u8]) -> Result<Value, OrderError> {
    let DrainOrder { within_ms } = understood(body)?;
    if within_ms > DRAIN_MS_MAX {
        let reason = format!("`within_ms` is {within_ms}: expected at most {DRAIN_MS_MAX}");
        return Err(OrderError::NotUnderstood { reason });
    }
    let quota = quota_of(shared, volume);
    // Its memory is not anybody else's before it is gone. Who drains it already says when that is.
    let is_first = {
        let mut state = shared.state();
        let is_first = !state.leaving.contains_key(volume);
        // From here on nobody can ask it what it has counted.
        if let (Ok(seen), Some(monitor)) =
            (shared.appliance.observe(volume, false), state.monitors.get_mut(volume))
        {
            monitor.look(seen);
        }
        state.leaving.entry(volume.to_owned()).or_insert(quota);
        is_first
    };
    let drained = shared.appliance.remove_volume(volume, Duration::from_millis(within_ms));
    if is_first {
        shared.state().leaving.remove(volume);
    }
    let drained = drained?;
    tracing::info!(volume, ?drained, "drained as ordered; it is not served any more");
    Ok(json!({ "completely": drained != Drained::TimedOut, "flushed": drained != Drained::NotFlushed }))
}
