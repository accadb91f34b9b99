# Debian's kernel in qemu as the kernel of the test node. init.sh and run.sh source it.
# ttyS0 has the kernel's log.
console_out=/dev/hvc0 console_err=/dev/hvc1 console_in=/dev/hvc2 console_control=/dev/hvc3
controllers='cpu cpuset memory pids io hugetlb'

# mount_host FOLDER PLACE: mounts a folder of the host, read-only.
mount_host() {
  [ -d /run/node/host ] || { mkdir -p /run/node/host && mount -r -t virtiofs root /run/node/host; }
  mount --bind "/run/node/host$1" "$2"
}
# mount_out PLACE: mounts the only folder of the host that is writable.
mount_out() { mount -t virtiofs out "$1"; }

prepare_kernel() {
  insmod "$NODE_MODULES/kernel/drivers/block/virtio_blk.ko"
  mkswap /dev/vda >/dev/null
  swapon /dev/vda
  mkdir -p /dev/hugepages
  mount -t hugetlbfs hugetlbfs /dev/hugepages
}
