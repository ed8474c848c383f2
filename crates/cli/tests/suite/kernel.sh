# Boots a small guest, in QEMU's software emulation, whose Linux attaches the volumes `$exports` of the daemon at the host's loopback port `$port`.
# What it does there is `kernel-init.sh`. Here is checked what it left on the volumes.
mkdir root
head -c 4194304 ../noise >root/noise
first_file_system ../kernel-init.sh busybox nbd-client mkfs.ext4 fsck.ext4
timeout 220 qemu-system-x86_64 -M q35 -accel tcg -cpu max -m 256 -nodefaults -no-reboot -display none -serial stdio \
    -kernel "$guest_kernel/vmlinuz" -initrd initramfs \
    -append "console=ttyS0 quiet panic=-1 forebay_port=$port forebay_exports=${exports// /,}" \
    -netdev user,id=net -device virtio-net-pci,netdev=net,romfile= </dev/null >console 2>&1 || true
grep -q 'the guest is content' console || { cat console; exit 1; }
for export in $exports; do
    nbdcopy "nbd+unix:///$export?socket=$socket" image
    fsck.ext4 -fn image >fsck 2>&1 || { cat fsck; exit 1; }
    debugfs -R "dump /copy copy" image 2>/dev/null
    cmp copy root/noise
done
