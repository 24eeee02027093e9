#!/bin/sh
# boot.sh FOLDER LOWER: boots systemd on a copy-on-write copy of the root file system LOWER, until standard input ends. Each line of standard input
# waits for the end of this system, and boots it again. Everything that it makes is in namespaces of its own, and ends with them; run it as
# `unshare --mount sh boot.sh FOLDER LOWER`.
set -eu
folder=$1
lower=$2
exec 3<&0 </dev/null
mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root" "$folder/cgroup" "$folder/units"
mount -t overlay -o "lowerdir=$lower,upperdir=$folder/upper,workdir=$folder/work" overlay "$folder/root"
root=$folder/root

# Of the machine's own units only those that every unit depends on: its services are not to start a second time.
units=$root/usr/lib/systemd/system
[ -d "$units" ] || units=$root/lib/systemd/system
for unit in basic exit final local-fs local-fs-pre multi-user network network-online paths reboot shutdown slices sockets swap sysinit \
    timers umount; do
    cp "$units/$unit.target" "$folder/units/"
done
cp "$units/systemd-reboot.service" "$units/systemd-journald.service" "$units/systemd-journald.socket" "$units/systemd-journald-dev-log.socket" "$folder/units/"
mkdir "$folder/units/sockets.target.wants"
ln -s ../systemd-journald.socket ../systemd-journald-dev-log.socket "$folder/units/sockets.target.wants/"
rm -rf "$units" "$root"/etc/systemd/system "$root"/etc/init.d "$root"/etc/rc?.d "$root"/usr/sbin/policy-rc.d
mkdir -p "$units" "$root/etc/systemd/system"
cp -a "$folder/units/." "$units/"

# A control group, in the hierarchy of version 2 alone.
mount -t cgroup2 cgroup2 "$folder/cgroup"
group=$folder/cgroup/grit-test-$$
mkdir "$group"

cat >"$folder/init.sh" <<'INIT'
set -eu
root=$1
mount -t proc proc "$root/proc"
# Nothing here is to turn the knobs of the machine's kernel.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in full null random tty urandom zero; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir -p "$root/dev/shm" "$root/dev/pts" "$root/.old"
ln -s /proc/self/fd "$root/dev/fd"
# For units with PrivateDevices=.
ln -s pts/ptmx "$root/dev/ptmx"
cd "$root"
pivot_root . .old
cd /
umount -l /.old
exec env -i container=grit-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=multi-user.target --log-target=console --log-level=warning --show-status=no
INIT
boot() {
    sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$group" \
        unshare --mount --pid --fork --kill-child --uts --ipc --cgroup sh "$folder/init.sh" "$root" &
    booted=$!
}
boot
while read -r _ <&3; do
    wait "$booted" || true
    boot
done
kill -s KILL "$booted" 2>/dev/null || true
wait "$booted" || true
# The last processes leave it a moment after their end.
tries=100
until find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || [ "$tries" = 0 ]; do
    tries=$((tries - 1))
    sleep 0.02
done
