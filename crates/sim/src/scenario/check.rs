//! Whether a scenario can be run, and what in it is doomed: said before the run, with the arithmetic.

use super::error::{ScenarioError, missing, out_of_range};
use super::{
    ArrivalKind, DiskName, Distribution, LoadTable, OriginKind, Popularity, Promise, Queues, Scenario,
    Sizing, VolumeTable,
};
use crate::outcome::{IntervalRow, OriginRow, WindowRow};
use crate::tier::TierRow;
use forebay_control::eafc::EafcRules;
use forebay_control::warmup::WarmupRules;
use forebay_control::{ControlConfig, Operations, StatedError, Target};
use forebay_devmodel::{Array, DiskGroup};
use forebay_units::{BlockSize, Bytes, Nanos};
use serde::Serialize;

/// Intervals of a run at most: every one is kept per volume.
const INTERVALS_MAX: u64 = 1 << 17;
/// Bytes of what is kept of a run at most: intervals of all volumes, origins and a tier, and windows (ours).
const KEPT_MAX: Bytes = Bytes::gib(4);
/// Requests that open loops may draw at most: some four days at 5,000 a second, a quarter of an hour of a processor (ours).
/// A run must end.
const REQUESTS_MAX: f64 = 2e9;

/// Times in which an origin hangs at most (ours).
const HANGS_MAX: usize = 64;

/// Something that can be run, and should be known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flag {
    /// Which key.
    pub key: String,
    /// What about it, with the arithmetic.
    pub message: String,
}

impl Scenario {
    /// Checks everything but the traces; returns what should be known before the run.
    ///
    /// # Errors
    /// [`ScenarioError`] with the first key that is wrong.
    pub fn check(&self) -> Result<Vec<Flag>, ScenarioError> {
        let interval = self.cache.interval;
        if interval < Nanos::millis(100) || interval > Nanos::secs(3_600) {
            out_of_range("cache.interval", interval, "100 ms to 1 h")?;
        }
        if self.duration < interval || self.duration.0 / interval.0 > INTERVALS_MAX {
            out_of_range("duration", self.duration, "one to 131,072 intervals")?;
        }
        if self.measure_from >= self.duration {
            out_of_range("measure_from", self.measure_from, "less than the duration")?;
        }
        let from = self.cache.control_from;
        if from > Nanos::ZERO && self.cache.sizing != Sizing::Control {
            out_of_range("cache.control_from", from, "only with `sizing = \"control\"`")?;
        }
        if from >= self.duration {
            out_of_range("cache.control_from", from, "less than the duration")?;
        }
        self.check_observe()?;
        if let Err(error) = self.control.check() {
            return Err(ScenarioError::OutOfRange {
                key: format!("control.{}", error.key),
                found: error.found.to_string(),
                expected: error.expected,
            });
        }
        self.check_warmup()?;
        if let Some((key, found, expected)) = self.eafc.wrong() {
            out_of_range(format!("eafc.{key}"), found, expected)?;
        }
        if self.eafc != EafcRules::default() && self.cache.sizing != Sizing::Eafc {
            out_of_range("eafc", "this table", "only with `sizing = \"eafc\"`")?;
        }
        if self.origin.is_empty() {
            missing("origin", "origin", "every volume")?;
        }
        if self.volume.is_empty() || self.volume.len() > 1_024 {
            out_of_range("volume", format!("{} volumes", self.volume.len()), "1 to 1,024")?;
        }
        self.check_names()?;
        for at in 0..self.origin.len() {
            self.check_origin(at)?;
        }
        for at in 0..self.appliance.len() {
            self.check_appliance(at)?;
        }
        self.check_shared()?;
        self.check_tier()?;
        let mut requests = 0.0;
        for (at, volume) in self.volume.iter().enumerate() {
            self.check_volume(at, volume)?;
            for (place, load) in volume.load.iter().enumerate() {
                self.check_load(&format!("volume[{at}].load[{place}]"), volume, load)?;
                let until = self.end_of_load(volume, place);
                requests += load.rate.unwrap_or(0.0) * until.saturating_since(load.from).as_secs_f64();
            }
        }
        if requests > REQUESTS_MAX {
            out_of_range("duration", format!("{requests:.1e} requests"), "at most 2e9 requests in a run")?;
        }
        self.check_reservations()?;
        self.check_expected()?;
        for promise in self.promises() {
            self.check_promise(&promise)?;
        }
        self.check_kept()?;
        let mut flags = Vec::new();
        if self.cache.sizing == Sizing::Fixed && self.control != ControlConfig::default() {
            let message = "nobody decides by these parameters: `sizing` is `fixed`".to_owned();
            flags.push(Flag { key: "control".to_owned(), message });
        }
        for origin in 0..self.origin.len() {
            self.check_rates(origin, &mut flags)?;
        }
        self.check_lanes(&mut flags)?;
        self.flag_times(&mut flags);
        self.flag_objectives(&mut flags);
        self.flag_closed_loops(&mut flags);
        Ok(flags)
    }

    /// What decides about loading from snapshots has nothing to decide, and what is loaded here enters at the tail.
    fn check_warmup(&self) -> Result<(), ScenarioError> {
        let (found, unset) = (&self.control.warmup, WarmupRules::default());
        for (key, is_set) in [
            ("score", found.score != unset.score),
            ("cache_share_max", found.cache_share_max != unset.cache_share_max),
            ("hit_ratio_min", found.hit_ratio_min != unset.hit_ratio_min),
            ("spared_min", found.spared_min != unset.spared_min),
        ] {
            if is_set {
                let expected = "only in the daemon's configuration: a simulation has no snapshots to load";
                out_of_range(format!("control.warmup.{key}"), "this key", expected)?;
            }
        }
        if found.insertion != unset.insertion {
            let expected =
                "only in the daemon's configuration: in a simulation loaded blocks enter at the tail";
            out_of_range("control.warmup.insertion", "this key", expected)?;
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), ScenarioError> {
        let twice = |names: Vec<&str>, table: &str| {
            for (at, name) in names.iter().enumerate() {
                let problem = if name.is_empty() {
                    "is no name"
                } else if names[..at].contains(name) {
                    "is used twice"
                } else {
                    continue;
                };
                return Err(ScenarioError::Name {
                    key: format!("{table}[{at}].name"),
                    name: (*name).to_owned(),
                    problem,
                });
            }
            Ok(())
        };
        twice(self.origin.iter().map(|origin| origin.name.as_str()).collect(), "origin")?;
        twice(self.appliance.iter().map(|appliance| appliance.name.as_str()).collect(), "appliance")?;
        twice(self.volume.iter().map(|volume| volume.name.as_str()).collect(), "volume")
    }

    fn check_origin(&self, at: usize) -> Result<(), ScenarioError> {
        let origin = &self.origin[at];
        let key = |key: &str| format!("origin[{at}].{key}");
        let foreign = |field: &'static str, there: bool, expected| {
            if there { out_of_range(key(field), "this key", expected) } else { Ok(()) }
        };
        if origin.link_latency > Nanos::secs(10) {
            out_of_range(key("link_latency"), origin.link_latency, "at most 10 s")?;
        }
        if origin.hangs.len() > HANGS_MAX {
            out_of_range(key("hangs"), format!("{} times", origin.hangs.len()), "at most 64")?;
        }
        if let Some(place) = origin.hangs.iter().position(|hang| hang.span == Nanos::ZERO) {
            out_of_range(key(&format!("hangs[{place}].for")), Nanos::ZERO, "above 0")?;
        }
        for (field, rate) in [
            ("link_per_second", origin.link_per_second),
            ("transfer_per_second", origin.transfer_per_second),
            (
                "buffer.interface_per_second",
                origin.buffer.as_ref().and_then(|buffer| buffer.interface_per_second),
            ),
        ] {
            if rate == Some(Bytes::ZERO) {
                out_of_range(key(field), Bytes::ZERO, "above 0")?;
            }
        }
        if let Some(found) = origin.buffer.as_ref().and_then(|buffer| buffer.segments)
            && !(1..=256).contains(&found)
        {
            out_of_range(key("buffer.segments"), found, "from 1 to 256")?;
        }
        let (disks, ssd) = (origin.kind == OriginKind::Disks, origin.kind == OriginKind::Ssd);
        let servers = origin.kind == OriginKind::Servers;
        let each = servers && origin.queues == Some(Queues::Each);
        let fixed = disks && origin.disk == Some(DiskName::Fixed);
        let uniform = servers && origin.distribution == Some(Distribution::Uniform);
        let only_disks = "only with `type = \"disks\"`";
        let only_servers = "only with `type = \"servers\"`";
        foreign("spindles", origin.spindles.is_some() && !disks, only_disks)?;
        foreign("disk", origin.disk.is_some() && !disks, only_disks)?;
        foreign("disk_capacity", origin.disk_capacity.is_some() && !disks, only_disks)?;
        foreign("raid", origin.raid.is_some() && !disks, only_disks)?;
        foreign("queue", origin.queue.is_some() && !disks, only_disks)?;
        foreign("seek_average", origin.seek_average.is_some() && !disks, only_disks)?;
        foreign(
            "seek_average",
            origin.seek_average.is_some() && fixed,
            "not with `disk = \"fixed\"`, whose heads stay where they are",
        )?;
        foreign("rotation", origin.rotation.is_some() && !disks, only_disks)?;
        foreign("buffer", origin.buffer.is_some() && !disks, only_disks)?;
        foreign("array", origin.array.is_some() && !disks, only_disks)?;
        foreign("flash", origin.flash.is_some() && !ssd, "only with `type = \"ssd\"`")?;
        foreign("servers", origin.servers.is_some() && !servers, only_servers)?;
        foreign("queues", origin.queues.is_some() && !servers, only_servers)?;
        foreign("distribution", origin.distribution.is_some() && !servers, only_servers)?;
        foreign(
            "service_spread",
            origin.service_spread.is_some() && !uniform,
            "only with `distribution = \"uniform\"`",
        )?;
        foreign(
            "stripe_unit",
            origin.stripe_unit.is_some() && !disks && !each,
            "only with disks or `queues = \"each\"`",
        )?;
        foreign(
            "service",
            origin.service.is_some() && !servers && !fixed,
            "only with servers or `disk = \"fixed\"`",
        )?;
        let capacity = match origin.kind {
            OriginKind::Servers => return self.check_servers(at),
            OriginKind::Disks => self.check_disks(at)?,
            OriginKind::Ssd => {
                if origin.flash.is_none() {
                    missing(format!("origin[{at}]"), "flash", "`type = \"ssd\"`")?;
                }
                let ssd = origin.ssd();
                match ssd.check() {
                    Ok((dies, pages)) => Bytes(u64::from(dies) * pages * ssd.page_bytes),
                    Err(error) => {
                        let field = match error.name {
                            "capacity_bytes" => "capacity",
                            "page_bytes" => "page",
                            other => other,
                        };
                        return out_of_range(key(&format!("flash.{field}")), error.found, error.expected);
                    }
                }
            }
        };
        let members = self.volume.iter().filter(|volume| self.origin_of(volume) == Some(at));
        let needed: Bytes = members.map(|volume| volume.size).sum();
        if needed > capacity {
            return Err(ScenarioError::DisksTooSmall {
                key: key(if disks { "disk_capacity" } else { "flash.capacity" }),
                origin: origin.name.clone(),
                needed,
                capacity,
            });
        }
        self.check_tier_fits(at, capacity)
    }

    fn check_servers(&self, at: usize) -> Result<(), ScenarioError> {
        let origin = &self.origin[at];
        let key = |key: &str| format!("origin[{at}].{key}");
        let Some(service) = origin.service else {
            return missing(format!("origin[{at}]"), "service", "`type = \"servers\"`");
        };
        if service == Nanos::ZERO || service > Nanos::secs(10) {
            out_of_range(key("service"), service, "above 0 and at most 10 s")?;
        }
        let servers = origin.servers.unwrap_or(1);
        if !(1..=1_024).contains(&servers) {
            out_of_range(key("servers"), servers, "from 1 to 1024")?;
        }
        if origin.service_spread.is_some_and(|spread| spread > service) {
            let found = origin.service_spread.unwrap_or_default();
            out_of_range(key("service_spread"), found, "at most `service`")?;
        }
        if origin.stripe_unit.is_some_and(|unit| unit < Bytes(512)) {
            let found = origin.stripe_unit.unwrap_or_default();
            out_of_range(key("stripe_unit"), found, "at least 512 B")?;
        }
        Ok(())
    }

    /// What the disks of an origin hold.
    fn check_disks(&self, at: usize) -> Result<Bytes, ScenarioError> {
        let origin = &self.origin[at];
        let key = |key: &str| format!("origin[{at}].{key}");
        let fixed = origin.disk == Some(DiskName::Fixed);
        if fixed && origin.service.is_none_or(|service| service == Nanos::ZERO) {
            missing(format!("origin[{at}]"), "service", "`disk = \"fixed\"`")?;
        }
        for (field, span, most, expected) in [
            ("service", origin.service, Nanos::secs(10), "at most 10 s"),
            ("seek_average", origin.seek_average, Nanos::secs(1), "at most 1 s"),
            ("rotation", origin.rotation, Nanos::secs(1), "at most 1 s"),
        ] {
            if let Some(found) = span.filter(|span| *span > most) {
                out_of_range(key(field), found, expected)?;
            }
        }
        if let Some(array) = &origin.array {
            for (field, share) in
                [("array.dirty_share_max", array.dirty_share_max), ("array.flush_share", array.flush_share)]
            {
                // The array counts in whole per cent.
                let is_whole = |share: f64| (share * 100.0 - (share * 100.0).round()).abs() < 1e-6;
                if let Some(found) = share.filter(|share| !(0.0..=0.9).contains(share) || !is_whole(*share)) {
                    out_of_range(key(field), found, "from 0 to 0.9, in steps of 0.01")?;
                }
            }
        }
        if let Some(flush) = origin.array.as_ref().and_then(|array| array.flush_share)
            && let Some(cache) = origin.array_cache()
            && (flush * 100.0).round() as u64 > cache.dirty_percent_max
        {
            out_of_range(key("array.flush_share"), flush, "at most `dirty_share_max` (0.5 unless set)")?;
        }
        let made = DiskGroup::new(origin.disks()).map(|group| group.capacity_bytes());
        let made = match (made, origin.array_cache()) {
            (Ok(capacity), Some(cache)) => Array::new(origin.disks(), cache).map(|_| capacity),
            (made, _) => made,
        };
        match made {
            Ok(capacity) => Ok(Bytes(capacity)),
            Err(error) => {
                let field = match error.name {
                    "stripe_unit_bytes" => "stripe_unit",
                    "capacity_bytes" => "disk_capacity",
                    "buffer.segment_bytes" => "buffer.segment",
                    "page_bytes" => "array.page",
                    "array_cache" => "array.cache",
                    "dirty_percent_max" => "array.dirty_share_max",
                    "flush_percent" => "array.flush_share",
                    "flush_outstanding_max" => "array.flush_outstanding_max",
                    other => other,
                };
                out_of_range(key(field), error.found, error.expected)?;
                Ok(Bytes::ZERO)
            }
        }
    }

    fn check_appliance(&self, at: usize) -> Result<(), ScenarioError> {
        let appliance = &self.appliance[at];
        let key = |key: &str| format!("appliance[{at}].{key}");
        let workers = appliance.workers.unwrap_or(1);
        if !(1..=1_024).contains(&workers) {
            out_of_range(key("workers"), workers, "from 1 to 1024")?;
        }
        for (field, span) in
            [("request_time", appliance.request_time), ("link_latency", appliance.link_latency)]
        {
            if span > Nanos::secs(10) {
                out_of_range(key(field), span, "at most 10 s")?;
            }
        }
        for (field, rate) in
            [("link_per_second", appliance.link_per_second), ("copy_per_second", appliance.copy_per_second)]
        {
            if rate == Some(Bytes::ZERO) {
                out_of_range(key(field), Bytes::ZERO, "above 0")?;
            }
        }
        Ok(())
    }

    fn check_shared(&self) -> Result<(), ScenarioError> {
        if !self.cache.shared {
            return Ok(());
        }
        if self.cache.sizing != Sizing::Fixed {
            out_of_range(
                "cache.shared",
                "true",
                "only with `sizing = \"fixed\"`: there are no partitions to size",
            )?;
        }
        let first = self.volume[0].block_size;
        let mut blocks = 0u64;
        for (at, volume) in self.volume.iter().enumerate() {
            if volume.cache.is_some() {
                out_of_range(format!("volume[{at}].cache"), "this key", "not with `cache.shared`")?;
            }
            if volume.block_size != first {
                let found = volume.block_size.unwrap_or(Bytes::kib(4));
                out_of_range(
                    format!("volume[{at}].block_size"),
                    found,
                    "the same for all with `cache.shared`",
                )?;
            }
            blocks = blocks.saturating_add(
                volume.size.get() / volume.block_size.unwrap_or(Bytes::kib(4)).get().max(1) + 1,
            );
        }
        if blocks > 1 << 52 {
            out_of_range(
                "cache.shared",
                format!("{blocks} blocks"),
                "volumes of at most 2^52 blocks in sum",
            )?;
        }
        Ok(())
    }

    fn check_volume(&self, at: usize, volume: &VolumeTable) -> Result<(), ScenarioError> {
        let key = |key: &str| format!("volume[{at}].{key}");
        match &volume.origin {
            None if self.origin.len() > 1 => {
                missing(format!("volume[{at}]"), "origin", "a scenario with several origins")?;
            }
            Some(name) if self.origin_of(volume).is_none() => {
                let problem = "is no origin of this scenario";
                return Err(ScenarioError::Name { key: key("origin"), name: name.clone(), problem });
            }
            _ => {}
        }
        if let Some(name) = &volume.appliance
            && self.appliance_of(volume).is_none()
        {
            let problem = "is no appliance of this scenario";
            return Err(ScenarioError::Name { key: key("appliance"), name: name.clone(), problem });
        }
        let block = volume.block_size.unwrap_or(Bytes::kib(4));
        if BlockSize::new(block).is_err() || block > Bytes::kib(64) {
            out_of_range(key("block_size"), block, "a power of two from 512 B to 64 KiB")?;
        }
        if volume.size < block || volume.size > Bytes(1 << 56) {
            out_of_range(key("size"), volume.size, "one block to 64 PiB")?;
        }
        if volume.cache.is_some_and(|cache| cache > self.cache.memory) {
            out_of_range(key("cache"), volume.cache.unwrap_or_default(), "at most `cache.memory`")?;
        }
        if volume.cache.is_some() && (volume.minimum > Bytes::ZERO || volume.maximum.is_some()) {
            out_of_range(key("cache"), "this key", "not beside `minimum` or `maximum`")?;
        }
        if volume.cache.is_some() && !volume.may_cache {
            out_of_range(key("may_cache"), "false", "not beside `cache`, which gives it one")?;
        }
        if !volume.may_cache && volume.minimum > Bytes::ZERO {
            out_of_range(
                key("may_cache"),
                "false",
                "not beside `minimum`, which is a cache that it always has",
            )?;
        }
        if self.cache.sizing != Sizing::Control && volume.minimum > Bytes::ZERO {
            out_of_range(key("minimum"), volume.minimum, "only with `sizing = \"control\"`")?;
        }
        if let Some(maximum) = volume.maximum.filter(|_| self.cache.sizing == Sizing::Fixed) {
            out_of_range(key("maximum"), maximum, "not with `sizing = \"fixed\"`, where nobody sizes")?;
        }
        if volume.minimum > volume.maximum.unwrap_or(volume.size).min(self.cache.memory) {
            out_of_range(key("minimum"), volume.minimum, "at most `maximum` and `cache.memory`")?;
        }
        if at + 1 == self.volume.len() {
            let set_aside: Bytes =
                self.volume.iter().map(|volume| volume.cache.unwrap_or(volume.minimum)).sum();
            if set_aside > self.cache.memory {
                let found = format!("{set_aside} of fixed caches and minimums");
                out_of_range("cache.memory", found, "at most `cache.memory` in sum")?;
            }
        }
        let unordered = volume.load.windows(2).position(|pair| pair[0].from >= pair[1].from);
        if let Some(place) = unordered {
            let found = volume.load[place + 1].from;
            out_of_range(key(&format!("load[{}].from", place + 1)), found, "later than the load before")?;
        }
        Ok(())
    }

    fn check_load(&self, table: &str, volume: &VolumeTable, load: &LoadTable) -> Result<(), ScenarioError> {
        let key = |key: &str| format!("{table}.{key}");
        let only = |field: &'static str, there: bool, expected| {
            if there { out_of_range(key(field), "this key", expected) } else { Ok(()) }
        };
        let open = matches!(load.arrivals, ArrivalKind::Poisson | ArrivalKind::Constant);
        let closed = load.arrivals == ArrivalKind::Closed;
        let trace = load.arrivals == ArrivalKind::Trace;
        match (open, load.rate) {
            (true, None) => missing(table, "rate", "an open loop")?,
            (true, Some(rate)) if !(rate > 0.0 && rate <= 1e8) => {
                out_of_range(key("rate"), rate, "above 0 and at most 1e8")?;
            }
            (false, Some(_)) => only("rate", true, "only with `poisson` or `constant` arrivals")?,
            _ => {}
        }
        match (closed, load.clients) {
            (true, None) => missing(table, "clients", "a closed loop")?,
            (true, Some(clients)) if !(1..=65_536).contains(&clients) => {
                out_of_range(key("clients"), clients, "from 1 to 65536")?;
            }
            (false, Some(_)) => only("clients", true, "only with `closed` arrivals")?,
            _ => {}
        }
        only("think", load.think.is_some() && !closed, "only with `closed` arrivals")?;
        if closed && load.think.unwrap_or(Nanos::ZERO) + self.hit_least(volume) == Nanos::ZERO {
            out_of_range(key("think"), "0", "above 0 where hits take no time: else time stands still")?;
        }
        if trace && load.trace.is_none() {
            missing(table, "trace", "`trace` arrivals")?;
        }
        only("trace", load.trace.is_some() && !trace, "only with `trace` arrivals")?;
        only("trace_volume", load.trace_volume.is_some() && !trace, "only with `trace` arrivals")?;
        only("trace_from", load.trace_from > Nanos::ZERO && !trace, "only with `trace` arrivals")?;
        if !(load.speed > 0.0 && load.speed <= 1e6) {
            out_of_range(key("speed"), load.speed, "above 0 and at most 1e6")?;
        }
        only("speed", load.speed != 1.0 && !trace, "only with `trace` arrivals")?;
        only("repeat", load.repeat && !trace, "only with `trace` arrivals")?;
        // A trace says itself what is asked for, and nothing is of an idle volume.
        let drawn = open || closed;
        let only_drawn = "only with `poisson`, `constant` or `closed` arrivals";
        only("popularity", load.popularity != Popularity::default() && !drawn, only_drawn)?;
        only("theta", load.theta.is_some() && !drawn, only_drawn)?;
        only("working_set", load.working_set.is_some() && !drawn, only_drawn)?;
        only("offset", load.offset > Bytes::ZERO && !drawn, only_drawn)?;
        only("read_share", load.read_share != 1.0 && !drawn, only_drawn)?;
        only("request_size", load.request_size.is_some() && !drawn, only_drawn)?;
        only(
            "outstanding_max",
            load.outstanding_max != LoadTable::idle().outstanding_max && !open && !trace,
            "only with open loops: `clients` are what a closed one has outstanding",
        )?;
        if !(0.0..=1.0).contains(&load.read_share) {
            out_of_range(key("read_share"), load.read_share, "from 0 to 1")?;
        }
        let theta = load.theta.unwrap_or(0.9);
        if !(0.0..=3.0).contains(&theta) {
            out_of_range(key("theta"), theta, "from 0 to 3")?;
        }
        only(
            "theta",
            load.theta.is_some() && load.popularity != Popularity::Zipf,
            "only with `zipf` popularity",
        )?;
        let block = volume.block_size.unwrap_or(Bytes::kib(4)).get();
        let size = load.request_size.unwrap_or(Bytes(block)).get();
        if size < block || !size.is_multiple_of(block) || size > 32 << 20 {
            out_of_range(key("request_size"), Bytes(size), "whole blocks, at most 32 MiB")?;
        }
        let set = load.working_set.unwrap_or(volume.size.saturating_sub(load.offset)).get();
        if set < size || load.offset.get().checked_add(set).is_none_or(|end| end > volume.size.get()) {
            out_of_range(
                key("working_set"),
                Bytes(set),
                "one request to what the volume has from `offset` on",
            )?;
        }
        if load.outstanding_max == 0 || load.outstanding_max > 1 << 20 {
            out_of_range(key("outstanding_max"), load.outstanding_max, "from 1 to 1048576")?;
        }
        Ok(())
    }

    fn check_promise(&self, promise: &Promise) -> Result<(), ScenarioError> {
        let table = &promise.table;
        let key = |key: &str| format!("{}.{key}", promise.key);
        let Some(volume) = self.volume.iter().find(|volume| volume.name == table.volume) else {
            let problem = "is no volume of this scenario";
            return Err(ScenarioError::Name { key: key("volume"), name: table.volume.clone(), problem });
        };
        let objective = table.objective().map_err(|source| match source {
            StatedError::Key { key: of, .. } => ScenarioError::Objective { key: key(of), source },
            StatedError::Targets { .. } => ScenarioError::Objective { key: promise.key.clone(), source },
        })?;
        if table.until.is_some_and(|until| until <= table.from) {
            out_of_range(key("until"), table.until.unwrap_or_default(), "later than `from`")?;
        }
        let origin = &self.origin[self.origin_of(volume).expect("checked with the volumes")];
        match objective.target {
            Target::Latency { at_most, operations, .. } => {
                let hit = self.hit_least(volume);
                let (least, because) = match operations {
                    // Writes always wait for the origin.
                    Operations::Writes => (
                        hit + origin.link_latency + origin.link_latency,
                        "a hit and the way to the origin and back",
                    ),
                    Operations::Reads | Operations::All => (hit, "a hit in the fastest tier"),
                };
                if at_most < least {
                    let key = key("latency");
                    return Err(ScenarioError::BelowFastestTier { key, bound: at_most, because, least });
                }
            }
            Target::IopsFloor { at_least, .. } | Target::BandwidthFloor { at_least, .. } => {
                // Only while it stands: another load may ask for more.
                let until = table.until.unwrap_or(self.duration);
                for (place, load) in volume.load.iter().enumerate() {
                    let stands = load.from < until && table.from < self.end_of_load(volume, place);
                    if load.arrivals != ArrivalKind::Closed || !stands {
                        continue;
                    }
                    let (iops, key) = match table.iops {
                        Some(iops) => (iops, key("iops")),
                        None => (at_least / load.request_bytes(volume) as f64, key("bandwidth_per_second")),
                    };
                    let least = self.hit_least(volume) + load.think.unwrap_or(Nanos::ZERO);
                    let clients = load.clients.unwrap_or(1);
                    let reachable = f64::from(clients) / least.as_secs_f64();
                    if iops > reachable {
                        return Err(ScenarioError::BeyondClients { key, iops, clients, least, reachable });
                    }
                }
            }
        }
        Ok(())
    }

    /// Refuses a run of which too much would be kept.
    fn check_kept(&self) -> Result<(), ScenarioError> {
        let intervals = self.duration.0 / self.cache.interval.0;
        let (volumes, origins) = (self.volume.len() as u64, self.origin.len() as u64);
        let windows = |promise: Promise| {
            let objective = promise.table.objective().ok()?.in_whole(self.cache.interval);
            let until = promise.table.until.unwrap_or(self.duration).min(self.duration);
            Some(until.saturating_since(promise.table.from).0 / objective.window.0)
        };
        let windows: u64 = self.promises().into_iter().filter_map(windows).sum();
        let row = volumes * size_of::<IntervalRow>() as u64
            + origins * size_of::<OriginRow>() as u64
            + self.tier.as_ref().map_or(0, |_| size_of::<TierRow>() as u64);
        let kept = Bytes(intervals * row + windows * size_of::<WindowRow>() as u64);
        if kept > KEPT_MAX {
            let found = format!(
                "{kept} of rows ({intervals} intervals of volumes, {volumes}, and of origins, {origins}; {windows} windows)"
            );
            out_of_range("duration", found, "at most 4 GiB: a longer `cache.interval`, or a shorter run")?;
        }
        Ok(())
    }

    /// When a load of a volume ends: where the next one takes its place, or with the run.
    pub(super) fn end_of_load(&self, volume: &VolumeTable, place: usize) -> Nanos {
        volume.load.get(place + 1).map_or(self.duration, |next| next.from).min(self.duration)
    }

    /// The shortest time that a hit of one block takes.
    pub(super) fn hit_least(&self, volume: &VolumeTable) -> Nanos {
        let block = volume.block_size.unwrap_or(Bytes::kib(4)).get();
        let appliance = self.appliance_of(volume).map(|at| self.appliance[at].least(block));
        self.cache.hit_latency + appliance.unwrap_or(Nanos::ZERO)
    }
}
