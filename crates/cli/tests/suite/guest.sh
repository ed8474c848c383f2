# Makes a guest's first file system, `initramfs`, from the folder `root`, which may hold something already: with the init `$1`, the programs named after it and what they are
# linked with, and the modules of `$guest_kernel` (scripts/bootstrap puts them there) in the order in which they are loaded.
first_file_system() {
    mkdir -p root/bin root/lib root/modules root/dev root/proc root/sys root/mnt root/tmp
    cp "$1" root/init
    chmod 755 root/init
    shift
    for program in "$@"; do
        file=$(command -v "$program")
        cp -L "$file" root/bin/
        # A program that is linked statically needs nothing else.
        { ldd "$file" 2>/dev/null || true; } | { grep -o '/[^ ]*' || true; } | while read -r library; do
            mkdir -p "root$(dirname "$library")"
            cp -L "$library" "root$library"
        done
    done
    cp "$guest_kernel"/*.ko root/modules/
    cat "$guest_kernel/modules" "$guest_kernel/test-modules" >root/modules/order
    (cd root && find . | cpio --quiet -o -H newc) >initramfs
}
