//! What the controller remembers of the past (`control::foresight`), kept over restarts in a small file beside the history.

use crate::clock::Stamp;
use crate::history::HistoryCounters;
use crate::kept;
use forebay_control::{Controller, Past, VolumeId};
use forebay_units::Nanos;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
struct Kept {
    /// When it was written.
    #[serde(flatten)]
    at: Stamp,
    past: Past,
}

/// The file of what a controller remembers. What is there and is not recalled is never overwritten.
pub(crate) struct PastFile {
    path: PathBuf,
    /// Why what is there was not recalled, while it cannot be set aside: nothing is written then.
    in_the_way: Option<String>,
}

impl PastFile {
    /// The file that belongs to a history; `controller`, who is told of an interval of this length every time, recalls what it keeps of the volumes that are called so in this order in the configuration. What cannot be recalled
    /// is told and set aside: it is a help, no promise, so that it keeps nobody from starting, and weeks of it, so that a start is not to cost them.
    pub(crate) fn recall(
        history: &Path,
        controller: &mut Controller,
        names: impl Iterator<Item = String>,
        now: &Stamp,
        interval: Nanos,
    ) -> PastFile {
        let known = names.zip((0..).map(VolumeId)).collect();
        let mut file = PastFile { path: kept::beside(history, ".past"), in_the_way: None };
        let recalled = kept::read::<Kept>(&file.path).and_then(|kept| {
            let Some(kept) = kept else { return Ok(()) };
            let away = now.since(&kept.at);
            let volumes = controller
                .recall_past(kept.past, &known, away, interval)
                .map_err(|error| error.to_string())?;
            tracing::info!(volumes, %away, "the past is recalled");
            Ok(())
        });
        if let Err(reason) = recalled
            && let Err(error) = file.set_aside(&reason)
        {
            tracing::warn!(file = %file.path.display(), reason, %error, "the past is not recalled, and its file cannot be set aside: it stays as it is, \
                and no other past is kept until it is moved away");
            file.in_the_way = Some(reason);
        }
        file
    }

    /// Moves what is there out of the way, to a name of its own, and tells of it.
    fn set_aside(&self, reason: &str) -> io::Result<()> {
        let aside = kept::beside(&self.path, ".bad");
        let was_there = aside.symlink_metadata().is_ok();
        match std::fs::rename(&self.path, &aside) {
            // Somebody did it himself.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            done => done?,
        }
        let instead = if was_there { ", in the place of what had been set aside before" } else { "" };
        let (file, aside) = (self.path.display(), aside.display());
        tracing::warn!(file = %file, aside = %aside, reason, "the past is not recalled, and its file is now `{aside}`{instead}: to have it recalled after all, \
            end this, move that file, mended, or a copy of before to `{file}`, and start again");
        Ok(())
    }

    /// Keeps what `controller` remembers; that it cannot be kept is told once, and by `counters` as long as it lasts.
    pub(crate) fn keep(
        &mut self,
        controller: &Controller,
        now: Stamp,
        interval: Nanos,
        counters: &HistoryCounters,
    ) {
        let (kept, file) = (self.replace(controller, now, interval), self.path.display());
        let mut trouble = counters.past();
        match kept {
            Ok(()) if trouble.is_over() => tracing::info!(file = %file, "the past is kept again"),
            Ok(()) => {}
            Err(error) => {
                let reason = format!("`{file}`: {error}");
                if trouble.is_news(&reason) {
                    tracing::warn!(file = %file, error, "the past is not kept; of peaks since then the next start will not know");
                }
            }
        }
    }

    fn replace(&mut self, controller: &Controller, now: Stamp, interval: Nanos) -> Result<(), String> {
        if let Some(reason) = &self.in_the_way {
            let unmoved = |error: io::Error| {
                format!("what is there was not recalled, and cannot be set aside: {error}")
            };
            self.set_aside(reason).map_err(unmoved)?;
            self.in_the_way = None;
        }
        let kept = Kept { at: now, past: controller.past(interval) };
        kept::replace(&self.path, &kept).map_err(|error| error.to_string())
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

    fn at(unix_ms: i64) -> Stamp {
        serde_json::from_value(serde_json::json!({ "at_unix_ms": unix_ms })).unwrap()
    }

    fn told(controller: &Controller) -> serde_json::Value {
        serde_json::to_value(controller.past(Nanos::secs(1))).unwrap()["volumes"][0][2].clone()
    }

    /// Ten seconds, five buckets.
    fn remembering() -> Controller {
        let mut controller = controller(3);
        for step in 1..=10 {
            let interval = Nanos::secs(1);
            let volumes = vec![VolumeObservation::idle(VolumeId(3), interval)];
            controller.step(&Observation {
                at: Nanos::secs(step),
                interval,
                volumes,
                ..Observation::default()
            });
        }
        controller
    }

    fn counters() -> HistoryCounters {
        HistoryCounters::default()
    }

    fn recall(history: &Path, controller: &mut Controller, unix_ms: i64) -> PastFile {
        let is_there = [0, 1, 2, 3].map(|number| controller.status(VolumeId(number)).is_some());
        let names = is_there.into_iter().enumerate();
        let names = names.map(|(at, is_there)| if is_there { "db".to_owned() } else { format!("other{at}") });
        PastFile::recall(history, controller, names, &at(unix_ms), Nanos::secs(1))
    }

    #[test]
    fn another_controller_recalls_what_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("history.db");
        let before = remembering();
        recall(&history, &mut controller(3), 0).keep(&before, at(1_000_000), Nanos::secs(1), &counters());
        assert!(folder.path().join("history.db.past").is_file());
        assert_eq!(told(&before)["now"], 5);
        // The volume has another number now. Eight seconds are four buckets; a clock that went back is none.
        let mut after = controller(0);
        recall(&history, &mut after, 1_008_000);
        assert_eq!(told(&after)["now"], 9);
        let mut after = controller(0);
        recall(&history, &mut after, 5);
        assert_eq!(told(&after), told(&before));
        assert!(!folder.path().join("history.db.past.bad").exists());
    }

    /// A start that overwrites what it cannot recall takes weeks of peaks away that a copy, or whoever changed the file, could bring back.
    #[test]
    fn what_is_not_recalled_is_set_aside_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("history.db");
        let (file, aside) =
            (folder.path().join("history.db.past"), folder.path().join("history.db.past.bad"));
        let before = remembering();
        recall(&history, &mut controller(3), 0).keep(&before, at(0), Nanos::secs(1), &counters());
        let good = std::fs::read(&file).unwrap();
        let changed =
            String::from_utf8(good.clone()).unwrap().replace("\"now\": 5", "\"now\": 6").into_bytes();
        let foreign = String::from_utf8(good.clone()).unwrap().replace("forebay.past/1", "forebay.past/9");
        let foreign = foreign.split(",\n  \"checksum\"").next().unwrap().to_owned() + "\n}\n";
        for bad in [b"{".to_vec(), Vec::new(), good[..good.len() / 2].to_vec(), changed, foreign.into_bytes()]
        {
            std::fs::write(&file, &bad).unwrap();
            let mut after = controller(3);
            let mut past = recall(&history, &mut after, 0);
            assert_eq!((told(&after)["now"].as_u64(), file.exists()), (Some(0), false));
            past.keep(&after, at(0), Nanos::secs(1), &counters());
            assert_eq!(std::fs::read(&aside).unwrap(), bad);
            // The next start has nothing to set aside.
            recall(&history, &mut controller(3), 0);
            assert_eq!(std::fs::read(&aside).unwrap(), bad);
        }
        // Moved back, mended, it is recalled.
        std::fs::write(&file, &good).unwrap();
        let mut after = controller(3);
        recall(&history, &mut after, 0);
        assert_eq!(told(&after), told(&before));
    }

    #[test]
    fn what_cannot_be_set_aside_is_not_overwritten_until_it_is_moved() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("history.db");
        let (file, aside) =
            (folder.path().join("history.db.past"), folder.path().join("history.db.past.bad"));
        // Of a folder that is not empty nothing takes the name.
        std::fs::create_dir_all(aside.join("full")).unwrap();
        std::fs::write(&file, "{").unwrap();
        let mut past = recall(&history, &mut controller(3), 0);
        past.keep(&remembering(), at(0), Nanos::secs(1), &counters());
        assert_eq!(std::fs::read(&file).unwrap(), b"{");
        std::fs::rename(&aside, folder.path().join("elsewhere")).unwrap();
        past.keep(&remembering(), at(0), Nanos::secs(1), &counters());
        assert_eq!(std::fs::read(&aside).unwrap(), b"{");
        let mut after = controller(3);
        recall(&history, &mut after, 0);
        assert_eq!(told(&after)["now"], 5);
    }

    /// A disk that is full, or a folder in its place, costs what is learnt of peaks from then on: whoever asks how the history does is to be told.
    #[test]
    fn what_cannot_be_kept_is_told_as_long_as_that_lasts() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("history.db");
        let counters = counters();
        let before = remembering();
        let mut past = recall(&history, &mut controller(3), 0);
        let mut keep = || {
            past.keep(&before, at(0), Nanos::secs(1), &counters);
            (counters.trouble(), counters.past().told().is_some())
        };
        assert_eq!(keep(), (None, false));
        let file = folder.path().join("history.db.past");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        for _ in 0..2 {
            let (told, is_told) = keep();
            let told = told.expect("it is told");
            assert!(is_told && told.starts_with("peaks are not kept: `"), "{told}");
            assert!(told.contains("history.db.past`: Is a directory"), "{told}");
        }
        std::fs::remove_dir(&file).unwrap();
        assert_eq!(keep(), (None, false));
    }
}
