//! Serves a file with a flash tier, to measure it: `serve_flash SOCKET IMAGE FLASH FLASH_SIZE QUOTA MEMORY io_uring|threads`. Ends with its
//! standard input.

use forebay_appliance::{
    Appliance, ApplianceConfig, EngineChoice, FlashConfig, FlashStore, ListenerConfig, OriginStamp,
    VolumeConfig, VolumeFlashConfig,
};
use forebay_origin::{FileOrigin, FileOriginOptions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, image, flash, size, quota, memory, io] = arguments.as_slice() else {
        return Err("usage: serve_flash SOCKET IMAGE FLASH FLASH_SIZE QUOTA MEMORY io_uring|threads".into());
    };
    let options = FileOriginOptions { read_only: true, ..FileOriginOptions::default() };
    let origin = Arc::new(FileOrigin::open(image.as_ref(), options)?);
    let store = Arc::new(FlashStore::open(&FlashConfig { path: flash.into(), size: Some(size.parse()?) })?);
    let flash = VolumeFlashConfig {
        store,
        quota: quota.parse()?,
        placing: None,
        left_out: BTreeSet::new(),
        stamp: OriginStamp::unknown(),
    };
    let volume =
        VolumeConfig { quota: memory.parse()?, flash: Some(flash), ..VolumeConfig::new("v", origin) };
    let appliance = Appliance::start(ApplianceConfig {
        listeners: vec![ListenerConfig::Unix { path: socket.into() }],
        volumes: vec![volume],
        io: if io == "threads" { EngineChoice::Threads } else { EngineChoice::IoUring },
        ..ApplianceConfig::default()
    })?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    println!("{:?}", appliance.observe("v", false)?.observation.flash);
    appliance.shutdown(Duration::from_secs(5));
    Ok(())
}
