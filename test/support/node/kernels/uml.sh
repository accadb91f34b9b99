# User Mode Linux as the kernel of the test node. init.sh and run.sh source it.
# ttyS1 has the kernel's log.
console_out=/dev/tty0 console_err=/dev/ttyS0 console_in=/dev/ttyS2 console_control=/dev/ttyS3
controllers='cpu memory pids io'

# mount_host FOLDER PLACE: mounts a folder of the host, read-only.
mount_host() { mount -r -t hostfs -o "$1" hostfs "$2"; }
# mount_out PLACE: mounts the only folder of the host that is writable.
mount_out() { mount -t hostfs -o "$NODE_OUT_ON_HOST" hostfs "$1"; }

prepare_kernel() {
  # Node 22 and later use io_uring for their event loop. User Mode Linux dies if a process with mapped rings forks.
  echo 2 >/proc/sys/kernel/io_uring_disabled
}
