# First process of the test node, run by busybox: `sh init.sh BOOT`. BOOT is the folder of this boot on the host. Its
# file `node.env` (written by boot-files.ts) defines what to run. The script turns the host's file system, the root when it
# starts, into the node's root: an overlay whose upper layer is memory, so no write of the node reaches the host. Then it
# sources run.sh, or executes systemd, which starts run.sh.
boot=$1
. "$boot/node.env"
export PATH="$NODE_APPLETS"
. "$NODE_SCRIPTS/kernels/$NODE_KERNEL.sh"
# Until the overlay is the root, any failure ends the node: only the read-only mount protects the host's files.
set -e

# --- root: overlay over the host's, then leave that behind
# busybox runs its applets through /proc/self/exe. Until proc is mounted, that is the host's file: the kernel's program
# itself. So these calls use full names.
"$NODE_APPLETS/mount" -t proc proc /proc
insmod "$NODE_MODULES/kernel/fs/overlayfs/overlay.ko"
mount -t tmpfs -o mode=755 tmpfs "$boot/root"
mkdir "$boot/root/upper" "$boot/root/work" "$boot/root/merged"
mount -t overlay -o "lowerdir=/,upperdir=$boot/root/upper,workdir=$boot/root/work" overlay "$boot/root/merged"
cd "$boot/root/merged"
mkdir -p .host
pivot_root . .host
cd /
"$NODE_APPLETS/mount" -t proc proc /proc
umount -l /.host
rmdir /.host

mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
ln -s /proc/self/fd /dev/fd
for number in 0:stdin 1:stdout 2:stderr; do ln -s "fd/${number%:*}" "/dev/${number#*:}"; done
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t mqueue mqueue /dev/mqueue
for folder in /run /tmp /data /var/lib/kubelet /var/lib/containerd /var/lib/cni /lib/modules; do
  mkdir -p $folder
  mount -t tmpfs -o mode=755 tmpfs $folder
done
chmod 1777 /tmp
ln -s "$NODE_MODULES" "/lib/modules/$(uname -r)"
# Mounts the boot's folder again (it may have been under /tmp), and the only writable folder of the host.
mkdir -p /run/node/boot /run/node-out
mount_host "$boot" /run/node/boot
mount_out /run/node-out
boot=/run/node/boot
# Mounts again what the node needs of the host and one of the folders above hides (for example a checkout under /tmp):
# an overlay with the host's files below and memory above.
number=0
for folder in $NODE_HOST_FOLDERS; do
  [ -e "$folder" ] && continue
  number=$((number + 1))
  layers=/run/node/layers/$number
  mkdir -p "$folder" "$layers/host" "$layers/memory"
  mount -t tmpfs -o mode=755 tmpfs "$layers/memory"
  mkdir "$layers/memory/upper" "$layers/memory/work"
  mount_host "$folder" "$layers/host"
  mount -t overlay -o "lowerdir=$layers/host,upperdir=$layers/memory/upper,workdir=$layers/memory/work" overlay "$folder"
done
mount --make-rshared /
set +e

[ "$NODE_INIT" = systemd ] && . "$NODE_SCRIPTS/systemd.sh"
. "$NODE_SCRIPTS/run.sh"
