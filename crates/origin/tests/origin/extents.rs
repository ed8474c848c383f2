//! Block status: what each origin says about holes, and what becomes of a question that cannot be answered.

use super::nbd_server::{Action, Server, export};
use super::support::{errno, extents, run, status, write};
use forebay_nbd::wire::Command;
use forebay_origin::layer::{ErrorInjection, ErrorParameters};
use forebay_origin::{
    EXTENTS_MAX, FileOrigin, FileOriginOptions, MemoryImage, MemoryOrigin, NbdOrigin, NbdOriginOptions,
    Origin, OriginError, OriginOperation,
};
use forebay_prerequisite::skip;
use forebay_units::{ByteRange, Bytes, Nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn zeroes(offset: u64, length: u64) -> OriginOperation {
    let range = ByteRange::new(offset, length);
    OriginOperation::WriteZeroes { range, may_trim: true, fua: false, fast: false }
}

/// A megabyte with data in the middle.
fn data_in_the_middle(origin: &dyn Origin) {
    run(origin, write(256 * KIB, &vec![7; 128 * KIB as usize])).unwrap();
    let whole = [(256 * KIB, 3), (128 * KIB, 0), (640 * KIB, 3)];
    assert_eq!(extents(run(origin, status(0, MIB))), whole);
    assert_eq!(extents(run(origin, status(300 * KIB, 64 * KIB))), [(64 * KIB, 0)]);
    assert_eq!(extents(run(origin, status(320 * KIB, 128 * KIB))), [(64 * KIB, 0), (64 * KIB, 3)]);
    let one =
        OriginOperation::BlockStatus { range: ByteRange::new(64 * KIB, MIB - 64 * KIB), one_extent: true };
    assert_eq!(extents(run(origin, one)), [(192 * KIB, 3)]);
    // An acknowledged change is seen at once.
    run(origin, zeroes(256 * KIB, 64 * KIB)).unwrap();
    run(origin, write(MIB - 64 * KIB, &[1; 1])).unwrap();
    let after = extents(run(origin, status(0, MIB)));
    assert_eq!(after[..2], [(320 * KIB, 3), (64 * KIB, 0)]);
    assert_eq!(after[2].1, 3);
    assert_eq!((after[3].1, after[..3].iter().map(|extent| extent.0).sum()), (0, MIB - 64 * KIB));
}

#[test]
fn memory_files_and_nbd_exports_know_their_holes() {
    data_in_the_middle(&MemoryOrigin::new(Arc::new(MemoryImage::new(Bytes(MIB)))));
    let server = Server::start(export(MIB));
    data_in_the_middle(&NbdOrigin::connect(&server.uri(), NbdOriginOptions::default()).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(MIB).unwrap();
    let origin = FileOrigin::open(&path, FileOriginOptions::default()).unwrap();
    if origin.traits().can_fast_zero {
        data_in_the_middle(&origin);
    } else {
        skip(path.display(), "its file system makes no holes");
    }
    // A file that got shorter: nothing is said of what is not there.
    file.set_len(512 * KIB).unwrap();
    assert_eq!(errno(&run(&origin, status(768 * KIB, 4 * KIB))), Some(5));
}

#[test]
fn a_server_that_cannot_say_leaves_everything_allocated() {
    let server = Server::start(forebay_nbd::ExportInfo { block_status: false, ..export(MIB) });
    let origin = NbdOrigin::connect(&server.uri(), NbdOriginOptions::default()).unwrap();
    assert_eq!(extents(run(&origin, status(4 * KIB, 64 * KIB))), [(64 * KIB, 0)]);
    assert!(server.commands(Command::BlockStatus).is_empty());
}

#[test]
fn many_extents_come_in_several_answers() {
    let count = 2 * EXTENTS_MAX as u64;
    let image = Arc::new(MemoryImage::new(Bytes(count * 64 * KIB)));
    (0..count).step_by(2).for_each(|chunk| image.write_at(chunk * 64 * KIB, &[1]));
    let origin = MemoryOrigin::new(image);
    let (mut at, mut answers) = (0, Vec::new());
    while at < count * 64 * KIB {
        let described = extents(run(&origin, status(at, count * 64 * KIB - at)));
        at += described.iter().map(|extent| extent.0).sum::<u64>();
        answers.push(described.len());
    }
    assert_eq!(answers, [EXTENTS_MAX, EXTENTS_MAX]);
}

/// A question is asked again after a lost connection, since it changes nothing; but not for ever. An error is told.
#[test]
fn a_lost_question_is_asked_again_and_an_error_is_told() {
    let server = Server::start(export(MIB));
    let options = NbdOriginOptions { backoff_min: Nanos::millis(2), ..NbdOriginOptions::default() };
    let origin = NbdOrigin::connect(&server.uri(), options).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    server
        .script(move |_| if count.fetch_add(1, Ordering::SeqCst) == 0 { Action::Cut } else { Action::Serve });
    assert_eq!(extents(run(&origin, status(0, MIB))), [(MIB, 3)]);
    assert_eq!(server.commands(Command::BlockStatus).len(), 2);
    server.script(|_| Action::Fail);
    assert_eq!(errno(&run(&origin, status(0, MIB))), Some(28));
    server.script(|_| Action::Cut);
    assert!(matches!(run(&origin, status(0, MIB)), Err(OriginError::Unreachable { .. })));

    let memory: Arc<dyn Origin> = Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(Bytes(MIB)))));
    let error =
        ErrorInjection::new(memory, ErrorParameters { errno: 5, ..ErrorParameters::default() }).unwrap();
    assert_eq!(errno(&run(&error, status(0, MIB))), Some(5));
}
