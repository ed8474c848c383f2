//! What is done to the files that a daemon keeps: bits flipped, pieces lost, moved and zeroed, older copies and rubbish put in their place.

use super::draw::Draw;
use std::fs::File;
use std::io::Result;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A page, and a sector of the flash format.
const PAGE: u64 = 4096;

#[derive(Clone, Copy, Debug)]
pub(super) enum Damage {
    Flip,
    /// Pages of it are others of it.
    Misplace,
    Zero,
    Cut,
    Rubbish,
    Remove,
    /// What it was when somebody last kept a copy ([`keep`]).
    Older,
}

use Damage::{Cut, Flip, Misplace, Older, Remove, Rubbish, Zero};

/// What may be done to a file that somebody has open, and which is not to change its length.
pub(super) const IN_PLACE: [Damage; 5] = [Flip, Flip, Misplace, Misplace, Zero];
pub(super) const DAMAGE: [Damage; 7] = [Flip, Flip, Misplace, Zero, Cut, Rubbish, Remove];

fn copy_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".older");
    PathBuf::from(name)
}

/// Keeps a copy of it, if it is there.
pub(super) fn keep(path: &Path) {
    let _ = std::fs::copy(path, copy_of(path));
}

/// Damages it from byte `from` on.
///
/// # Errors
/// As the file system says: it is not there, or there is no room.
pub(super) fn damage(path: &Path, from: u64, damage: Damage, draw: &mut Draw) -> Result<()> {
    match damage {
        Remove => return std::fs::remove_file(path),
        Older => return std::fs::rename(copy_of(path), path),
        _ => {}
    }
    let file = File::options().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    if length <= from {
        return Ok(());
    }
    match damage {
        Flip => flip(&file, from..length, draw)?,
        Misplace => misplace(&file, from..length, draw)?,
        Zero => {
            let range = piece(from..length, draw);
            file.write_all_at(&vec![0; (range.end - range.start) as usize], range.start)?;
        }
        Cut => file.set_len(within(from..length, draw))?,
        _ => {
            let rubbish: Vec<u8> = (0..length.min(1 << 20)).map(|_| draw.below(256) as u8).collect();
            file.write_all_at(&rubbish, from)?;
        }
    }
    file.sync_all()
}

fn within(range: Range<u64>, draw: &mut Draw) -> u64 {
    range.start + draw.below((range.end - range.start) as usize) as u64
}

/// Up to a mebibyte of it.
fn piece(range: Range<u64>, draw: &mut Draw) -> Range<u64> {
    let start = within(range.clone(), draw);
    let bytes = draw.of(&[PAGE, 16 * PAGE, 1 << 20]);
    start..(start + bytes).min(range.end)
}

/// Up to so many bytes, close to each other or anywhere.
fn flip(file: &File, range: Range<u64>, draw: &mut Draw) -> Result<()> {
    let area = if draw.percent(30) { piece(range, draw) } else { range };
    for _ in 0..draw.of(&[1, 64, 1024, 4096]) {
        let at = within(area.clone(), draw);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1 << draw.below(8);
        file.write_all_at(&byte, at)?;
    }
    Ok(())
}

/// Pages are where others belong: one, or a segment of flash.
fn misplace(file: &File, range: Range<u64>, draw: &mut Draw) -> Result<()> {
    let bytes = draw.of(&[PAGE, PAGE, 1 << 20]);
    let place = |draw: &mut Draw| within(range.clone(), draw) / bytes * bytes;
    for _ in 0..draw.of(&[1, 16, 64]) {
        let (source, target) = (place(draw), place(draw));
        let count = bytes.min(range.end - source).min(range.end - target);
        let mut moved = vec![0; count as usize];
        file.read_exact_at(&mut moved, source)?;
        file.write_all_at(&moved, target.max(range.start))?;
    }
    Ok(())
}

#[test]
fn damage_is_where_it_is_to_be() {
    let folder = crate::support::folder();
    let path = folder.path().join("file");
    let whole: Vec<u8> = (0..8 * PAGE).map(|at| (at / PAGE) as u8 + 1).collect();
    for seed in 0..50 {
        for what in DAMAGE.into_iter().chain([Older]) {
            std::fs::write(&path, &whole).unwrap();
            keep(&path);
            let from = 3 * PAGE;
            damage(&path, from, what, &mut Draw::new(seed, 0)).unwrap();
            let left = std::fs::read(&path).unwrap_or_default();
            match what {
                Remove => assert!(!path.exists()),
                Cut => assert!(left.len() < whole.len() && left[..] == whole[..left.len()]),
                Older => assert_eq!(left, whole),
                _ => assert!(left[..from as usize] == whole[..from as usize], "{what:?}, {seed}"),
            }
        }
    }
}
