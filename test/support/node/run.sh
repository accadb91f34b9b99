# The second half of the test node's start, on the finished root. init.sh sources it, or systemd starts it as a service
# (`sh run.sh`). It starts containerd and runs the command, with which the node ends.
if [ "$$" != 1 ]; then
  boot=/run/node/boot
  . "$boot/node.env"
  export PATH="$NODE_APPLETS"
  . "$NODE_SCRIPTS/kernels/$NODE_KERNEL.sh"
fi

# --- consoles: standard output, standard error, standard input, control. Opened first, because a console forgets its
# settings when nothing has it open.
if [ "$NODE_TERMINAL" = 1 ]; then
  exec 5<>$console_out 6>&5
else
  exec 5>$console_out
  stty -F $console_out raw -echo
  exec 6>$console_err
  stty -F $console_err raw -echo
fi
exec 7<>$console_control
stty -F $console_control raw -echo
say() { echo "$*" >&7; }
fail() {
  echo "test node: $*" >&6
  finish 70
}
finish() {
  say "ending"
  # Leftover processes of the command hold its output open. They are killed first, so that the copiers see its end.
  for process in /proc/[0-9]*; do
    id=${process#/proc/}
    case " 1 $$ $copiers " in *" $id "*) continue ;; esac
    kill -9 "$id"
  done 2>/dev/null
  exec 8>&- 9>&-
  [ -n "$copiers" ] && wait $copiers
  [ "$1" = 0 ] || cp /run/node/containerd.log /run/node-out/ 2>/dev/null
  umount /run/node-out
  sync
  say "exit $1"
  exec 5>&- 6>&- 7>&-
  poweroff -f
}

# --- cgroup v2 in kubelet's layout; systemd has created it by units
if [ "$NODE_INIT" = plain ]; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup || fail "no cgroup v2 in this kernel"
  for group in '' kubepods kubepods/burstable kubepods/besteffort; do
    mkdir -p "/sys/fs/cgroup/$group"
    for controller in $controllers; do
      echo "+$controller" >"/sys/fs/cgroup/$group/cgroup.subtree_control" ||
        fail "cannot enable $controller in /sys/fs/cgroup/$group/cgroup.subtree_control"
    done
  done
fi

# --- network: loopback, and the modules for bridged pods
hostname test-node
ip link set lo up
for module in net/llc/llc net/802/stp net/bridge/bridge drivers/net/veth; do insmod "$NODE_MODULES/kernel/$module.ko"; done
ulimit -n 65536
echo 1 >/proc/sys/net/ipv4/ip_forward
prepare_kernel

mkdir -p "$HOME"
export PATH="$NODE_PATH"
cp -r "$boot/containerd.toml" "$boot/cni" /run/node/
say "booted"

if [ "$NODE_CONTAINERD" = 1 ]; then
  node-containerd start >&6 2>&1 || fail "containerd did not start"
  ctr -n k8s.io images import "$NODE_IMAGES" >/run/node/import.log 2>&1 || fail "image import: $(cat /run/node/import.log)"
fi
say "ready"

# --- the command
cd "$NODE_CWD" || fail "cannot enter $NODE_CWD"
. "$boot/command.env"
# A line on the control console ends the node early, with its logs saved.
(read -r reason <&7 && kill -9 -- "-$(cat /run/node/command.pid)") 5>&- 6>&- 2>/dev/null &
# Runs in the foreground, because background commands of a shell ignore SIGINT, and so do their children.
run='echo $$ >/run/node/command.pid; . /run/node/boot/command.sh'
if [ "$NODE_TERMINAL" = 1 ]; then
  setsid -c sh -c "$run" <&5 >&5 2>&5 6>&- 7>&-
  finish $?
fi
# Uses pipes, not consoles, because a command must not treat the node's console as a terminal.
mkfifo /run/node/stdout /run/node/stderr /run/node/stdin
cat </run/node/stdout >&5 2>/dev/null 7>&- &
copiers=$!
cat </run/node/stderr >&6 2>/dev/null 7>&- &
copiers="$copiers $!"
exec 8>/run/node/stdout 9>/run/node/stderr
stdin=/dev/null
if [ "$NODE_STDIN" = 1 ]; then
  stdin=/run/node/stdin
  # One base64 line for each piece, requested one by one, and a dot at the end: a console transfers neither all bytes
  # nor an end of file, and drops what is not read in time.
  (stty raw -echo icanon && while say more && read -r line && [ "$line" != . ]; do echo "$line" | base64 -d; done) \
    <$console_in >$stdin 5>&- 6>&- 8>&- 9>&- &
fi
setsid sh -c "$run" <$stdin >&8 2>&9 5>&- 6>&- 7>&- 8>&- 9>&-
finish $?
