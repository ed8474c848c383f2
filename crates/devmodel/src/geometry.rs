//! Where a byte lies on a disk, and how long it takes to get there and to transfer it.

use crate::buffer::DiskBuffer;
use forebay_units::{Nanos, nearest};
use thiserror::Error;

/// A head that is late by at most this share of a turn has not missed its sector (ours: a track of today's disks holds
/// 2,000 to 4,000 sectors).
const LATE_SHARE: u64 = 4096;

/// What makes a disk: all durations are non-negative, and zero switches their part of the model off.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskParameters {
    /// Capacity in bytes, above 0.
    pub capacity_bytes: u64,
    /// Cylinders, at least 1: the unit of seek distance.
    pub cylinders: u64,
    /// Seek over one cylinder, settling included. A seek over no cylinder takes no time.
    pub seek_track: Nanos,
    /// Seek over a third of the cylinders, which data sheets call the average seek; at least `seek_track`.
    pub seek_average: Nanos,
    /// Seek over all cylinders; at least `seek_average`.
    pub seek_full: Nanos,
    /// One turn of the platters; zero: no rotational latency.
    pub rotation: Nanos,
    /// Media rate of the outermost zone (the lowest addresses), in bytes per second; 0: transfers take no time.
    pub rate_outer_bytes_s: u64,
    /// Media rate of the innermost zone, in bytes per second; at most the outer one. Equal: a constant rate.
    pub rate_inner_bytes_s: u64,
    /// Zones, 1 to 64, of equally many cylinders, with rates that fall linearly from the outermost to the innermost.
    pub zones: u32,
    /// From arrival until the mechanism may start on the request; it overlaps the service of earlier requests.
    pub command_latency: Nanos,
    /// Time that every request holds the mechanism besides seek, rotation and transfer.
    pub service_overhead: Nanos,
    /// The on-board cache with its read-ahead; none in the presets.
    pub buffer: DiskBuffer,
}

/// A parameter that the models cannot work with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("device parameter `{name}` is {found}: expected {expected}")]
pub struct ParameterError {
    /// Which parameter.
    pub name: &'static str,
    /// What was found.
    pub found: String,
    /// What would do.
    pub expected: &'static str,
}

impl ParameterError {
    pub(crate) fn new(name: &'static str, found: impl ToString, expected: &'static str) -> ParameterError {
        ParameterError { name, found: found.to_string(), expected }
    }
}

impl DiskParameters {
    /// A typical 7,200 rpm disk for capacity: a turn in 8.33 ms, average seek 8.5 ms, 210 to 100 MB/s (ours).
    ///
    /// About 75 random 4 KiB requests a second one at a time.
    pub fn rpm_7200(capacity_bytes: u64) -> DiskParameters {
        DiskParameters {
            capacity_bytes,
            cylinders: 200_000,
            seek_track: Nanos::micros(800),
            seek_average: Nanos::micros(8_500),
            seek_full: Nanos::millis(17),
            rotation: Nanos(8_333_333),
            rate_outer_bytes_s: 210_000_000,
            rate_inner_bytes_s: 100_000_000,
            zones: 16,
            command_latency: Nanos::micros(100),
            service_overhead: Nanos::ZERO,
            buffer: DiskBuffer::default(),
        }
    }

    /// A typical 15,000 rpm disk for speed: a turn in 4 ms, average seek 3.5 ms, 200 to 120 MB/s (ours).
    ///
    /// About 185 random 4 KiB requests a second one at a time.
    pub fn rpm_15000(capacity_bytes: u64) -> DiskParameters {
        DiskParameters {
            capacity_bytes,
            cylinders: 80_000,
            seek_track: Nanos::micros(250),
            seek_average: Nanos::micros(3_500),
            seek_full: Nanos::micros(7_500),
            rotation: Nanos::millis(4),
            rate_outer_bytes_s: 200_000_000,
            rate_inner_bytes_s: 120_000_000,
            zones: 16,
            command_latency: Nanos::micros(60),
            service_overhead: Nanos::ZERO,
            buffer: DiskBuffer::default(),
        }
    }

    /// A device that holds every request for `service`, whatever and wherever it is: for closed forms (ours).
    pub fn fixed_service(capacity_bytes: u64, service: Nanos) -> DiskParameters {
        DiskParameters {
            capacity_bytes,
            cylinders: 1,
            seek_track: Nanos::ZERO,
            seek_average: Nanos::ZERO,
            seek_full: Nanos::ZERO,
            rotation: Nanos::ZERO,
            rate_outer_bytes_s: 0,
            rate_inner_bytes_s: 0,
            zones: 1,
            command_latency: Nanos::ZERO,
            service_overhead: service,
            buffer: DiskBuffer::default(),
        }
    }
}

#[derive(Clone, Debug)]
struct Zone {
    first_byte: u64,
    bytes: u64,
    first_cylinder: u64,
    cylinders: u64,
    rate_bytes_s: u64,
    /// Bytes that pass under a head in one turn; 0 where the disk does not turn or transfers take no time.
    track_bytes: u64,
}

/// The parameters worked out: zones and the seek curve. Immutable.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    parameters: DiskParameters,
    zones: Vec<Zone>,
    /// By the offset's leading bits: the zone of the first byte that has them.
    zone_hints: Vec<u8>,
    hint_shift: u32,
    /// A third of the stroke, up to which a seek takes `a + b sqrt(d)`, and that b in nanoseconds.
    knee: u64,
    root_share: f64,
}

/// Where a byte lies. What lies beyond the disk's end counts to its last zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    zone: &'a Zone,
    /// Bytes from the zone's first one.
    inside: u64,
}

impl Place<'_> {
    /// Its cylinder; the last one for what lies beyond the end.
    pub(crate) fn cylinder(self) -> u64 {
        let Zone { bytes, cylinders, first_cylinder, .. } = *self.zone;
        first_cylinder + scaled(self.inside.min(bytes.saturating_sub(1)), cylinders, bytes.max(1))
    }

    /// The place `length` bytes further on, if it is in the same zone.
    pub(crate) fn after(self, length: u64) -> Option<Self> {
        let inside = self.inside.checked_add(length).filter(|inside| *inside < self.zone.bytes)?;
        Some(Place { inside, ..self })
    }

    /// The media rate there in bytes per second; 0 where transfers take no time.
    pub(crate) fn rate(self) -> u64 {
        self.zone.rate_bytes_s
    }

    /// Time for `length` bytes to pass under the head at the rate of this zone.
    pub(crate) fn transfer(self, length: u64) -> Nanos {
        match self.zone.rate_bytes_s {
            0 => Nanos::ZERO,
            rate => Nanos(scaled(length, 1_000_000_000, rate)),
        }
    }
}

/// `value * by / of`, rounded down, however large the product is.
#[inline]
fn scaled(value: u64, by: u64, of: u64) -> u64 {
    match value.checked_mul(by) {
        Some(product) => product / of,
        None => (u128::from(value) * u128::from(by) / u128::from(of)) as u64,
    }
}

impl Geometry {
    pub(crate) fn new(parameters: DiskParameters) -> Result<Geometry, ParameterError> {
        let p = &parameters;
        if p.capacity_bytes == 0 {
            return Err(ParameterError::new("capacity_bytes", 0, "more than 0"));
        }
        if p.cylinders == 0 {
            return Err(ParameterError::new("cylinders", 0, "at least 1"));
        }
        if !(1..=64).contains(&p.zones) || u64::from(p.zones) > p.cylinders {
            return Err(ParameterError::new("zones", p.zones, "from 1 to 64 and no more than cylinders"));
        }
        if p.seek_average < p.seek_track {
            return Err(ParameterError::new("seek_average", p.seek_average, "at least `seek_track`"));
        }
        if p.seek_full < p.seek_average {
            return Err(ParameterError::new("seek_full", p.seek_full, "at least `seek_average`"));
        }
        if p.rate_inner_bytes_s > p.rate_outer_bytes_s {
            return Err(ParameterError::new(
                "rate_inner_bytes_s",
                p.rate_inner_bytes_s,
                "at most `rate_outer_bytes_s`",
            ));
        }
        if p.rate_inner_bytes_s == 0 && p.rate_outer_bytes_s != 0 {
            return Err(ParameterError::new(
                "rate_inner_bytes_s",
                0,
                "more than 0 where `rate_outer_bytes_s` is",
            ));
        }
        if p.buffer.segments > 256 {
            return Err(ParameterError::new("buffer.segments", p.buffer.segments, "at most 256"));
        }
        if p.buffer.segments > 0
            && (p.buffer.segment_bytes == 0 || p.buffer.read_ahead_bytes > p.buffer.segment_bytes)
        {
            return Err(ParameterError::new(
                "buffer.segment_bytes",
                p.buffer.segment_bytes,
                "above 0 and at least `buffer.read_ahead_bytes`",
            ));
        }
        let zones = lay_out_zones(p);
        let knee = (p.cylinders / 3).max(1);
        // a + b = track and a + b sqrt(knee) = average; no seek within the knee looks at it where that is one cylinder.
        let root_share = (p.seek_average - p.seek_track).0 as f64 / ((knee as f64).sqrt() - 1.0);
        // Up to 128 hints, twice the most zones there are.
        let hint_shift = (p.capacity_bytes.ilog2() + 1).saturating_sub(7);
        let hinted = (0..=(p.capacity_bytes - 1) >> hint_shift).map(|hint| hint << hint_shift);
        let zone_hints = hinted.map(|offset| last_begun(&zones, offset) as u8).collect();
        Ok(Geometry { parameters, zones, zone_hints, hint_shift, knee, root_share })
    }

    pub(crate) fn parameters(&self) -> &DiskParameters {
        &self.parameters
    }

    /// Where the byte at `offset` lies. Constant cost but for zones that share a hint.
    pub(crate) fn place(&self, offset: u64) -> Place<'_> {
        let hint = ((offset >> self.hint_shift) as usize).min(self.zone_hints.len() - 1);
        let from = usize::from(self.zone_hints[hint]);
        let zone = &self.zones[from + last_begun(&self.zones[from..], offset)];
        Place { zone, inside: offset - zone.first_byte }
    }

    /// Time to move the heads over `distance` cylinders: `a + b sqrt(d)` up to a third of the stroke, linear beyond
    /// (Ruemmler and Wilkes 1994). The constants follow from the three seek times of the parameters.
    pub(crate) fn seek(&self, distance: u64) -> Nanos {
        let p = &self.parameters;
        if distance == 0 {
            return Nanos::ZERO;
        }
        let track = p.seek_track.0 as f64;
        let average = p.seek_average.0 as f64;
        if distance <= self.knee {
            if self.knee == 1 {
                return p.seek_track;
            }
            return Nanos(nearest(track + self.root_share * ((distance as f64).sqrt() - 1.0)));
        }
        let beyond = (distance - self.knee) as f64 / (p.cylinders - self.knee) as f64;
        Nanos(nearest(average + beyond * (p.seek_full.0 as f64 - average)))
    }

    /// Wait until the byte at `place` passes under the head, from the instant `at`. `phase` is where this disk's
    /// platters stand at time zero, as a part of a turn in nanoseconds, below one. Tracks are skewed so that a transfer that runs
    /// over the end of one goes on at once on the next.
    pub(crate) fn rotation_wait(&self, at: Nanos, place: Place<'_>, phase: u64) -> Nanos {
        let turn = self.parameters.rotation.0;
        if turn == 0 {
            return Nanos::ZERO;
        }
        let target = match place.zone.track_bytes {
            0 => 0,
            track => scaled(place.inside % track, turn, track),
        };
        debug_assert!(target < turn && phase < turn);
        let less_a_turn = |angle: u64| if angle >= turn { angle - turn } else { angle };
        let stands = less_a_turn(at.0 % turn + phase);
        let wait = less_a_turn(target + turn - stands);
        // Positions are rounded to nanoseconds: a head that is late by less than a sector's share has not missed it.
        Nanos(if turn - wait <= turn / LATE_SHARE { 0 } else { wait })
    }
}

/// The last of the zones that begins at `offset` or before, of few of which the first does.
fn last_begun(zones: &[Zone], offset: u64) -> usize {
    let begun = zones.iter().take_while(|zone| zone.first_byte <= offset).count();
    begun.saturating_sub(1)
}

fn lay_out_zones(p: &DiskParameters) -> Vec<Zone> {
    let count = u64::from(p.zones);
    let rates: Vec<u64> = (0..count)
        .map(|zone| {
            let fall = p.rate_outer_bytes_s - p.rate_inner_bytes_s;
            if count == 1 { p.rate_outer_bytes_s } else { p.rate_outer_bytes_s - fall * zone / (count - 1) }
        })
        .collect();
    // Zones have equally many cylinders, so that a zone holds bytes in proportion to its rate.
    let weight = |rate: u64| u128::from(rate.max(1));
    let total: u128 = rates.iter().map(|&rate| weight(rate)).sum();
    let mut zones = Vec::with_capacity(rates.len());
    let mut weight_before = 0u128;
    for (index, &rate) in rates.iter().enumerate() {
        let index = index as u64;
        let at = |weight: u128| (u128::from(p.capacity_bytes) * weight / total) as u64;
        let first_byte = at(weight_before);
        weight_before += weight(rate);
        let first_cylinder = p.cylinders * index / count;
        zones.push(Zone {
            first_byte,
            bytes: at(weight_before) - first_byte,
            first_cylinder,
            cylinders: p.cylinders * (index + 1) / count - first_cylinder,
            rate_bytes_s: rate,
            track_bytes: (u128::from(rate) * u128::from(p.rotation.0) / 1_000_000_000) as u64,
        });
    }
    zones
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seek_curve_passes_through_its_three_points() {
        let geometry = Geometry::new(DiskParameters::rpm_7200(1 << 40)).unwrap();
        assert_eq!(geometry.seek(0), Nanos::ZERO);
        assert_eq!(geometry.seek(1), Nanos::micros(800));
        assert_eq!(geometry.seek(200_000 / 3), Nanos::micros(8_500));
        assert_eq!(geometry.seek(200_000), Nanos::millis(17));
        // A quarter of the knee is half of its root: 0.8 + 7.7 * (sqrt(16666) - 1) / (sqrt(66666) - 1) = 4.636 ms.
        let quarter = geometry.seek(16_666).as_millis_f64();
        assert!((quarter - 4.635).abs() < 0.005, "{quarter}");
        let mut before = Nanos::ZERO;
        for distance in (0..200_000).step_by(97) {
            assert!(geometry.seek(distance) >= before);
            before = geometry.seek(distance);
        }
    }

    #[test]
    fn the_platters_turn_with_time() {
        // 100 MB/s and a turn of 10 ms: a track holds 1,000,000 bytes. Byte 250,000 stands at 2.5 ms of the turn.
        let mut parameters = DiskParameters::fixed_service(1 << 30, Nanos::ZERO);
        parameters.rotation = Nanos::millis(10);
        parameters.rate_outer_bytes_s = 100_000_000;
        parameters.rate_inner_bytes_s = 100_000_000;
        let geometry = Geometry::new(parameters).unwrap();
        assert_eq!(geometry.rotation_wait(Nanos::ZERO, geometry.place(250_000), 0), Nanos::micros(2_500));
        assert_eq!(geometry.rotation_wait(Nanos::millis(2), geometry.place(250_000), 0), Nanos::micros(500));
        assert_eq!(
            geometry.rotation_wait(Nanos::millis(3), geometry.place(250_000), 0),
            Nanos::micros(9_500)
        );
        assert_eq!(geometry.rotation_wait(Nanos::millis(12), geometry.place(250_000), 500_000), Nanos::ZERO);
        assert_eq!(
            geometry.rotation_wait(Nanos::millis(22), geometry.place(1_250_000), 0),
            Nanos::micros(500)
        );
        assert_eq!(geometry.place(0).transfer(4096), Nanos(40_960));
    }

    #[test]
    fn outer_zones_hold_more_and_cylinders_cover_the_disk() {
        let geometry = Geometry::new(DiskParameters::rpm_7200(1 << 40)).unwrap();
        assert_eq!(geometry.place(0).cylinder(), 0);
        assert_eq!(geometry.place((1 << 40) - 1).cylinder(), 199_999);
        // The outer half of the bytes lies on fewer than half of the cylinders.
        assert!(geometry.place(1 << 39).cylinder() < 90_000);
        assert!(
            geometry.place(0).transfer(1 << 20) < geometry.place((1 << 40) - (1 << 20)).transfer(1 << 20)
        );
        assert_eq!(geometry.zones.iter().map(|zone| zone.bytes).sum::<u64>(), 1 << 40);
    }

    #[test]
    fn every_byte_is_found_in_its_zone() {
        for (capacity, zones) in
            [(1, 1), (100, 64), (127, 3), (128, 64), (1 << 40, 1), (1 << 40, 64), (u64::MAX, 64)]
        {
            let cylinders = 80_000;
            let geometry =
                Geometry::new(DiskParameters { zones, cylinders, ..DiskParameters::rpm_15000(capacity) })
                    .unwrap();
            let begins = geometry.zones.iter().map(|zone| zone.first_byte);
            let about = begins.flat_map(|at| [at.saturating_sub(1), at, at.saturating_add(1)]);
            let spread = (0..10_000u64).map(|step| (u128::from(step) * u128::from(capacity) / 9_999) as u64);
            for offset in about.chain(spread).chain([capacity, u64::MAX]) {
                let place = geometry.place(offset);
                let after = geometry.zones.partition_point(|zone| zone.first_byte <= offset);
                let zone = &geometry.zones[after - 1];
                assert!(std::ptr::eq(place.zone, zone), "{offset} of {capacity} in {zones} zones");
                assert_eq!(place.inside, offset - zone.first_byte);
            }
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = DiskParameters::rpm_15000(1 << 30);
        let bad = [
            ("capacity_bytes", DiskParameters { capacity_bytes: 0, ..good.clone() }),
            ("cylinders", DiskParameters { cylinders: 0, ..good.clone() }),
            ("zones", DiskParameters { zones: 65, ..good.clone() }),
            ("seek_average", DiskParameters { seek_average: Nanos::ZERO, ..good.clone() }),
            ("seek_full", DiskParameters { seek_full: Nanos::millis(1), ..good.clone() }),
            ("rate_inner_bytes_s", DiskParameters { rate_inner_bytes_s: u64::MAX, ..good.clone() }),
            ("rate_inner_bytes_s", DiskParameters { rate_inner_bytes_s: 0, ..good.clone() }),
            (
                "buffer.segments",
                DiskParameters {
                    buffer: DiskBuffer { segments: 257, ..DiskBuffer::typical() },
                    ..good.clone()
                },
            ),
            (
                "buffer.segment_bytes",
                DiskParameters { buffer: DiskBuffer { segment_bytes: 1, ..DiskBuffer::typical() }, ..good },
            ),
        ];
        for (name, parameters) in bad {
            assert_eq!(Geometry::new(parameters).unwrap_err().name, name);
        }
    }
}
