//! Where a trace's volumes lie on the target.

use crate::survey::Survey;
use forebay_trace::{Request, VolumeIndex};
use forebay_units::{ByteRange, Bytes};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Volumes that are laid one after the other begin at a multiple of this (ours).
const VOLUME_ALIGNMENT: u64 = 1 << 20;

/// To what addresses are rounded down when they are scaled (ours): requests that were aligned stay so.
const SCALE_ALIGNMENT: u64 = 4096;

/// What becomes of addresses where the target is smaller than the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// They are taken modulo the target's size: runs stay runs, and places that were far apart may become one.
    #[default]
    Wrap,
    /// They are multiplied by (target's size / trace's size) and rounded down to 4 KiB: the order of places stays, and
    /// requests that followed each other may overlap.
    Scale,
    /// The replay is refused.
    Refuse,
}

impl FromStr for Fit {
    type Err = ParseFitError;

    fn from_str(text: &str) -> Result<Fit, ParseFitError> {
        match text {
            "wrap" => Ok(Fit::Wrap),
            "scale" => Ok(Fit::Scale),
            "refuse" => Ok(Fit::Refuse),
            _ => Err(ParseFitError { found: text.to_owned() }),
        }
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Fit::Wrap => "wrap",
            Fit::Scale => "scale",
            Fit::Refuse => "refuse",
        })
    }
}

/// A text that names no [`Fit`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{found}` says nothing about a small target: expected `wrap`, `scale` or `refuse`")]
pub struct ParseFitError {
    found: String,
}

/// Why a trace cannot be laid on a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MapError {
    /// The target is too small, and is not to be mapped onto.
    #[error("the trace reaches {needed}, but the target has {found}")]
    TargetTooSmall {
        /// What the trace's volumes take.
        needed: Bytes,
        /// What there is.
        found: Bytes,
    },
    /// The target has no room for one request.
    #[error("the target has {found}: expected at least one unit of {unit}")]
    NoTarget {
        /// What there is.
        found: Bytes,
        /// The unit in which it is addressed.
        unit: Bytes,
    },
    /// The volumes end beyond 2^64.
    #[error("the trace's volumes laid one after the other do not fit 2^64 bytes")]
    TooLarge,
}

/// Maps requests of a trace to ranges of a target.
///
/// The volumes that are played lie one after the other, in order of their index, each as long as the trace reaches into it and
/// rounded up to 1 MiB. Ranges grow outward to the unit in which the target is addressed; what is longer than the target is cut.
#[derive(Clone, Debug)]
pub struct AddressMap {
    /// Where each volume begins; `None` where it is not played.
    starts: Vec<Option<u64>>,
    /// One past the last byte that is reached.
    extent: u64,
    /// The target's size, in whole units.
    size: u64,
    unit: u64,
    fit: Fit,
}

/// What mapping did to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Which bytes of the target; whole units, inside it.
    pub range: ByteRange,
    /// It grew to whole units.
    pub is_widened: bool,
    /// It lies elsewhere than in the trace, because the target is too small.
    pub is_moved: bool,
    /// It is shorter than in the trace, because the target is.
    pub is_cut: bool,
}

impl AddressMap {
    /// Lays `only` these volumes of a trace, or all, on a target of `size_bytes` that is addressed in units of `unit_bytes`.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(
        survey: &Survey,
        only: Option<&[VolumeIndex]>,
        size_bytes: u64,
        unit_bytes: u64,
        fit: Fit,
    ) -> Result<AddressMap, MapError> {
        let size = size_bytes - size_bytes % unit_bytes;
        if size == 0 {
            return Err(MapError::NoTarget { found: Bytes(size_bytes), unit: Bytes(unit_bytes) });
        }
        let (mut starts, mut extent) = (Vec::new(), 0u64);
        for (index, volume) in survey.volumes.iter().enumerate() {
            if only.is_some_and(|only| !only.contains(&VolumeIndex(index as u32))) {
                starts.push(None);
                continue;
            }
            let start = extent.checked_next_multiple_of(VOLUME_ALIGNMENT).ok_or(MapError::TooLarge)?;
            starts.push(Some(start));
            extent = start.checked_add(volume.end).ok_or(MapError::TooLarge)?;
        }
        if fit == Fit::Refuse && extent.div_ceil(unit_bytes) > size / unit_bytes {
            return Err(MapError::TargetTooSmall { needed: Bytes(extent), found: Bytes(size_bytes) });
        }
        Ok(AddressMap { starts, extent, size, unit: unit_bytes, fit })
    }

    /// One past the last byte that the volumes that are played reach, before anything is fitted to the target.
    pub fn extent_bytes(&self) -> u64 {
        self.extent
    }

    /// Whether addresses are changed to fit.
    pub fn is_fitted(&self) -> bool {
        self.extent > self.size
    }

    /// Where `request` goes; `None` if its volume is not played.
    pub fn map(&self, request: &Request) -> Option<Mapped> {
        let start = (*self.starts.get(request.volume.0 as usize)?)?;
        if request.length == 0 {
            return Some(Mapped {
                range: ByteRange::default(),
                is_widened: false,
                is_moved: false,
                is_cut: false,
            });
        }
        let at = start + request.offset;
        let first = at - at % self.unit;
        // The last unit may end beyond 2^64.
        let end = (u128::from(at) + u128::from(request.length)).next_multiple_of(u128::from(self.unit));
        let whole = end - u128::from(first);
        let length = whole.min(u128::from(self.size)) as u64;
        let offset = match self.fit {
            _ if !self.is_fitted() => first,
            Fit::Scale => {
                let scaled = (u128::from(first) * u128::from(self.size) / u128::from(self.extent)) as u64;
                scaled - scaled % SCALE_ALIGNMENT.max(self.unit)
            }
            _ => first % self.size,
        };
        // What would reach over the end lies at the end.
        let offset = offset.min(self.size - length);
        Some(Mapped {
            range: ByteRange::new(offset, length),
            is_widened: whole > u128::from(request.length),
            is_moved: offset != first,
            is_cut: u128::from(length) < whole,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::tests::request;
    use forebay_trace::Operation;
    use forebay_units::Nanos;
    use proptest::prelude::*;

    fn read(volume: u32, offset: u64, length: u64) -> Request {
        request(Nanos::ZERO, Operation::Read, volume, offset, length)
    }

    fn map(requests: &[Request], only: Option<&[VolumeIndex]>, size: u64, unit: u64, fit: Fit) -> AddressMap {
        let mut survey = Survey::new();
        survey.add(requests);
        AddressMap::new(&survey, only, size, unit, fit).unwrap()
    }

    #[test]
    fn volumes_lie_one_after_the_other() {
        let requests = [read(0, 100, 412), read(1, 0, 3 << 20), read(2, 4096, 4096)];
        let all = map(&requests, None, 1 << 30, 512, Fit::Refuse);
        let offsets = requests.map(|request| all.map(&request).unwrap().range);
        // Volume 0 ends at 512, so 1 begins at 1 MiB and ends at 4 MiB, where 2 begins.
        assert_eq!(
            offsets,
            [
                ByteRange::new(0, 512),
                ByteRange::new(1 << 20, 3 << 20),
                ByteRange::new((4 << 20) + 4096, 4096)
            ]
        );
        assert_eq!((all.extent_bytes(), all.is_fitted()), ((4 << 20) + 8192, false));
        let one = map(&requests, Some(&[VolumeIndex(2)]), 1 << 30, 1, Fit::Refuse);
        assert_eq!(one.map(&requests[0]), None);
        assert_eq!(one.map(&requests[2]).unwrap().range, ByteRange::new(4096, 4096));
    }

    #[test]
    fn a_small_target_is_wrapped_scaled_or_refused() {
        let requests = [read(0, 0, 4096), read(0, 96 << 10, 4096), read(0, 1020 << 10, 4096)];
        let wrapped = map(&requests, None, 64 << 10, 512, Fit::Wrap);
        // 96 KiB modulo 64 KiB is 32 KiB; 1,020 KiB is 15 * 64 KiB + 60 KiB.
        let offsets = requests.map(|request| wrapped.map(&request).unwrap().range.offset >> 10);
        assert_eq!(offsets, [0, 32, 60]);
        let scaled = map(&requests, None, 64 << 10, 512, Fit::Scale);
        // 1 MiB onto 64 KiB is a sixteenth: 6 KiB is rounded down to 4 KiB, 63.75 KiB to 60 KiB.
        let offsets = requests.map(|request| scaled.map(&request).unwrap().range.offset >> 10);
        assert_eq!(offsets, [0, 4, 60]);
        let mut survey = Survey::new();
        survey.add(&requests);
        let refused = AddressMap::new(&survey, None, 64 << 10, 512, Fit::Refuse).unwrap_err();
        assert_eq!(refused.to_string(), "the trace reaches 1MiB, but the target has 64KiB");
        let nothing = AddressMap::new(&survey, None, 511, 512, Fit::Wrap).unwrap_err();
        assert!(matches!(nothing, MapError::NoTarget { .. }));
        // A request longer than the target is cut to it.
        let long = map(&[read(0, 0, 1 << 20)], None, 64 << 10, 512, Fit::Wrap).map(&read(0, 512, 1 << 20));
        let long = long.unwrap();
        assert_eq!((long.range, long.is_cut), (ByteRange::new(0, 64 << 10), true));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Whatever is asked of whatever target, the answer is whole units inside it.
        #[test]
        fn mapped_ranges_lie_inside(
            offset in prop_oneof![any::<u64>(), 0u64..1 << 24],
            length in prop_oneof![1u64..1 << 36, 1u64..1 << 16],
            size in prop_oneof![1u64..1 << 20, 1u64..1 << 40],
            unit in prop::sample::select(vec![1u64, 512, 4096]),
            fit in prop::sample::select(vec![Fit::Wrap, Fit::Scale]),
        ) {
            let request = read(0, offset, length.min(u64::MAX - offset).max(1));
            prop_assume!(size >= unit && request.offset.checked_add(request.length).is_some());
            let mut survey = Survey::new();
            survey.add(&[request]);
            let Ok(map) = AddressMap::new(&survey, None, size, unit, fit) else { return Ok(()) };
            let range = map.map(&request).unwrap().range;
            prop_assert!(range.end() <= size && range.length > 0);
            prop_assert!(range.offset % unit == 0 && range.length % unit == 0, "{range:?} in units of {unit}");
        }
    }
}
