//! Axes: what is measured along them, their scale, and ticks at round numbers.

use crate::text::trimmed;
use forebay_units::Bytes;

/// What an axis measures; decides where ticks lie and how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes; ticks at powers of two, binary units.
    Bytes,
    /// Seconds since a start; ticks at whole seconds, minutes or hours.
    Time,
    /// A span in seconds, as a latency is; written in the unit that fits (`µs`, `ms`, `s`).
    Latency,
    /// A number from 0 to 1; the axis shows that whole range unless told otherwise.
    Ratio,
    /// Anything else; written with `k`, `M`, `G` where large.
    Count,
}

/// How positions follow from values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally long.
    Linear,
    /// Equal ratios are equally long; every value must be above 0.
    Log,
}

/// One axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What stands along it.
    pub label: String,
    /// What it measures.
    pub quantity: Quantity,
    /// How positions follow from values.
    pub scale: Scale,
    /// The least and the greatest value shown; what lies outside is cut off at the edge. From the data where `None`.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis over the range of the data.
    pub fn linear(label: impl Into<String>, quantity: Quantity) -> Axis {
        Axis { label: label.into(), quantity, scale: Scale::Linear, range: None }
    }

    /// A logarithmic axis over the range of the data.
    pub fn log(label: impl Into<String>, quantity: Quantity) -> Axis {
        Axis { label: label.into(), quantity, scale: Scale::Log, range: None }
    }

    /// The same axis from `low` to `high`.
    #[must_use]
    pub fn with_range(mut self, low: f64, high: f64) -> Axis {
        self.range = Some((low, high));
        self
    }
}

/// An axis laid out over `length` pixels.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    scale: Scale,
    low: f64,
    high: f64,
    length: f64,
}

impl Layout {
    /// Lays `axis` out for data from `least` to `greatest` (`None` where there is none). `grounded` axes start at 0 where no
    /// value is negative, so that heights can be compared.
    pub(crate) fn new(axis: &Axis, data: Option<(f64, f64)>, length: f64, grounded: bool) -> Layout {
        let (low, high) = match (axis.range, data) {
            (Some(range), _) => range,
            (None, _) if axis.quantity == Quantity::Ratio && axis.scale == Scale::Linear => {
                let (least, greatest) = data.unwrap_or((0.0, 1.0));
                (least.min(0.0), greatest.max(1.0))
            }
            (None, None) if axis.scale == Scale::Log => (1.0, 10.0),
            (None, None) => (0.0, 1.0),
            (None, Some((least, greatest))) if axis.scale == Scale::Log => {
                if greatest > least {
                    (least, greatest)
                } else {
                    (least / 2.0, greatest * 2.0)
                }
            }
            (None, Some((least, greatest))) => {
                let low = if grounded { least.min(0.0) } else { least };
                let high = if grounded { greatest.max(0.0) } else { greatest };
                if high > low {
                    // Room above the highest point, so that it does not lie on the frame.
                    (low, if grounded && high > 0.0 { high + (high - low) * 0.05 } else { high })
                } else if low == 0.0 {
                    (0.0, 1.0)
                } else {
                    (low - low.abs() * 0.5, high + high.abs() * 0.5)
                }
            }
        };
        Layout { scale: axis.scale, low, high, length }
    }

    /// The position of `value` in pixels from the low end, kept within the axis.
    pub(crate) fn position(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln(),
        };
        share.clamp(0.0, 1.0) * self.length
    }

    /// Whether `value` lies on the axis, ends included.
    pub(crate) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Ticks as (value, text), ascending, about `count` of them and never more than twice as many.
    pub(crate) fn ticks(&self, quantity: Quantity, count: usize) -> Vec<(f64, String)> {
        let values = match self.scale {
            Scale::Linear => linear_ticks(self.low, self.high, quantity, count),
            Scale::Log => log_ticks(self.low, self.high, quantity, count),
        };
        let largest = values.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        let step = values.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
        values.into_iter().map(|value| (value, label(value, quantity, self.scale, largest, step))).collect()
    }
}

/// The steps that people count time in: 1 s to 1 day.
const TIME_STEPS: [f64; 19] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 10_800.0,
    14_400.0, 21_600.0, 43_200.0, 86_400.0,
];

fn linear_ticks(low: f64, high: f64, quantity: Quantity, count: usize) -> Vec<f64> {
    let rough = (high - low) / count.max(1) as f64;
    let step = match quantity {
        // 1, 2, 4, ... bytes: a power of two is a round number here.
        Quantity::Bytes => 2f64.powf(rough.max(1.0).log2().ceil()),
        Quantity::Time if (1.0..=86_400.0).contains(&rough) => {
            TIME_STEPS.into_iter().find(|step| *step >= rough).unwrap_or(86_400.0)
        }
        _ => {
            let power = 10f64.powf(rough.log10().floor());
            let lead = [1.0, 2.0, 5.0].into_iter().find(|lead| lead * power >= rough * 0.999_999);
            lead.unwrap_or(10.0) * power
        }
    };
    let first = (low / step - 1e-9).ceil();
    let last = (high / step + 1e-9).floor();
    // At most about `count` ticks lie in the range; the bound guards against steps that vanish beside huge values.
    (0..=count * 2).map(|at| (first + at as f64) * step).take_while(|value| *value <= last * step).collect()
}

fn log_ticks(low: f64, high: f64, quantity: Quantity, count: usize) -> Vec<f64> {
    let inside = |value: &f64| *value >= low * 0.999_999 && *value <= high * 1.000_001;
    let count = count.max(2);
    if quantity == Quantity::Bytes {
        let (first, last) = (low.log2().ceil() as i32, high.log2().floor() as i32);
        let doublings = (last - first).max(0) as usize;
        let stride =
            [1, 2, 5, 10, 20, 40].into_iter().find(|stride| doublings / stride < count).unwrap_or(80) as i32;
        // Whole multiples of the stride, so that 1 KiB, 1 MiB and 1 GiB are among them where it is 5 or 10.
        let start = (first + stride - 1).div_euclid(stride) * stride;
        return (0..)
            .map(|at| start + at * stride)
            .take_while(|power| *power <= last)
            .map(|p| 2f64.powi(p))
            .collect();
    }
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = (last - first).max(1) as usize;
    let leads: &[f64] = match decades {
        1..=2 => &[1.0, 2.0, 5.0],
        3..=4 if count > 6 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let stride = decades.div_ceil(count).max(1);
    let mut values = Vec::new();
    for decade in (first..=last).step_by(stride) {
        values.extend(leads.iter().map(|lead| lead * 10f64.powi(decade)).filter(inside));
    }
    values
}

fn label(value: f64, quantity: Quantity, scale: Scale, largest: f64, step: f64) -> String {
    match quantity {
        Quantity::Bytes if value < 0.0 => format!("-{}", bytes(-value)),
        Quantity::Bytes => bytes(value),
        Quantity::Time => time(value, largest, step),
        Quantity::Latency => latency(value, if scale == Scale::Log { value.abs() } else { largest }),
        Quantity::Ratio => trimmed(value, 4),
        Quantity::Count => count(value, if scale == Scale::Log { value.abs() } else { largest }),
    }
}

fn bytes(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = Bytes(value.round() as u64).to_string();
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}")
}

/// One unit for the whole axis, that of its largest tick.
fn time(value: f64, largest: f64, step: f64) -> String {
    let whole = |unit: f64| step >= unit && step.is_finite() && (step / unit * 2.0).fract() == 0.0;
    match largest {
        _ if value == 0.0 => "0".to_owned(),
        172_800.0.. if whole(86_400.0) => format!("{} d", trimmed(value / 86_400.0, 2)),
        7_200.0.. if whole(1_800.0) => format!("{} h", trimmed(value / 3_600.0, 2)),
        180.0.. if whole(30.0) => format!("{} min", trimmed(value / 60.0, 2)),
        1.0.. => format!("{} s", trimmed(value, 2)),
        _ => latency(value, largest),
    }
}

fn latency(value: f64, largest: f64) -> String {
    match largest {
        _ if value == 0.0 => "0".to_owned(),
        0.999_999_9.. => format!("{} s", trimmed(value, 2)),
        0.000_999_999_9.. => format!("{} ms", trimmed(value * 1e3, 2)),
        0.000_000_999_999_9.. => format!("{} µs", trimmed(value * 1e6, 2)),
        _ => format!("{} ns", trimmed(value * 1e9, 2)),
    }
}

fn count(value: f64, largest: f64) -> String {
    let (unit, factor) = match largest {
        1e15.. => return format!("{value:e}"),
        1e12.. => ("T", 1e12),
        1e9.. => ("G", 1e9),
        1e6.. => ("M", 1e6),
        1e3.. => ("k", 1e3),
        1e-4.. => ("", 1.0),
        _ if value == 0.0 => ("", 1.0),
        _ => return format!("{value:e}"),
    };
    if value == 0.0 { "0".to_owned() } else { format!("{}{unit}", trimmed(value / factor, 4)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, data: (f64, f64), count: usize) -> Vec<String> {
        Layout::new(axis, Some(data), 100.0, false)
            .ticks(axis.quantity, count)
            .into_iter()
            .map(|(_, label)| label)
            .collect()
    }

    #[test]
    fn ticks_are_round_in_the_unit_of_the_axis() {
        let bytes = Axis::linear("", Quantity::Bytes);
        // 100 MiB / 6 = 16.7 MiB, so steps of 32 MiB.
        assert_eq!(labels(&bytes, (0.0, 100.0 * 1048576.0), 6), ["0", "32 MiB", "64 MiB", "96 MiB"]);
        let bytes = Axis::log("", Quantity::Bytes);
        // 4 KiB to 4 GiB are 20 doublings; a stride of 5 gives 2^15, 2^20, 2^25, 2^30.
        assert_eq!(labels(&bytes, (4096.0, 4.0 * 1073741824.0), 6), ["32 KiB", "1 MiB", "32 MiB", "1 GiB"]);
        let time = Axis::linear("", Quantity::Time);
        assert_eq!(labels(&time, (0.0, 90.0), 6), ["0", "15 s", "30 s", "45 s", "60 s", "75 s", "90 s"]);
        assert_eq!(
            labels(&time, (0.0, 3600.0), 6),
            ["0", "10 min", "20 min", "30 min", "40 min", "50 min", "60 min"]
        );
        assert_eq!(labels(&time, (0.0, 30_000.0), 6), ["0", "2 h", "4 h", "6 h", "8 h"]);
        let latency = Axis::linear("", Quantity::Latency);
        assert_eq!(labels(&latency, (0.0, 0.010), 5), ["0", "2 ms", "4 ms", "6 ms", "8 ms", "10 ms"]);
        let latency = Axis::log("", Quantity::Latency);
        assert_eq!(labels(&latency, (1e-4, 1.0), 5), ["100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
        let ratio = Axis::linear("", Quantity::Ratio);
        assert_eq!(labels(&ratio, (0.2, 0.4), 5), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        let count = Axis::linear("", Quantity::Count);
        assert_eq!(labels(&count, (0.0, 10_000.0), 4), ["0", "5k", "10k"]);
    }

    #[test]
    fn degenerate_ranges_still_have_a_layout() {
        let axis = Axis::linear("", Quantity::Count);
        for data in [None, Some((0.0, 0.0)), Some((5.0, 5.0)), Some((-5.0, -5.0)), Some((-2e19, 2e19))] {
            for grounded in [false, true] {
                let layout = Layout::new(&axis, data, 100.0, grounded);
                assert!(layout.high > layout.low, "{data:?}");
                let ticks = layout.ticks(Quantity::Count, 5);
                assert!(!ticks.is_empty() && ticks.len() <= 11, "{data:?}: {ticks:?}");
                assert!(ticks.iter().all(|(value, _)| layout.position(*value).is_finite()));
            }
        }
        let axis = Axis::log("", Quantity::Bytes);
        for data in [None, Some((1.0, 1.0)), Some((1e-3, 2e19))] {
            let layout = Layout::new(&axis, data, 100.0, false);
            assert!(layout.high > layout.low && layout.position(layout.high) == 100.0, "{data:?}");
        }
    }
}
