//! Serves volumes in memory over a unix socket, to measure the data path with real clients: `serve_memory SOCKET SIZE QUOTA
//! [VOLUMES]`. The quota is a size, `0` for a pure proxy. Ends with its standard input.

use forebay_appliance::{Appliance, ApplianceConfig, ListenerConfig, VolumeConfig};
use forebay_origin::{MemoryImage, MemoryOrigin};
use forebay_units::Bytes;
use std::sync::Arc;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, size, quota, rest @ ..] = arguments.as_slice() else {
        return Err("usage: serve_memory SOCKET SIZE QUOTA [VOLUMES]".into());
    };
    let (size, quota): (Bytes, Bytes) = (size.parse()?, quota.parse()?);
    let count: usize = rest.first().map_or(Ok(1), |count| count.parse())?;
    let volumes = (0..count)
        .map(|index| {
            let origin = MemoryOrigin::new(Arc::new(MemoryImage::new(size)));
            VolumeConfig { quota, ..VolumeConfig::new(format!("v{index}"), Arc::new(origin)) }
        })
        .collect();
    let appliance = Appliance::start(ApplianceConfig {
        listeners: vec![ListenerConfig::Unix { path: path.into() }],
        volumes,
        ..ApplianceConfig::default()
    })?;
    println!("serving on {}", appliance.listeners()[0]);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    for snapshot in appliance.observe_all(false)? {
        println!("{}: {:?}", snapshot.name, snapshot.observation.counters);
    }
    println!("{:?}", appliance.shutdown(Duration::from_secs(5)));
    Ok(())
}
