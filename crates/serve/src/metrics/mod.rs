//! What Prometheus is told of a daemon.
//!
//! Names: `forebay_`, base units, counters end in `_total`. Every label value comes from the configuration or is a word of
//! ours, so that the number of series is bounded by it.

pub(crate) mod common;
mod text;

use crate::config::VolumeConfig;
use crate::daemon::{Shared, State};
use crate::monitor::Monitor;
use crate::report;
use common::{Gauge, Promise};
use forebay_appliance::VolumeSnapshot;
use forebay_appliance::volume::{FlashObservation, PlacingObservation};
use forebay_origin::OriginState;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
pub(crate) use text::Text;

/// The content type of what [`render`] returns.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of now.
pub(crate) fn render(shared: &Shared) -> String {
    // Before the lock of the state: nobody holds both.
    let clock_steps = shared.books.reservations().clock_steps();
    // Under the lock, so that no interval is added up twice or not at all.
    let mut state = shared.state();
    let mut now: BTreeMap<String, VolumeSnapshot> = BTreeMap::new();
    for seen in shared.appliance.observe_all(false) {
        if let Some(monitor) = state.monitors.get_mut(&seen.name) {
            monitor.look(seen.clone());
        }
        now.insert(seen.name.clone(), seen);
    }
    let volumes: Vec<(VolumeSnapshot, &Monitor)> = shared
        .config
        .volumes
        .iter()
        .filter_map(|volume| {
            // Before the first interval ends there are no edges that stay.
            let monitor = state.monitors.get(&volume.name).filter(|monitor| monitor.last.is_some())?;
            let last = || monitor.last_words(shared.is_gone(&state, &volume.name));
            Some((now.remove(&volume.name).or_else(last)?, monitor))
        })
        .collect();
    let mut text = Text::default();
    daemon(&mut text, shared, clock_steps);
    per_volume(&mut text, &volumes);
    working_sets(&mut text, shared, &state);
    caches(&mut text, &volumes);
    flash(&mut text, shared, &state, &volumes);
    placement(&mut text, &volumes);
    objectives(&mut text, &volumes);
    origins(&mut text, shared, &volumes, &state.utilisation);
    let memory = shared.config.cache_memory.as_f64();
    let help = "What the caches of all volumes may take together.";
    text.single("forebay_cache_memory_bytes", "gauge", help, memory);
    controller(&mut text, shared, &state);
    common::history(&mut text, shared.history.as_ref());
    snapshots(&mut text, shared);
    text.finish()
}

fn daemon(text: &mut Text, shared: &Shared, clock_steps: u64) {
    common::process(text, shared.started_unix_ms, clock_steps);
    let connections = shared.appliance.connections() as f64;
    text.single("forebay_connections", "gauge", "Client connections, handshakes included.", connections);
    let name = "forebay_connections_refused_total";
    text.family(
        name,
        "counter",
        "Clients sent away before they had a volume, by reason; under `token` requests over HTTP without the token.",
    );
    let tokens = ("token", shared.tokens_refused.load(Ordering::Relaxed));
    for (reason, count) in shared.appliance.refused().into_iter().chain([tokens]) {
        text.sample(name, &[("reason", reason)], count as f64);
    }
}

fn working_sets(text: &mut Text, shared: &Shared, state: &State) {
    let bytes = shared.config.volumes.iter().filter_map(|volume| {
        let is_gone = shared.is_gone(state, &volume.name);
        let bytes = state.monitors.get(&volume.name)?.working_set_bytes(volume.block_size, is_gone)?;
        Some((volume.name.as_str(), bytes as f64))
    });
    text.of_volumes(common::WORKING_SET, bytes);
}

fn controller(text: &mut Text, shared: &Shared, state: &State) {
    let decisions = state.decision_counts.iter().map(|(kind, count)| (kind.as_str(), *count));
    common::controller(text, &report::controller(shared, state), decisions);
    text.family("forebay_controller_actions_total", "counter", "What was done, by action and outcome.");
    for ((action, outcome), count) in &state.action_counts {
        let labels = [("action", *action), ("outcome", *outcome)];
        text.sample("forebay_controller_actions_total", &labels, *count as f64);
    }
}

fn snapshots(text: &mut Text, shared: &Shared) {
    if shared.config.snapshots.is_none() {
        return;
    }
    let has_trouble = shared.snapshot_store.as_ref().is_some_and(|store| store.trouble().is_some());
    let help = "1 while the place of snapshots does not answer, or none can be written, be it of one volume, which is tried again.";
    text.single("forebay_snapshots_unavailable", "gauge", help, f64::from(u8::from(has_trouble)));
    let counters = &shared.snapshot_counters;
    for (name, help, counter) in [
        ("forebay_snapshots_taken_total", "Snapshots of what caches hold, written.", &counters.taken),
        ("forebay_snapshots_failed_total", "Snapshots that could not be taken or written.", &counters.failed),
        (
            "forebay_snapshots_expired_total",
            "Snapshots deleted, since there were newer ones.",
            &counters.expired,
        ),
        ("forebay_snapshots_written_bytes_total", "Bytes of snapshots.", &counters.bytes),
        ("forebay_snapshots_used_total", "Snapshots read to load caches from.", &counters.used),
        ("forebay_snapshots_refused_total", "Snapshots found damaged or foreign.", &counters.refused),
    ] {
        text.single(name, "counter", help, counter.load(Ordering::Relaxed) as f64);
    }
    let name = "forebay_snapshots_taking_seconds_total";
    let help = "How long taking snapshots took all together, off the data path.";
    text.single(name, "counter", help, counters.taking_us.load(Ordering::Relaxed) as f64 / 1e6);
}

type Volumes<'a> = [(VolumeSnapshot, &'a Monitor)];

fn per_volume(text: &mut Text, volumes: &Volumes<'_>) {
    let mut gauge = |gauge: Gauge, of: &dyn Fn(&VolumeSnapshot) -> f64| {
        text.of_volumes(gauge, volumes.iter().map(|(volume, _)| (volume.name.as_str(), of(volume))));
    };
    gauge(("forebay_volume_size_bytes", "Size of the volume."), &|volume| volume.size.as_f64());
    gauge(("forebay_volume_connections", "Clients of the volume."), &|volume| volume.connections as f64);
    gauge(("forebay_volume_requests_in_flight", "Client requests in flight."), &|volume| {
        volume.observation.requests_in_flight as f64
    });
    text.family("forebay_volume_requests_total", "counter", "Client requests that arrived, by operation; trims and zeroes are no writes here, though they are among the latencies of writes.");
    for (volume, _) in volumes {
        let seen = &volume.observation.counters;
        for (op, count) in [
            ("read", seen.reads),
            ("write", seen.writes),
            ("flush", seen.flushes),
            ("trim", seen.trims),
            ("write_zeroes", seen.write_zeroes),
            ("cache", seen.cache_requests),
            ("block_status", seen.status_requests),
        ] {
            text.sample(
                "forebay_volume_requests_total",
                &[("volume", &volume.name), ("op", op)],
                count as f64,
            );
        }
    }
    text.family("forebay_volume_request_bytes_total", "counter", "Bytes that clients read and wrote.");
    for (volume, _) in volumes {
        let seen = &volume.observation.counters;
        for (op, count) in [("read", seen.bytes_read), ("write", seen.bytes_written)] {
            text.sample(
                "forebay_volume_request_bytes_total",
                &[("volume", &volume.name), ("op", op)],
                count as f64,
            );
        }
    }
    let name = "forebay_volume_request_size_bytes";
    text.family(
        name,
        "histogram",
        "How long the reads and writes of clients are that arrived; without trims and zeroes.",
    );
    for (volume, _) in volumes {
        let seen = &volume.observation.counters;
        for (op, sizes, bytes) in
            [("read", &seen.read_sizes, seen.bytes_read), ("write", &seen.write_sizes, seen.bytes_written)]
        {
            text.sizes(name, &[("volume", &volume.name), ("op", op)], sizes, bytes);
        }
    }
    text.family(
        "forebay_volume_request_errors_total",
        "counter",
        "Client requests answered with an error of the origin, or of the cache for it.",
    );
    for (volume, _) in volumes {
        let errors = volume.observation.counters.errors as f64;
        text.sample("forebay_volume_request_errors_total", &[("volume", &volume.name)], errors);
    }
    let name = "forebay_volume_request_duration_seconds";
    text.family(
        name,
        "histogram",
        "From the arrival of a client's request to its reply, unless that is an error; an edge at each objective's bound. Latencies are rounded up by less than 1 %, as percentiles are that are judged. Under write are trims and zeroes, too.",
    );
    for (volume, monitor) in volumes {
        let latencies = monitor.latencies_with(volume);
        text.latencies(name, &[("volume", &volume.name), ("op", "read")], &monitor.edges, &latencies.reads);
        text.latencies(name, &[("volume", &volume.name), ("op", "write")], &monitor.edges, &latencies.writes);
        text.latencies(
            name,
            &[("volume", &volume.name), ("op", "flush")],
            &monitor.edges,
            &latencies.flushes,
        );
    }
}

fn caches(text: &mut Text, volumes: &Volumes<'_>) {
    text.family(
        "forebay_cache_requests_total",
        "counter",
        "Read requests, by whether the cache in memory alone answered all of it; what flash answers is a miss here, see forebay_flash_lookups_total.",
    );
    for (volume, _) in volumes {
        let seen = &volume.observation.counters;
        for (result, count) in [("hit", seen.reads_hit), ("miss", seen.reads.saturating_sub(seen.reads_hit))]
        {
            let labels = [("volume", volume.name.as_str()), ("result", result)];
            text.sample("forebay_cache_requests_total", &labels, count as f64);
        }
    }
    text.family(
        "forebay_cache_lookups_total",
        "counter",
        "Blocks that reads asked for, by what the cache in memory had; bypass: it was not looked at, because the volume had no cache.",
    );
    for (volume, _) in volumes {
        let seen = &volume.observation.cache;
        for (result, count) in [("hit", seen.hits), ("miss", seen.misses), ("bypass", seen.bypasses)] {
            let labels = [("volume", volume.name.as_str()), ("result", result)];
            text.sample("forebay_cache_lookups_total", &labels, count as f64);
        }
    }
    type Of = fn(&VolumeSnapshot) -> u64;
    let counters: [(&str, &str, Of); 6] = [
        ("forebay_cache_insertions_total", "Blocks inserted.", |volume| volume.observation.cache.insertions),
        ("forebay_cache_prewarmed_total", "Blocks inserted by warm-up.", |volume| {
            volume.observation.cache.prewarmed
        }),
        ("forebay_cache_evictions_total", "Blocks that left for others.", |volume| {
            volume.observation.cache.evictions
        }),
        ("forebay_cache_invalidations_total", "Blocks that were no longer true.", |volume| {
            volume.observation.cache.invalidations
        }),
        (
            "forebay_cache_fills_dropped_total",
            "Origin reads not cached since a write overlapped them.",
            |volume| volume.observation.counters.fills_dropped,
        ),
        (
            "forebay_cache_changes_entered_total",
            "Blocks cached with what a write made of them, since a read had missed them meanwhile.",
            |volume| volume.observation.counters.changes_entered,
        ),
    ];
    let gauges: [(Gauge, Of); 4] = [
        (common::CACHE_CAPACITY, |volume| volume.observation.quota_bytes.get()),
        (common::CACHE_USED, |volume| volume.observation.resident_bytes.get()),
        (("forebay_cache_held_bytes", "Memory mapped for data."), |volume| {
            volume.observation.held_bytes.get()
        }),
        (("forebay_warmup_remaining_bytes", "What a warm-up has yet to look at."), |volume| {
            let running = volume.observation.prewarm.filter(|prewarm| prewarm.ended.is_none());
            running.map_or(0, |prewarm| prewarm.remaining_bytes.get())
        }),
    ];
    for (name, help, of) in counters {
        text.family(name, "counter", help);
        for (volume, _) in volumes {
            text.sample(name, &[("volume", &volume.name)], of(volume) as f64);
        }
    }
    for (gauge, of) in gauges {
        let each = volumes.iter().map(|(volume, _)| (volume.name.as_str(), of(volume) as f64));
        text.of_volumes(gauge, each);
    }
}

fn flash(text: &mut Text, shared: &Shared, state: &State, volumes: &Volumes<'_>) {
    let Some(store) = &shared.flash else { return };
    text.family("forebay_flash_device_bytes", "gauge", "Bytes of the flash device for blocks.");
    text.sample("forebay_flash_device_bytes", &[], store.capacity().as_f64());
    text.family(
        "forebay_flash_device_taken_bytes",
        "gauge",
        "Bytes of the flash device that volumes have taken.",
    );
    text.sample("forebay_flash_device_taken_bytes", &[], store.taken().as_f64());
    text.family(
        "forebay_flash_device_missing",
        "gauge",
        "1 while the flash file that is served from is not the one at its path: it was removed, or replaced.",
    );
    text.sample("forebay_flash_device_missing", &[], f64::from(u8::from(state.flash_trouble.is_some())));
    let of =
        || volumes.iter().filter_map(|(volume, _)| Some((volume.name.as_str(), volume.observation.flash?)));
    text.family(
        "forebay_flash_lookups_total",
        "counter",
        "Blocks that memory did not have, by what flash had; damaged: not what was written; error: it could not be read.",
    );
    for (volume, flash) in of() {
        let seen = flash.statistics;
        let results = [
            ("hit", seen.hits),
            ("miss", seen.misses),
            ("damaged", seen.corrupt),
            ("error", seen.read_errors),
        ];
        for (result, count) in results {
            text.sample(
                "forebay_flash_lookups_total",
                &[("volume", volume), ("result", result)],
                count as f64,
            );
        }
    }
    type Of = fn(&FlashObservation) -> u64;
    let families: [(&str, &str, &str, Of); 9] = [
        ("forebay_flash_appended_total", "counter", "Blocks that entered flash.", |flash| {
            flash.statistics.appended
        }),
        (
            "forebay_flash_refused_total",
            "counter",
            "Blocks that did not, because the device did not keep up.",
            |flash| flash.statistics.refused,
        ),
        ("forebay_flash_evictions_total", "counter", "Blocks that left for others.", |flash| {
            flash.statistics.evictions
        }),
        ("forebay_flash_invalidations_total", "counter", "Blocks that were no longer true.", |flash| {
            flash.statistics.invalidations
        }),
        ("forebay_flash_segments_written_total", "counter", "Segments written.", |flash| {
            flash.statistics.segments_written
        }),
        ("forebay_flash_write_errors_total", "counter", "Segments that could not be written.", |flash| {
            flash.statistics.write_errors
        }),
        ("forebay_flash_recovered_blocks", "gauge", "Blocks that were there at the start.", |flash| {
            flash.statistics.recovered
        }),
        ("forebay_flash_capacity_bytes", "gauge", "The quota on flash.", |flash| flash.quota_bytes.get()),
        ("forebay_flash_used_bytes", "gauge", "Data on flash.", |flash| flash.resident_bytes.get()),
    ];
    for (name, kind, help, value) in families {
        text.family(name, kind, help);
        for (volume, flash) in of() {
            text.sample(name, &[("volume", volume)], value(&flash) as f64);
        }
    }
}

fn placement(text: &mut Text, volumes: &Volumes<'_>) {
    let of = || {
        volumes
            .iter()
            .filter_map(|(volume, _)| Some((volume.name.as_str(), volume.observation.flash?.placing?)))
    };
    if of().next().is_none() {
        return;
    }
    type Of = fn(&PlacingObservation) -> f64;
    let families: [(&str, &str, &str, Of); 9] = [
        (
            "forebay_placement_threshold",
            "gauge",
            "The count that a chunk must reach to be placed on flash; 0 where counts do not decide.",
            |seen| seen.threshold.unwrap_or(0).into(),
        ),
        ("forebay_placement_capacity_chunks", "gauge", "Chunks that may be placed on flash.", |seen| {
            seen.capacity_chunks.into()
        }),
        ("forebay_placement_placed_chunks", "gauge", "Chunks that are placed on flash.", |seen| {
            seen.placed_chunks.into()
        }),
        (
            "forebay_placement_budget_bytes_per_second",
            "gauge",
            "What migrations may read of the origin.",
            |seen| seen.bytes_per_second as f64,
        ),
        ("forebay_placement_promotions_total", "counter", "Migrations of chunks begun.", |seen| {
            seen.in_all.promotions as f64
        }),
        (
            "forebay_placement_displaced_total",
            "counter",
            "Chunks that lost their place to another.",
            |seen| seen.in_all.displaced as f64,
        ),
        (
            "forebay_placement_left_total",
            "counter",
            "Chunks that lost their place because they were worth nothing any more.",
            |seen| seen.in_all.left as f64,
        ),
        (
            "forebay_placement_deferred_total",
            "counter",
            "Chunks that were hot enough when there was no budget to move them.",
            |seen| seen.in_all.deferred as f64,
        ),
        (
            "forebay_placement_halvings_total",
            "counter",
            "Times that the budget was halved because clients felt migrations.",
            |seen| seen.in_all.halvings as f64,
        ),
    ];
    for (name, kind, help, value) in families {
        text.family(name, kind, help);
        for (volume, seen) in of() {
            text.sample(name, &[("volume", volume)], value(&seen));
        }
    }
}

fn objectives(text: &mut Text, volumes: &Volumes<'_>) {
    let promises = volumes.iter().flat_map(|(volume, monitor)| {
        // Series are bounded by the configuration, so reservations have none.
        let tracks = monitor.tracks.iter().filter(|track| track.reservation.is_none());
        tracks.enumerate().map(|(at, track)| Promise {
            volume: &volume.name,
            at,
            objective: track.objective.to_string(),
            windows: track.windows,
            conforming_share: track.conforming_share(),
            conforming_share_target: track.objective.conforming_share,
        })
    });
    common::objectives(text, &promises.collect::<Vec<_>>());
}

fn origins(text: &mut Text, shared: &Shared, volumes: &Volumes<'_>, utilisation: &BTreeMap<String, f64>) {
    let is_up = |volume: &VolumeConfig| match volumes.iter().find(|(served, _)| served.name == volume.name) {
        Some((served, _)) => served.origin_statistics.state == OriginState::Up,
        None => shared.appliance.observe(&volume.name, false).is_ok(),
    };
    let up = shared.config.volumes.iter().map(|volume| (volume.name.as_str(), f64::from(is_up(volume))));
    text.of_volumes(common::ORIGIN_UP, up);
    text.family(
        "forebay_origin_utilisation",
        "gauge",
        "Share of the last interval in which the origin's devices worked, where it says so.",
    );
    for (volume, _) in volumes {
        if let Some(share) = utilisation.get(&volume.name) {
            text.sample("forebay_origin_utilisation", &[("volume", &volume.name)], *share);
        }
    }
    let in_doubt = volumes.iter().map(|(volume, _)| {
        let bytes: u64 = volume.observation.in_doubt.iter().map(|range| range.length).sum();
        (volume.name.as_str(), bytes as f64)
    });
    text.of_volumes(common::IN_DOUBT, in_doubt);
    text.family(
        "forebay_origin_oldest_in_flight_seconds",
        "gauge",
        "For how long the oldest request that the origin, an export, has not answered has waited; 0 where there is none.",
    );
    for (volume, _) in volumes {
        let oldest_s = volume.origin_statistics.oldest_in_flight.as_secs_f64();
        text.sample("forebay_origin_oldest_in_flight_seconds", &[("volume", &volume.name)], oldest_s);
    }
    text.family("forebay_origin_requests_total", "counter", "Requests sent to the origin.");
    for (volume, _) in volumes {
        let count = volume.observation.counters.origin_requests as f64;
        text.sample("forebay_origin_requests_total", &[("volume", &volume.name)], count);
    }
    text.family(
        "forebay_origin_request_errors_total",
        "counter",
        "Requests to the origin that ended in an error.",
    );
    for (volume, _) in volumes {
        let count = volume.observation.counters.origin_errors as f64;
        text.sample("forebay_origin_request_errors_total", &[("volume", &volume.name)], count);
    }
    let name = "forebay_origin_request_duration_seconds";
    text.family(name, "histogram", "From the submission of a request to the origin to its completion.");
    for (volume, monitor) in volumes {
        let latencies = monitor.latencies_with(volume);
        text.latencies(name, &[("volume", &volume.name)], &monitor.edges, &latencies.origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::tests::unused;
    use forebay_appliance::volume::{PrewarmEnd, PrewarmProgress};
    use forebay_control::{Objective, Operations, VolumeId};
    use forebay_units::{Bytes, Nanos};

    #[test]
    fn numbers_stand_under_their_names() {
        let promise = Objective::mean_latency(Nanos::millis(1), Operations::All);
        let mut monitor = Monitor::new(VolumeId(0), &[promise], Nanos::secs(1));
        monitor.tracks[0].windows = [3, 2, 1];
        let mut seen = unused();
        let observation = &mut seen.observation;
        (observation.counters.errors, observation.counters.origin_errors) = (5, 7);
        (observation.cache.evictions, observation.cache.invalidations) = (4, 9);
        let told = |ended, seen: &VolumeSnapshot| {
            let mut seen = seen.clone();
            seen.observation.prewarm = Some(PrewarmProgress {
                total_bytes: Bytes(8),
                remaining_bytes: Bytes(6),
                loaded_bytes: Bytes(2),
                skipped_bytes: Bytes::ZERO,
                failed_bytes: Bytes::ZERO,
                bytes_per_second: None,
                ended,
            });
            let volumes = [(seen, &monitor)];
            let mut text = Text::default();
            per_volume(&mut text, &volumes);
            caches(&mut text, &volumes);
            objectives(&mut text, &volumes);
            text.finish()
        };
        let (text, ended) = (told(None, &seen), told(Some(PrewarmEnd::Cancelled), &seen));
        let verdict = |word, count| {
            let labels = format!("volume=\"a\",index=\"0\",objective=\"{}\"", monitor.tracks[0].objective);
            format!("forebay_slo_windows_total{{{labels},verdict=\"{word}\"}} {count}\n")
        };
        for line in [
            "forebay_volume_request_errors_total{volume=\"a\"} 5\n",
            "forebay_cache_evictions_total{volume=\"a\"} 4\n",
            "forebay_cache_invalidations_total{volume=\"a\"} 9\n",
            "forebay_warmup_remaining_bytes{volume=\"a\"} 6\n",
            &verdict("conforming", 3),
            &verdict("nonconforming", 2),
            &verdict("low_load", 1),
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(ended.contains("forebay_warmup_remaining_bytes{volume=\"a\"} 0\n"), "{ended}");
    }
}
