//! What the controller remembers of the past (`control::foresight`), kept over restarts in a small file beside the history.

use crate::clock::Stamp;
use crate::kept;
use forebay_control::{Controller, Past};
use forebay_units::Nanos;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
struct Kept {
    /// When it was written.
    #[serde(flatten)]
    at: Stamp,
    past: Past,
}

/// The file that belongs to a history.
pub(crate) fn file_of(history: &Path) -> PathBuf {
    let mut name = history.as_os_str().to_owned();
    name.push(".past");
    PathBuf::from(name)
}

/// Has `controller`, who is told of an interval of this length every time, recall what `file` keeps. What cannot be read is told, and overwritten in time: it is a help, no promise.
pub(crate) fn recall(file: &Path, controller: &mut Controller, now: &Stamp, interval: Nanos) {
    let kept = match kept::read::<Kept>(file) {
        Ok(Some(kept)) => kept,
        Ok(None) => return,
        Err(reason) => {
            tracing::warn!(file = %file.display(), reason, "the past is not recalled");
            return;
        }
    };
    let away = now.since(&kept.at);
    match controller.recall_past(kept.past, away, interval) {
        Ok(volumes) => tracing::info!(volumes, %away, "the past is recalled"),
        Err(error) => tracing::warn!(file = %file.display(), %error, "the past is not recalled"),
    }
}

/// Keeps what `controller` remembers.
pub(crate) fn keep(file: &Path, controller: &Controller, now: Stamp, interval: Nanos) {
    let kept = Kept { at: now, past: controller.past(interval) };
    if let Err(error) = kept::replace(file, &kept) {
        tracing::warn!(file = %file.display(), %error, "the past is not kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::foresight::ForesightRules;
    use forebay_control::{
        ControlConfig, HostId, Observation, OriginId, VolumeId, VolumeObservation, VolumeSpec,
    };
    use forebay_units::{BlockSize, Bytes};

    fn controller(number: u32) -> Controller {
        let foresight = ForesightRules { bucket_intervals: 2, ..ForesightRules::default() };
        let config = ControlConfig { foresight, ..ControlConfig::default() };
        let mut controller = Controller::new(config, Bytes::mib(1), Vec::new(), Vec::new()).unwrap();
        let spec = VolumeSpec {
            id: VolumeId(number),
            name: "db".to_owned(),
            size: Bytes::mib(1),
            block_size: BlockSize::DEFAULT,
            origin: OriginId(0),
            host: HostId(0),
            objectives: Vec::new(),
            may_cache: true,
            minimum: Bytes::ZERO,
            maximum: None,
        };
        controller.register(spec).unwrap();
        controller
    }

    #[test]
    fn another_controller_recalls_what_was_kept_and_rubbish_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_of(&folder.path().join("history.db"));
        assert!(file.ends_with("history.db.past"));
        let mut before = controller(3);
        for step in 1..=10 {
            let interval = Nanos::secs(1);
            let volumes = vec![VolumeObservation::idle(VolumeId(3), interval)];
            before.step(&Observation { at: Nanos::secs(step), interval, volumes, ..Observation::default() });
        }
        let at = |unix_ms: i64| -> Stamp {
            serde_json::from_value(serde_json::json!({ "at_unix_ms": unix_ms })).unwrap()
        };
        keep(&file, &before, at(1_000_000), Nanos::secs(1));
        let told = |controller: &Controller| {
            serde_json::to_value(controller.past(Nanos::secs(1))).unwrap()["volumes"][0][2].clone()
        };
        assert_eq!(told(&before)["now"], 5);
        // The volume has another number now. Eight seconds are four buckets; a clock that went back is none.
        let mut after = controller(0);
        recall(&file, &mut after, &at(1_008_000), Nanos::secs(1));
        assert_eq!(told(&after)["now"], 9);
        let mut after = controller(0);
        recall(&file, &mut after, &at(5), Nanos::secs(1));
        assert_eq!(told(&after), told(&before));
        std::fs::write(&file, "{").unwrap();
        let mut after = controller(0);
        recall(&file, &mut after, &at(5), Nanos::secs(1));
        assert_eq!(told(&after)["now"], 0);
    }
}
