//! What the windows of a run come to. Plain data in, plain data out.

use super::stage::{IOPS_MIN, LATENCY_MAX};
use serde::Serialize;

/// Windows at the end of the phase with Forebay on which the restoration is judged. 19 windows in 20 are promised: of a size that is just right three of
/// 20 miss in one run of thirteen, while of 15 two, which would be too many, miss in one of six.
pub(super) const JUDGED_WINDOWS: usize = 20;
/// The share of them that must conform, for each objective.
pub(super) const CONFORMING_MIN: f64 = 0.9;
/// Windows at the start of a phase in which queues only fill: not counted when a violation is judged.
pub(super) const SETTLING_WINDOWS: usize = 3;
/// The share of the windows without Forebay that must miss, for each objective, or there was nothing to restore.
pub(super) const MISSING_MIN: f64 = 0.75;
/// So many windows in a row that conform count as sustained.
pub(super) const SUSTAINED_WINDOWS: usize = 5;

/// One window of both workloads, as their clients saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Window {
    /// Its start, in seconds since the first phase began.
    pub(super) at_s: f64,
    /// The mean latency of `orders`' reads; absent where none completed or it was not played.
    pub(super) orders_latency_ms: Option<f64>,
    /// Reads of `orders` completed per second; absent where it was not played.
    pub(super) orders_reads_per_s: Option<f64>,
    /// Requests of `reports` completed per second; absent where it was not played.
    pub(super) reports_iops: Option<f64>,
}

impl Window {
    /// Whether `orders` was kept; `None` where it was not played. A window in which no read completed is a miss.
    pub(super) fn orders_kept(&self) -> Option<bool> {
        self.orders_reads_per_s?;
        Some(self.orders_latency_ms.is_some_and(|latency| latency <= LATENCY_MAX.as_millis_f64()))
    }

    /// Whether `reports` was kept; `None` where it was not played.
    pub(super) fn reports_kept(&self) -> Option<bool> {
        self.reports_iops.map(|iops| iops >= IOPS_MIN)
    }
}

/// Which objective.
pub(super) type Kept = fn(&Window) -> Option<bool>;

/// The share of the windows that conform; 0 without any.
pub(super) fn conforming_share(windows: &[Window], kept: Kept) -> f64 {
    let judged: Vec<bool> = windows.iter().filter_map(kept).collect();
    if judged.is_empty() {
        return 0.0;
    }
    judged.iter().filter(|kept| **kept).count() as f64 / judged.len() as f64
}

/// The windows at the end on which the restoration is judged.
pub(super) fn judged(with: &[Window]) -> &[Window] {
    &with[with.len().saturating_sub(JUDGED_WINDOWS)..]
}

/// Seconds from the start of the phase to the first of [`SUSTAINED_WINDOWS`] windows in a row in which all of `objectives`
/// are kept; `None` where there is no such row.
pub(super) fn sustained_after(with: &[Window], objectives: &[Kept]) -> Option<f64> {
    let all_kept = |window: &Window| objectives.iter().all(|kept| kept(window) == Some(true));
    let row = with.windows(SUSTAINED_WINDOWS).find(|row| row.iter().all(all_kept))?;
    Some(row[0].at_s - with[0].at_s)
}

/// What was checked of the bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Check {
    /// Bytes of client reads that were compared with what they may return.
    pub(super) bytes_read_checked: u64,
    /// Reads that returned a wrong byte.
    pub(super) wrong_reads: u64,
    /// The first wrong things, in words.
    pub(super) wrong: Vec<String>,
    /// Requests answered with an error.
    pub(super) errors: u64,
    /// The first of them, in words.
    pub(super) first_error: Option<String>,
    /// Bytes of the volumes that were compared at the end, past cache and disks.
    pub(super) bytes_compared_at_end: u64,
    /// Volumes that were wrong then.
    pub(super) wrong_volumes: u64,
}

/// Why the demonstration failed; empty where it did not.
pub(super) fn failures(without: &[Window], with: &[Window], check: &Check) -> Vec<String> {
    let mut reasons = Vec::new();
    let objectives: [(&str, Kept); 2] = [("orders", Window::orders_kept), ("reports", Window::reports_kept)];
    let settled = &without[SETTLING_WINDOWS.min(without.len())..];
    for (name, kept) in objectives {
        let missing = 1.0 - conforming_share(settled, kept);
        if missing < MISSING_MIN {
            reasons.push(format!(
                "nothing to restore: without Forebay only {:.0} % of the windows of `{name}` missed its objective, expected at \
                 least {:.0} %",
                missing * 100.0,
                MISSING_MIN * 100.0
            ));
        }
        let share = conforming_share(judged(with), kept);
        if share < CONFORMING_MIN {
            reasons.push(format!(
                "the objective of `{name}` was not restored: {:.0} % of the last {} windows conform, expected at least {:.0} %",
                share * 100.0,
                judged(with).len(),
                CONFORMING_MIN * 100.0
            ));
        }
    }
    if check.wrong_reads > 0 || check.wrong_volumes > 0 {
        let first = check.wrong.first().map_or("", String::as_str);
        reasons.push(format!(
            "{} reads returned wrong bytes and {} volumes held wrong bytes at the end; first: {first}",
            check.wrong_reads, check.wrong_volumes
        ));
    }
    if check.errors > 0 {
        let first = check.first_error.as_deref().unwrap_or("");
        reasons.push(format!("{} requests were answered with an error; first: {first}", check.errors));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(count: usize, latency_ms: f64, iops: f64) -> Vec<Window> {
        let window = |at: usize| Window {
            at_s: at as f64,
            orders_latency_ms: Some(latency_ms),
            orders_reads_per_s: Some(400.0),
            reports_iops: Some(iops),
        };
        (0..count).map(window).collect()
    }

    #[test]
    fn restored_objectives_and_right_bytes_pass_and_each_fault_is_named() {
        let (bad, good) = (windows(20, 50.0, 500.0), windows(45, 12.0, 800.0));
        let fine = Check::default();
        assert_eq!(failures(&bad, &good, &fine), Vec::<String>::new());
        // Not violated without: nothing was shown.
        let reasons = failures(&good, &good, &fine);
        assert!(reasons.len() == 2 && reasons[0].contains("nothing to restore"), "{reasons:?}");
        // Not restored.
        let reasons = failures(&bad, &bad, &fine);
        assert!(reasons.len() == 2 && reasons[1].contains("`reports` was not restored: 0 %"), "{reasons:?}");
        // 3 of the last 20 windows miss: 17/20 = 85 % < 90 %. Two: 90 %.
        let mut spoilt = good.clone();
        spoilt[43..].iter_mut().for_each(|window| window.reports_iops = Some(IOPS_MIN - 1.0));
        assert!(failures(&bad, &spoilt, &fine).is_empty());
        spoilt[25].reports_iops = Some(0.0);
        let reasons = failures(&bad, &spoilt, &fine);
        assert!(reasons.len() == 1 && reasons[0].contains("85 % of the last 20"), "{reasons:?}");
        // What lies before the judged windows does not count.
        let mut late = good.clone();
        late[..25].iter_mut().for_each(|window| window.orders_latency_ms = Some(90.0));
        assert!(failures(&bad, &late, &fine).is_empty());
        // Wrong bytes, wrong volumes, errors.
        let wrong = Check { wrong_reads: 1, wrong: vec!["sector 7 is stale".into()], ..Check::default() };
        assert!(failures(&bad, &good, &wrong)[0].contains("sector 7 is stale"));
        assert_eq!(failures(&bad, &good, &Check { wrong_volumes: 1, ..Check::default() }).len(), 1);
        let broken = Check { errors: 3, first_error: Some("EIO".into()), ..Check::default() };
        assert!(
            failures(&bad, &good, &broken)[0].contains("3 requests were answered with an error; first: EIO")
        );
    }

    #[test]
    fn a_stall_is_a_miss_and_what_is_not_played_is_not_judged() {
        let stalled = Window { orders_reads_per_s: Some(0.0), reports_iops: Some(0.0), ..Window::default() };
        assert_eq!((stalled.orders_kept(), stalled.reports_kept()), (Some(false), Some(false)));
        assert_eq!((Window::default().orders_kept(), Window::default().reports_kept()), (None, None));
        assert_eq!(conforming_share(&[Window::default()], Window::orders_kept), 0.0);
        assert_eq!(conforming_share(&[], Window::orders_kept), 0.0);
    }

    #[test]
    fn conformance_is_sustained_from_the_first_of_five_windows() {
        let mut with = windows(20, 12.0, 800.0);
        for at in [0, 1, 2, 6] {
            with[at].orders_latency_ms = Some(90.0);
        }
        // 3, 4, 5 conform, 6 does not; from 7 on all do.
        assert_eq!(sustained_after(&with, &[Window::orders_kept]), Some(7.0));
        assert_eq!(sustained_after(&with, &[Window::reports_kept]), Some(0.0));
        with[12].reports_iops = Some(1.0);
        assert_eq!(sustained_after(&with, &[Window::orders_kept, Window::reports_kept]), Some(7.0));
        with[11].reports_iops = Some(1.0);
        assert_eq!(sustained_after(&with, &[Window::orders_kept, Window::reports_kept]), Some(13.0));
        assert_eq!(sustained_after(&with[..4], &[Window::orders_kept]), None);
    }
}
