//! What the plan's origins are in the simulator: its own disks where one is a preset of disks, and else as many queues as it has servers.
//!
//! What neither can be is refused before a trace is read.

use super::config::{OriginConfig, PlanConfig};
use crate::document::Document;
use crate::failure::Failure;
use forebay_control::plan::StorageModel;
use forebay_sim::scenario::{
    BufferTable, DiskName, Distribution, OriginKind, OriginTable, Queues, Raid, VolumeTable,
};
use forebay_trace::Ids;
use forebay_units::{Bytes, Nanos};

/// The simulator's origins, in the order of the plan's; disks do not yet know how large they are.
#[derive(Debug)]
pub(super) struct Devices {
    pub(super) origins: Vec<OriginTable>,
    /// What of them is not as in the plan, in sentences.
    pub(super) deviations: Vec<String>,
}

/// Makes the devices, and refuses what of the plan cannot be simulated.
///
/// # Errors
/// A failure at the origin or the volume that it is about.
pub(super) fn devices(document: &Document, config: &PlanConfig) -> Result<Devices, Failure> {
    for volume in &config.volumes {
        if volume.closed_loop.is_some() {
            return Err(document.failure(
                &volume.span,
                "`closed_loop` cannot be simulated: a recording is played with the times that it has",
            ));
        }
        if volume.trace.ids == Ids::Objects {
            return Err(document.failure(
                &volume.span,
                "`ids = \"objects\"` cannot be simulated: objects lie nowhere on a device",
            ));
        }
    }
    let mut deviations = Vec::new();
    let origins = config.origins.iter().map(|known| {
        device(known, &mut deviations).map_err(|message| document.failure(&known.span, message))
    });
    let origins = origins.collect::<Result<Vec<OriginTable>, Failure>>()?;
    Ok(Devices { origins, deviations })
}

fn device(known: &OriginConfig, deviations: &mut Vec<String>) -> Result<OriginTable, String> {
    let StorageModel { servers, positioning, transfer, write_cost, service_cv2 } = known.origin.model;
    let name = &known.origin.name;
    if servers.fract() != 0.0 {
        return Err(format!("{servers} `servers` cannot be simulated: expected a whole number"));
    }
    let servers = servers as u32;
    let disk = known.preset.as_deref().filter(|preset| preset.starts_with("disk-"));
    let Some(disk) = disk else {
        if write_cost != 1.0 {
            return Err(format!(
                "a `write_cost` of {write_cost} cannot be simulated: expected 1, or a preset of disks, which have RAID levels"
            ));
        }
        // Even spreads come to a third of the squared mean at most, exponential ones to all of it.
        let (distribution, found) = match service_cv2 {
            cv2 if cv2 <= 0.0 => (Distribution::Constant, 0.0),
            cv2 if cv2 < 2.0 / 3.0 => (Distribution::Uniform, cv2.min(1.0 / 3.0)),
            _ => (Distribution::Exponential, 1.0),
        };
        if found != service_cv2 {
            deviations.push(format!(
                "Services of {name} vary by {found:.2} of their squared mean there, the nearest that can be drawn to {service_cv2}."
            ));
        }
        let spread = positioning.as_secs_f64() * (3.0 * found).sqrt();
        let spread = Nanos::from_secs_f64(spread).min(positioning);
        return Ok(OriginTable {
            servers: Some(servers),
            queues: Some(Queues::Each),
            service: Some(positioning),
            distribution: Some(distribution),
            service_spread: (distribution == Distribution::Uniform).then_some(spread),
            transfer_per_second: Some(Bytes(transfer as u64)),
            ..OriginTable::new(name, OriginKind::Servers)
        });
    };
    let raid = match (write_cost, servers) {
        (1.0, _) => Raid::Level0,
        (2.0, 2..) if servers.is_multiple_of(2) => Raid::Level1,
        (4.0, 3..) => Raid::Level5,
        _ => {
            return Err(format!(
                "a `write_cost` of {write_cost} on {servers} disks cannot be simulated: expected 1 (stripes), 2 on an even number (mirrors) or 4 on \
                 three and more (RAID 5)"
            ));
        }
    };
    let table = OriginTable {
        spindles: Some(servers),
        disk: Some(DiskName::Rpm7200),
        raid: Some(raid),
        buffer: Some(BufferTable::default()),
        ..OriginTable::new(name, OriginKind::Disks)
    };
    let typical = StorageModel::preset(disk).map(|model| model.transfer);
    let transfer_per_second = (typical != Some(transfer)).then_some(Bytes(transfer as u64));
    Ok(match disk {
        "disk-15k" => OriginTable { disk: Some(DiskName::Rpm15000), transfer_per_second, ..table },
        // The simulator has no disk of that name: one for capacity with the figures of the preset.
        "disk-10k" => OriginTable {
            seek_average: Some(Nanos::micros(4_500)),
            rotation: Some(Nanos::millis(6)),
            transfer_per_second: Some(Bytes(transfer as u64)),
            ..table
        },
        _ => OriginTable { transfer_per_second, ..table },
    })
}

/// Sizes each group of disks so that its volumes fill it.
pub(super) fn fill_disks(origins: &mut [OriginTable], volumes: &[VolumeTable]) {
    for origin in origins.iter_mut().filter(|origin| origin.kind == OriginKind::Disks) {
        let of_origin: Vec<&VolumeTable> =
            volumes.iter().filter(|volume| volume.origin.as_ref() == Some(&origin.name)).collect();
        let bytes: Bytes = of_origin.iter().map(|volume| volume.size).sum();
        let spindles = u64::from(origin.spindles.unwrap_or(1));
        let data = match origin.raid.unwrap_or_default() {
            Raid::Level0 => spindles,
            Raid::Level1 => spindles / 2,
            Raid::Level4 | Raid::Level5 => spindles - 1,
        };
        // A last stripe of each volume may be begun.
        let each = bytes.get().div_ceil(data.max(1)) + ((of_origin.len() as u64 + 1) << 20);
        origin.disk_capacity = Some(Bytes(each.div_ceil(1 << 20) << 20));
    }
}
