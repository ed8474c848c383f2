#!/bin/busybox sh
# What the guest does: attaches each volume with the kernel's driver, over two connections where the volume allows it, and uses it.
# `forebay_port` and `forebay_exports` were on the kernel's command line, which makes them part of the environment.
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
use() {
    set -e
    device=$1 export=$2
    nbd-client -N "$export" -b 512 -C 2 10.0.2.2 "$forebay_port" "$device" || nbd-client -N "$export" -b 512 10.0.2.2 "$forebay_port" "$device"
    # As a device: what is written is read back, from the volume.
    dd if=/noise of="$device" bs=64k seek=16 conv=fsync 2>/dev/null
    echo 3 >/proc/sys/vm/drop_caches
    dd if="$device" bs=64k skip=16 count=64 2>/dev/null | cmp - /noise
    # A file system, with discards.
    mkfs.ext4 -q "$device"
    mount "$device" /mnt
    cp /noise /mnt/copy
    cp /noise /mnt/other
    sync
    rm /mnt/other
    fstrim /mnt
    umount /mnt
    echo 3 >/proc/sys/vm/drop_caches
    fsck.ext4 -fn "$device" >/dev/null
    mount -o ro "$device" /mnt
    cmp /mnt/copy /noise
    umount /mnt
    nbd-client -d "$device"
}
work() {
    set -e
    for module in $(cat /modules/order); do insmod "/modules/$module.ko"; done
    ip link set lo up
    ip link set eth0 up
    ip addr add 10.0.2.15/24 dev eth0
    count=0
    for export in $(echo "$forebay_exports" | tr , ' '); do
        use "/dev/nbd$count" "$export"
        count=$((count + 1))
    done
}
# A subshell, since the first process must not end; and no condition, in which `set -e` would mean nothing.
(work)
[ $? != 0 ] || echo "the guest is content"
poweroff -f
