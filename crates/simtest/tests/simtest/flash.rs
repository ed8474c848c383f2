//! The daemon's flash device: requests are done whole, at any moment and in any order; writes are torn, lost and misdirected without a word;
//! bits flip, errors are given, and what was not synced is lost with the power. Start and stop use the daemon's own code on it, and are cut
//! off at any operation.

use crate::ring::Ended;
use crate::world::{Event, World, note};
use forebay_appliance::service::SlabKey;
use forebay_appliance::volume::{FlashPlacing, VolumeMachine};
use forebay_cache::flash::{
    FaultyFlash, FlashDevice, FlashError, FlashFaults, FlashPartition, FlashTier, FlashVolumeSettings,
    Recovery, Saved, Stamp, TierSettings, VolumeId,
};
use forebay_origin::{OriginCompletion, OriginError, OriginOperation, OriginRequest};
use forebay_policy::placement::{Admission, Placing};
use forebay_units::{BlockSize, Bytes};
use rand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

const SEGMENT_BYTES: u32 = 4096;
const RECORDS: u32 = 4;

/// A request at the device.
#[derive(Debug)]
pub(crate) struct AtFlash {
    incarnation: u64,
    volume: SlabKey,
    request: OriginRequest,
    /// The worker's ring has it.
    in_ring: bool,
    /// What came of it, once it was done.
    result: Option<Result<Vec<u8>, OriginError>>,
}

/// The device, and the daemon's view of it.
pub(crate) struct SimFlash {
    device: Arc<FaultyFlash>,
    tier: FlashTier,
    faults: FlashFaults,
    requests: BTreeMap<u64, AtFlash>,
    next_serial: u64,
    starts: u64,
}

impl SimFlash {
    /// Half of the runs have one.
    pub(crate) fn draw(random: &mut impl Rng) -> Option<SimFlash> {
        if random.random_range(0..2) == 0 {
            return None;
        }
        let segments = random.random_range(6..30);
        let sectors = 1 + 2 * RECORDS as usize + segments;
        let device = Arc::new(FaultyFlash::new(sectors * SEGMENT_BYTES as usize, random.random()));
        let mut percent = || [0, 0, 5, 15][random.random_range(0..4)];
        let faults = FlashFaults {
            tear_percent: percent(),
            lose_percent: percent(),
            misdirect_percent: percent(),
            fail_percent: percent(),
        };
        let tier = open(&device, 0);
        device.set_faults(faults);
        Some(SimFlash { device, tier, faults, requests: BTreeMap::new(), next_serial: 0, starts: 1 })
    }

    /// The daemon starts again, and finds the device as it was left.
    fn reopen(&mut self) {
        self.device.set_faults(FlashFaults::default());
        self.tier = open(&self.device, self.starts);
        self.starts += 1;
        self.device.set_faults(self.faults);
    }
}

fn open(device: &Arc<FaultyFlash>, starts: u64) -> FlashTier {
    let settings = TierSettings {
        segment_bytes: SEGMENT_BYTES,
        records: RECORDS,
        device_id: 4711 + starts,
        epoch_floor: starts,
    };
    let open = || FlashTier::open(device.clone(), &settings).map(|(tier, _)| tier);
    let clear = |offset: u64, length: u64| {
        device.write(offset, &vec![0; length as usize]).expect("the device has no faults now");
    };
    // Something was misdirected to the superblock: who runs the daemon clears it, and all of the device if that is not enough.
    open().unwrap_or_else(|_| {
        clear(0, 4096);
        open().unwrap_or_else(|error| {
            assert!(matches!(error, FlashError::NotEmpty { .. }), "{error}");
            clear(0, device.size_bytes());
            open().expect("an empty device without faults")
        })
    })
}

impl World {
    /// The flash of a volume that is about to be served, if the daemon has any.
    pub(crate) fn load_flash(&mut self, index: usize) -> Option<FlashPartition> {
        let quota_segments = self.random.random_range(0..8);
        let seed = self.random.random();
        let settings = self.flash_settings(index, quota_segments, seed);
        let flash = self.flash.as_mut()?;
        let loaded = flash.tier.load(&settings).or_else(|_| {
            // A daemon that cannot revoke what the device says does not serve the volume: who runs it sees to the device.
            flash.device.set_faults(FlashFaults::default());
            let loaded = flash.tier.load(&settings);
            flash.device.set_faults(flash.faults);
            loaded
        });
        let (partition, recovery) = loaded.expect("a device without faults");
        if let Recovery::Kept { blocks } = recovery {
            self.course.recovered += blocks;
        }
        note!(self, "volume {index} has {quota_segments} segments of flash: {recovery:?}");
        Some(partition)
    }

    /// Who is let onto a volume's flash, drawn anew.
    pub(crate) fn draw_placing(&mut self) -> Option<FlashPlacing> {
        let admission = match self.random.random_range(0..6) {
            0 | 1 => return None,
            2 => Admission::Lru,
            3 => Admission::Demand,
            4 => Admission::Adaptive,
            _ => Admission::Threshold(1),
        };
        let placing = Placing { admission, exclusive: self.percent(50), ..Placing::default() };
        Some(FlashPlacing { placing, chunk: Bytes(4_096) })
    }

    /// It tells nothing of what we change ourselves.
    fn stamp(&self, index: usize) -> Stamp {
        Stamp::Vouched { size_bytes: self.volumes[index].origin.traits.size_bytes }
    }

    fn flash_settings(&self, index: usize, quota_segments: u32, seed: u64) -> FlashVolumeSettings {
        let volume = &self.volumes[index];
        FlashVolumeSettings {
            volume: VolumeId::new(&volume.name, "simulated"),
            stamp: Some(self.stamp(index)),
            read_only: false,
            block_size: BlockSize::new(Bytes(volume.block)).expect("a power of two"),
            quota_segments,
            seed,
        }
    }

    /// A volume was taken away: what flash holds of it is kept, if that can be proved to be true.
    pub(crate) fn save_flash(&mut self, index: usize, machine: VolumeMachine) {
        let Some((partition, is_true)) = machine.into_flash() else { return };
        let cut_after =
            (self.faults.daemon_crash && self.percent(20)).then(|| self.random.random_range(0..14));
        let stamp = self.stamp(index);
        let Some(flash) = self.flash.as_mut() else { return };
        if !is_true {
            flash.tier.discard(partition);
            return note!(self, "the flash of volume {index} is dropped");
        }
        flash.device.stop_after(cut_after);
        let saved = flash.tier.save(partition, Some(stamp));
        flash.device.stop_after(None);
        if let Ok(Saved::Kept { blocks }) = saved {
            self.course.saved += blocks;
        }
        note!(self, "the flash of volume {index}: {saved:?}, cut off after {cut_after:?}");
        if cut_after.is_some() {
            self.daemon.is_doomed = true;
        }
    }

    pub(crate) fn submit_to_flash(
        &mut self,
        key: SlabKey,
        request: OriginRequest,
        in_ring: bool,
        at_once: bool,
    ) {
        let incarnation = self.daemon.incarnation;
        let flash = self.flash.as_mut().expect("who asks the device has one");
        let range = request.operation.range();
        assert!(
            range.length > 0 && range.end() <= flash.device.size_bytes(),
            "{range:?} is not on the device"
        );
        let serial = flash.next_serial;
        flash.next_serial += 1;
        flash.requests.insert(serial, AtFlash { incarnation, volume: key, request, in_ring, result: None });
        self.course.in_ring += u64::from(in_ring);
        if at_once {
            // It is done, and its answer is there.
            self.flash_event(serial);
            return self.flash_event(serial);
        }
        let delay = self.delay() / 4;
        self.schedule(delay, Event::Flash { serial });
    }

    /// The device does a request, or its answer reaches the daemon.
    pub(crate) fn flash_event(&mut self, serial: u64) {
        let Some(flash) = self.flash.as_mut() else { return };
        let Some(at_flash) = flash.requests.get_mut(&serial) else { return };
        if at_flash.result.is_none() {
            at_flash.result = Some(flash_result(&flash.device, &at_flash.request));
            let delay = self.delay() / 4;
            return self.schedule(delay, Event::Flash { serial });
        }
        let AtFlash { incarnation, volume, request, in_ring, result } =
            flash.requests.remove(&serial).expect("looked up above");
        if incarnation == self.daemon.incarnation {
            let completion = OriginCompletion { id: request.id, result: result.expect("looked at above") };
            if in_ring {
                self.daemon.ring.end(Ended::Flash(volume, completion));
            } else {
                self.daemon.flash_inbox.push((volume, completion));
            }
            self.wake_daemon();
        }
    }

    /// Threads read what the ring was to read.
    pub(crate) fn give_up_flash_in_ring(&mut self) {
        let requests = self.flash.iter_mut().flat_map(|flash| flash.requests.values_mut());
        requests.for_each(|at_flash| at_flash.in_ring = false);
    }

    /// The daemon was killed, perhaps with the power: what it had asked of the device is done or not, and it starts anew.
    pub(crate) fn crash_flash(&mut self, power_fails: bool) {
        let index = self.random.random_range(0..self.volumes.len());
        let settings = self.flash_settings(index, 3, 0);
        let cut_after = self.random.random_range(0..30);
        let Some(flash) = self.flash.as_mut() else { return };
        for at_flash in std::mem::take(&mut flash.requests).into_values() {
            if at_flash.result.is_none() && self.random.random_range(0..2) == 0 {
                let _ = flash_result(&flash.device, &at_flash.request);
            }
        }
        if power_fails {
            flash.device.crash();
        }
        flash.reopen();
        if cut_after < 12 {
            // It is killed again while it starts, before it serves anything.
            flash.device.stop_after(Some(cut_after));
            drop(flash.tier.load(&settings));
            flash.device.stop_after(None);
            if power_fails {
                flash.device.crash();
            }
            flash.reopen();
        }
    }

    /// Something happens to the device.
    pub(crate) fn disturb_flash(&mut self, index: usize) {
        let quota = Bytes(u64::from(SEGMENT_BYTES) * self.random.random_range(0..8));
        let rots = self.percent(50);
        let places = self.percent(50);
        let Some(flash) = self.flash.as_ref() else { return };
        if rots {
            return flash.device.flip_bit();
        }
        if places {
            let how = self.draw_placing();
            note!(
                self,
                "the flash of volume {index} is placed by {:?}",
                how.map(|how| how.placing.admission)
            );
            if let Some(machine) = self.machine(index) {
                machine.set_flash_placing(how);
                self.wake_daemon();
            }
            return;
        }
        note!(self, "volume {index} gets {quota} of flash");
        if let Some(machine) = self.machine(index) {
            machine.set_flash_quota(quota);
            self.wake_daemon();
        }
    }
}

fn flash_result(device: &FaultyFlash, request: &OriginRequest) -> Result<Vec<u8>, OriginError> {
    let result = match &request.operation {
        OriginOperation::Read { range } => device.read(range.offset, range.length as usize),
        OriginOperation::Write { offset, data, .. } => device.write(*offset, data).map(|()| Vec::new()),
        other => panic!("the flash device is asked for {other:?}"),
    };
    result.map_err(|error| OriginError::Failed { errno: 5, context: error.to_string() })
}
