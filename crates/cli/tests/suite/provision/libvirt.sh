# A libvirtd of this test's own, in "$1": in mounts of its own it finds the user that Debian's package would make, and a configuration by which machines
# run as this user, in software, without the services of a whole host.
cp /etc/passwd "$1/passwd"
echo 'libvirt-qemu:x:0:0::/nonexistent:/bin/false' >>"$1/passwd"
mount --bind "$1/passwd" /etc/passwd
cp /etc/group "$1/group"
echo 'libvirt-qemu:x:0:' >>"$1/group"
mount --bind "$1/group" /etc/group
mkdir -p /etc/libvirt /run/libvirt /var/lib/libvirt
for folder in /etc/libvirt /run/libvirt /var/lib/libvirt; do mount -t tmpfs none "$folder"; done
cat >/etc/libvirt/qemu.conf <<EOF
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
remember_owner = 0
stdio_handler = "file"
EOF
cat >"$1/libvirtd.conf" <<EOF
unix_sock_dir = "$1"
auth_unix_ro = "none"
auth_unix_rw = "none"
EOF
exec libvirtd -f "$1/libvirtd.conf" -p "$1/pid"
