#!/bin/busybox sh
# What a guest does while its disk is moved: several jobs write to parts of the disk and read back what they wrote, past the guest's page cache, until a line comes in by the
# console. Each knows by a copy in memory what its part must hold; all of it is compared at the end. A line of one dot is told for each sixteen requests.
# Only the first `forebay_places` of the sixteen 64 KiB of each part are used, all unless it is said.
# The disk is `forebay_disk`; or, where there is a `forebay_server`, an export of that server, `forebay_export` at `forebay_port`, attached by the kernel's NBD driver.
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
for module in $(cat /modules/order); do insmod "/modules/$module.ko"; done
fail() {
    echo "the guest is not content: $*"
    touch /tmp/stop
    exit 1
}
# Attaches the export, and again to another device whenever the connection is lost, which ends nbd-client. The driver fails requests meanwhile: a multipath device on top keeps
# them, and sends them again to the path that it gets next.
attach() {
    ip link set lo up
    ip link set eth0 up
    ip addr add "$forebay_address" dev eth0
    cd /proc/sys/net/ipv4 && echo 1 >tcp_keepalive_time && echo 1 >tcp_keepalive_intvl && echo 2 >tcp_keepalive_probes
    number=0
    while :; do
        name=nbd$((number % 2)) number=$((number + 1))
        nbd-client -nonetlink -nofork -timeout 5 -b 512 -N "$forebay_export" "$forebay_server" "$forebay_port" "/dev/$name" >/tmp/attached 2>&1 &
        while [ -d /proc/$! ] && [ ! -e /sys/block/$name/pid ]; do usleep 5000; done
        if [ -e /sys/block/$name/pid ]; then
            path="0 $(cat /sys/block/$name/size) multipath 3 queue_if_no_path queue_mode bio 0 1 1 round-robin 0 1 1 /dev/$name 1"
            if [ -e /dev/dm-0 ]; then
                echo "$path" | dmsetup reload --noudevsync disk && dmsetup suspend --noflush --nolockfs --noudevsync disk && dmsetup resume --noudevsync disk
            else
                echo "$path" | dmsetup create --noudevsync disk
            fi || fail "the disk gets no new path"
        fi
        wait $!
        usleep 20000
    done
}
# 1 MiB each, used by 64 KiB, sixteen requests of 4 KiB at a time.
job() {
    first=$(($1 * 256)) state=$1 copy=/tmp/copy.$1 part=/tmp/part.$1 said=/tmp/said.$1 longest=0
    dd if=/dev/zero of="$copy" bs=64k count=16 2>/dev/null
    while [ ! -e /tmp/stop ]; do
        began=$(cut -d ' ' -f 1 /proc/uptime | tr -d .)
        state=$(((state * 1103515245 + 12345) & 0x7fffffff))
        at=$(((state >> 8) % ${forebay_places:-16} * 16)) from=$(((state >> 12) % 200))
        if [ $(((state >> 24) % 2)) = 0 ]; then
            dd if=/noise of="$copy" bs=4k skip=$from seek=$at count=16 conv=notrunc 2>/dev/null
            dd if=/noise of="$forebay_disk" bs=4k skip=$from seek=$((first + at)) count=16 oflag=direct conv=notrunc 2>"$said" || fail "$(cat "$said")"
        else
            dd if="$forebay_disk" of="$part" bs=4k skip=$((first + at)) count=16 iflag=direct 2>"$said" || fail "$(cat "$said")"
            dd if="$copy" bs=4k skip=$at count=16 2>/dev/null | cmp - "$part" || fail "wrong bytes in job $1 at block $((first + at))"
        fi
        took=$(($(cut -d ' ' -f 1 /proc/uptime | tr -d .) - began))
        [ $took -le $longest ] || longest=$took
        echo .
    done
    dd if="$forebay_disk" bs=4k skip=$first count=256 iflag=direct 2>/dev/null | cmp - "$copy" || fail "wrong bytes in job $1 at the end"
    echo "longest ${longest}0 ms"
}
(read -r line </dev/ttyS0; touch /tmp/stop) &
dd if=/dev/urandom of=/noise bs=1M count=1 2>/dev/null
if [ -n "$forebay_server" ]; then
    attach &
    while [ ! -e /dev/dm-0 ]; do usleep 20000; done
fi
for number in 0 1 2 3; do job $number & jobs="$jobs $!"; done
for job in $jobs; do wait "$job" || bad=1; done
[ -n "$bad" ] || echo "the guest is content"
poweroff -f
