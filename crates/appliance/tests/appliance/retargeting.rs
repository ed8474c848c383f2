//! Volumes that change their origin under load, through real sockets: clients see a pause, and no error and no wrong byte.

use super::client::Client;
use super::origins::HeldOrigin;
use super::scene::{MIB, PATIENCE, SetOnDrop, memory, scene};
use super::verify;
use forebay_appliance::volume::UnfitError;
use forebay_appliance::{RetargetError, RetargetFailure, RetargetOptions, ServiceLimits, VolumeConfig};
use forebay_nbd::Uri;
use forebay_nbd::client::Operation;
use forebay_origin::{
    CompletionSink, MemoryOrigin, NbdOrigin, NbdOriginOptions, Origin, OriginCompletion, OriginError,
    OriginOperation, OriginRequest, OriginTraits,
};
use forebay_units::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SHORT: RetargetOptions = RetargetOptions {
    timeout: Duration::from_millis(30),
    refused: Duration::MAX,
    settled: false,
    drops_cache: false,
};

fn refused(source: RetargetError) -> RetargetFailure {
    RetargetFailure::Refused { name: "disk".to_owned(), source }
}

/// One image, reached straight and through another appliance: the volume goes to and fro while clients verify every byte.
#[test]
fn clients_verify_every_byte_while_the_volume_goes_to_and_fro() {
    let (image, straight) = memory(8 * MIB);
    let behind = scene(vec![VolumeConfig::new("behind", straight)], ServiceLimits::default());
    let uri = Uri::unix(&behind.path, "behind");
    // An origin of its own: what the appliance behind has in flight is not what the volume left there.
    let own = Arc::new(MemoryOrigin::new(image.clone()));
    let volume = VolumeConfig { quota: Bytes(MIB), ..VolumeConfig::new("disk", own) };
    let front = scene(vec![volume], ServiceLimits::default());
    let over = AtomicBool::new(false);
    let changes = std::thread::scope(|scope| {
        let ends = SetOnDrop(&over);
        let clients: Vec<_> = (0..4u64)
            .map(|index| {
                let path = &front.path;
                scope.spawn(move || verify(Client::connect(path, "disk").unwrap(), index))
            })
            .collect();
        let changer = scope.spawn(|| {
            let mut changes = 0u32;
            while !over.load(Ordering::SeqCst) || changes < 4 {
                let origin: Arc<dyn Origin> = match changes % 2 {
                    0 => Arc::new(NbdOrigin::connect(&uri, NbdOriginOptions::default()).unwrap()),
                    _ => Arc::new(MemoryOrigin::new(image.clone())),
                };
                let options =
                    RetargetOptions { drops_cache: changes.is_multiple_of(5), ..RetargetOptions::default() };
                let done = front.appliance.retarget("disk", origin.clone(), options).unwrap();
                assert!(done.pause >= done.drain, "{:?} {:?}", done.pause, done.drain);
                assert_eq!(done.old.statistics().in_flight, 0);
                assert_eq!(front.appliance.observe("disk", false).unwrap().origin, origin.describe());
                changes += 1;
            }
            changes
        });
        clients.into_iter().for_each(|client| client.join().unwrap());
        drop(ends);
        changer.join().unwrap()
    });
    assert!(changes >= 4, "{changes}");
    let counters = front.appliance.observe("disk", false).unwrap().observation.counters;
    assert_eq!((counters.errors, counters.origin_errors), (0, 0));
}

#[test]
fn a_volume_whose_origin_does_not_drain_goes_on_with_it() {
    let (image, inner) = memory(MIB);
    let origin = HeldOrigin::new(inner);
    let scene = scene(vec![VolumeConfig::new("disk", origin.clone())], ServiceLimits::default());
    let other = || Arc::new(MemoryOrigin::new(image.clone()));
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    client.write(0, &[7; 512]).unwrap();
    origin.wait_for(1);
    let stuck = scene.appliance.retarget("disk", other(), SHORT).map(drop).unwrap_err();
    assert_eq!(stuck, refused(RetargetError::NotDrained { in_flight: 1 }));
    origin.open();
    client.finish_one().unwrap().1.unwrap();
    scene.appliance.retarget("disk", other(), RetargetOptions::default()).map(drop).unwrap();
    client.write(512, &[8; 512]).unwrap();
    client.finish_one().unwrap().1.unwrap();
    let mut found = [0; 1024];
    image.read_at(0, &mut found);
    assert_eq!((found[..512] == [7; 512], found[512..] == [8; 512]), (true, true));
}

/// An origin that says of one flush, and only once, that it failed.
struct FailsOnce(Arc<dyn Origin>, AtomicBool);

impl Origin for FailsOnce {
    fn traits(&self) -> OriginTraits {
        self.0.traits()
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        if request.operation != OriginOperation::Flush || self.1.swap(true, Ordering::SeqCst) {
            return self.0.submit(request, sink);
        }
        let result = Err(OriginError::Failed { errno: 28, context: "full".to_owned() });
        sink.complete(OriginCompletion { id: request.id, result });
    }

    fn describe(&self) -> String {
        "fails once".to_owned()
    }
}

/// Nobody waits any more for the flush ahead of the change when it fails; the client that flushes next must hear of it.
#[test]
fn a_flush_that_fails_when_nobody_waits_for_it_any_more_is_told_to_a_client() {
    let origin = HeldOrigin::new(Arc::new(FailsOnce(memory(MIB).1, AtomicBool::new(false))));
    let scene = scene(vec![VolumeConfig::new("disk", origin.clone())], ServiceLimits::default());
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    let stuck = scene.appliance.retarget("disk", memory(MIB).1, SHORT).map(drop).unwrap_err();
    assert_eq!(stuck, refused(RetargetError::NotDrained { in_flight: 1 }));
    origin.wait_for(1);
    origin.open();
    assert!(client.call(Operation::Flush, &[]).unwrap().is_err(), "what was lost is said to be safe");
    assert!(client.call(Operation::Flush, &[]).unwrap().is_ok());
}

/// A new origin that caches would keep what it is asked for, while clients change that behind its back.
#[test]
fn the_new_origin_is_asked_for_nothing_while_clients_may_change_data() {
    let (image, inner) = memory(MIB);
    let (old, new) = (HeldOrigin::new(inner.clone()), HeldOrigin::new(inner));
    let scene = scene(vec![VolumeConfig::new("disk", old.clone())], ServiceLimits::default());
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    client.write(0, &[7; 512]).unwrap();
    old.wait_for(1);
    std::thread::scope(|scope| {
        let moving = scope
            .spawn(|| scene.appliance.retarget("disk", new.clone(), RetargetOptions::default()).map(drop));
        // The flush that goes ahead.
        old.wait_for(2);
        assert!(new.held.lock().unwrap().is_empty(), "it is asked although a write is on its way");
        old.open();
        new.wait_for(1);
        client.finish_one().unwrap().1.unwrap();
        // Clients wait now.
        client.write(0, &[8; 512]).unwrap();
        new.open();
        moving.join().unwrap().unwrap();
    });
    client.finish_one().unwrap().1.unwrap();
    let mut found = [0; 512];
    image.read_at(0, &mut found);
    assert_eq!(found, [8; 512]);
}

#[test]
fn what_is_no_way_to_the_same_data_is_refused() {
    let (image, origin) = memory(MIB);
    image.write_at(0, &[1; 4096]);
    let scene = scene(vec![VolumeConfig::new("disk", origin)], ServiceLimits::default());
    let refusal =
        |origin| scene.appliance.retarget("disk", origin, RetargetOptions::default()).map(drop).unwrap_err();
    assert_eq!(refusal(memory(MIB).1), refused(RetargetError::OtherData { at: 0 }));
    let (found, expected) = (Bytes(2 * MIB), Bytes(MIB));
    assert_eq!(
        refusal(memory(2 * MIB).1),
        refused(RetargetError::Unfit(UnfitError::Size { found, expected }))
    );
    let unknown = scene.appliance.retarget("other", memory(MIB).1, RetargetOptions::default()).map(drop);
    assert!(matches!(unknown, Err(RetargetFailure::Command(_))));
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    client.read(0, 4096).unwrap();
    assert_eq!(client.finish_one().unwrap().1, Ok(vec![1; 4096]), "it is served as before");
    scene.appliance.remove_volume("disk", PATIENCE).unwrap();
}
