//! Serves volumes in memory over a unix socket, to measure the data path with real clients: `serve_memory SOCKET SIZE QUOTA
//! [VOLUMES [URI]]`. The quota is a size, `0` for a pure proxy. With a URI, the last volume is that NBD export instead. Ends with
//! its standard input.
//!
//! `FOREBAY_BATCH_WAIT_US` sets how long a full batch is waited for, and `FOREBAY_UNOBSERVED` turns curves and zones off, to
//! measure what each is worth.

use forebay_appliance::{Appliance, ApplianceConfig, ListenerConfig, VolumeConfig};
use forebay_origin::{MemoryImage, MemoryOrigin, NbdOrigin, NbdOriginOptions, Origin};
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
    let unobserved = std::env::var_os("FOREBAY_UNOBSERVED").is_some();
    let mut volumes = Vec::new();
    for index in 0..count {
        let origin: Arc<dyn Origin> = match rest.get(1) {
            Some(uri) if index + 1 == count => {
                Arc::new(NbdOrigin::connect(&uri.parse()?, NbdOriginOptions::default())?)
            }
            _ => Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(size)))),
        };
        let mut volume = VolumeConfig { quota, ..VolumeConfig::new(format!("v{index}"), origin) };
        if unobserved {
            volume.locality = None;
        }
        volumes.push(volume);
    }
    let defaults = ApplianceConfig::default();
    let batch_wait = match std::env::var("FOREBAY_BATCH_WAIT_US") {
        Ok(us) => Duration::from_micros(us.parse()?),
        Err(_) => defaults.batch_wait,
    };
    let listeners = vec![ListenerConfig::Unix { path: path.into() }];
    let appliance = Appliance::start(ApplianceConfig { listeners, volumes, batch_wait, ..defaults })?;
    println!("serving on {}", appliance.listeners()[0]);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    for snapshot in appliance.observe_all(false) {
        println!("{}: {:?}", snapshot.name, snapshot.observation.counters);
    }
    println!("{:?}", appliance.shutdown(Duration::from_secs(5)));
    Ok(())
}
