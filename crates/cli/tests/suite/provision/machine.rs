//! Appliances as virtual machines, in QEMU's software emulation: one that lives and dies, one that has less memory than was promised, and what never serves.

use super::{Place, Storage, live_and_die, order};
use crate::emulated;
use forebay_actuate::provision::{Image, Qemu};
use forebay_actuate::{ApplianceOrder, Deadline, Provider, ProvisionError};
use forebay_prerequisite::{programs, skip};
use forebay_units::Bytes;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// An image with this test's own `forebay`; `None` where it cannot be made or run, which is said.
pub(crate) fn image(folder: &Path) -> Option<Image> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !programs("an appliance in a virtual machine", &["qemu-system-x86_64", "cpio", "strip"], false) {
        return None;
    }
    if !root.join("target/guest-kernel/qemu_fw_cfg.ko").exists() {
        skip("an appliance in a virtual machine", "no kernel for a guest (scripts/bootstrap test)");
        return None;
    }
    let made = Command::new(root.join("scripts/appliance-image"))
        .arg(env!("CARGO_BIN_EXE_forebay"))
        .arg(folder.join("image"))
        .output()
        .expect("the script runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(Image::in_folder(&folder.join("image")))
}

fn provider(folder: &Path, image: &Image) -> Qemu {
    let mut qemu = Qemu::new(folder.join("appliances"), image.clone()).expect("the folder can be made");
    qemu.accelerator = "tcg".to_owned();
    qemu
}

/// An order for a machine with 4 MiB of cache.
pub(super) fn machine_order(id: &str, storage: &Storage) -> ApplianceOrder {
    ApplianceOrder { memory: Bytes::mib(304), ..order(id, storage.endpoint()) }
}

/// A program in `folder` that is run in place of QEMU.
pub(crate) fn script(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("program");
    std::fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

pub(super) fn a_minute() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

#[test]
fn a_virtual_machine_lives_does_as_told_and_dies_and_what_never_serves_is_ended() {
    let (_turn, folder) = (emulated::turn(), Place::new());
    let Some(image) = image(folder.path()) else { return };
    let storage = Storage::over_tcp(IpAddr::from(Ipv4Addr::LOCALHOST));
    let order = machine_order("vm", &storage);
    let began = Instant::now();
    // A KVM that is there and does not work ends QEMU by a signal: software does it.
    let mut broken = provider(folder.path(), &image);
    broken.program = script(
        folder.path(),
        "case \"$*\" in *accel=kvm*) kill -ABRT $$;; *) exec qemu-system-x86_64 \"$@\";; esac",
    );
    broken.accelerator = "kvm:tcg".to_owned();
    broken.start(&order, a_minute()).unwrap_or_else(|error| panic!("{error}"));
    println!("a virtual machine served after {:.1?}", began.elapsed());
    let running =
        live_and_die(&provider(folder.path(), &image), &provider(folder.path(), &image), &order, &storage);
    let left = || std::fs::read_dir(folder.path().join("appliances")).unwrap().count();
    assert_eq!(left(), 0);
    // Its address is in use.
    let forebay_nbd::Transport::Tcp { port, .. } = running.endpoints["db"].uri.transport else {
        panic!("it is TCP")
    };
    let squatter = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free again");
    let error = provider(folder.path(), &image).start(&order, a_minute()).unwrap_err();
    assert!(matches!(&error, ProvisionError::AddressInUse { .. }), "{error}");
    drop(squatter);
    // An image that does not boot.
    let broken = Image { initramfs: folder.path().join("broken"), ..image.clone() };
    std::fs::write(&broken.initramfs, b"this is no file system").unwrap();
    let error = provider(folder.path(), &broken).start(&order, a_minute()).unwrap_err();
    let told = matches!(error, ProvisionError::Died { .. }) && error.to_string().contains("Kernel panic");
    assert!(told, "{error}");
    // A hypervisor that hangs.
    let mut hanging = provider(folder.path(), &image);
    hanging.program = script(folder.path(), "(sleep 0.3; kill -STOP $$) & exec qemu-system-x86_64 \"$@\"");
    let began = Instant::now();
    let error = hanging.start(&order, Deadline::after(Duration::from_secs(2))).unwrap_err();
    let told =
        matches!(error, ProvisionError::NotInTime { .. }) && error.to_string().contains("hypervisor hangs");
    assert!(told, "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "the deadline is kept: {:?}", began.elapsed());
    assert_eq!(left(), 0);
}

#[test]
fn a_hypervisor_that_gives_less_memory_than_was_ordered_is_found_out() {
    let (_turn, folder) = (emulated::turn(), Place::new());
    let Some(image) = image(folder.path()) else { return };
    let storage = Storage::over_tcp(IpAddr::from(Ipv4Addr::LOCALHOST));
    let mut order = machine_order("liar", &storage);
    (order.memory, order.volumes[0].cache) = (Bytes::mib(592), Bytes::mib(300));
    let mut liar = provider(folder.path(), &image);
    liar.program = script(
        folder.path(),
        "args=(); for a in \"$@\"; do args+=(\"${a/#512M/256M}\"); done; exec qemu-system-x86_64 \"${args[@]}\"",
    );
    let error = liar.start(&order, a_minute()).unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, ProvisionError::Died { .. }), "{said}");
    assert!(
        said.contains("more than nine tenths of the") && said.contains("that this machine has"),
        "{said}"
    );
    assert_eq!(liar.find(&order.id).unwrap(), None);
}
