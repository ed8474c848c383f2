//! How the flash device is divided: what volumes are promised together is there, so that none is left without since others came first, and a chunk fits into
//! what each has.

use super::check::size_of;
use super::problem::Finding;
use super::{Config, FlashAdmission};
use forebay_appliance::{FLASH_SEGMENT_BYTES, flash_capacity};
use forebay_units::Bytes;

/// Adds what volumes are promised of flash and cannot have.
pub(super) fn flash_shares(config: &Config, findings: &mut Vec<Finding>) {
    let Some(flash) = &config.flash else { return };
    let on_it = || config.volumes.iter().enumerate().filter(|(_, volume)| volume.flash > Bytes::ZERO);
    let there = || std::fs::metadata(&flash.path).ok().map(|metadata| size_of(&metadata));
    let Some(size) = flash.size.or_else(there).filter(|size| *size > Bytes::ZERO) else { return };
    let whose = match flash.size {
        Some(_) => "`flash.size`, which is",
        None => "`flash.path`, which has",
    };
    let room = flash_capacity(size);
    // One that has it for itself has what is there.
    let is_shared = on_it().count() > 1;
    let mut promised = Bytes::ZERO;
    for (at, volume) in on_it() {
        let chunk = config.flash_rules.chunk;
        let admission = volume.flash_admission.unwrap_or(config.flash_rules.admission);
        let mut wrong = |message| findings.push(Finding::new(format!("volume[{at}].flash"), message));
        if volume.flash > size {
            wrong(format!("{} is more than {whose} {size}", volume.flash));
            continue;
        }
        let segment = u64::from(FLASH_SEGMENT_BYTES);
        promised = Bytes(promised.get().saturating_add(volume.flash.get() / segment * segment));
        if is_shared && promised > room && room > Bytes::ZERO {
            wrong(format!(
                "with {} for volume `{}` flash comes to {promised}: expected at most the {room} that {whose} {size}, leaves for blocks",
                volume.flash, volume.name
            ));
        }
        let has = volume.flash.min(room);
        if admission != FlashAdmission::Evicted && has < chunk && room > Bytes::ZERO {
            wrong(format!(
                "{has} are less than a chunk, and `{admission}` places whole chunks: expected at least `flash.chunk`, which is {chunk}"
            ));
        }
    }
}
