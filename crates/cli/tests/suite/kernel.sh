# Boots a small guest, in QEMU's software emulation, whose Linux attaches the volumes `$exports` of the daemon at the host's loopback port `$port`.
# `$guest_kernel` holds `vmlinuz` and the modules (scripts/bootstrap puts them there). The guest has what it needs in its first file
# system, `root`; what it does there is `kernel-init.sh`. Here is checked what it left on the volumes.
mkdir -p root/bin root/lib root/modules root/dev root/proc root/sys root/mnt
for program in busybox nbd-client mkfs.ext4 fsck.ext4; do
    file=$(command -v "$program")
    cp -L "$file" root/bin/
    # A program that is linked statically needs nothing else.
    { ldd "$file" 2>/dev/null || true; } | { grep -o '/[^ ]*' || true; } | while read -r library; do
        mkdir -p "root$(dirname "$library")"
        cp -L "$library" "root$library"
    done
done
cp "$guest_kernel"/*.ko root/modules/
cp "$guest_kernel/modules" root/modules/order
head -c 4194304 ../noise >root/noise
cp ../kernel-init.sh root/init
chmod 755 root/init
(cd root && find . | cpio --quiet -o -H newc) >initramfs
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
