#!/usr/bin/env bash
# The entry point of the image. Keeps the CRI socket open, starts the shim with it, and has systemd's socket proxy serve clients while the
# shim cannot: what the systemd units do on a host (docs/bypass.md). Needs bash, coreutils, grep, s6 and systemd-socket-proxyd: no Node
# and no file of the shim.
set -uC
# The first process of a container ignores signals without a trap.
trap 'exit 143' TERM INT
export LC_ALL=C
PATH=$PATH:/usr/lib/systemd

# In ticks. The same values as in the units.
UNSERVED=4     # without a shim, until the bypass serves
START=60       # from a start of the shim until it is ready
WATCHDOG=20    # between two notifications of the shim
SERVED=600     # of service, after which earlier failures count no more
STOP=30        # for calls that the bypass has begun when the container stops
RESTORE=5      # for memory.high of a shim that has ended, until the next one starts
AT_ONCE=3      # failures before the bypass serves without waiting
PAUSE=5        # before the first start while the bypass serves; each next pause is twice as long
MOST=300       # the longest pause
CLIENTS=4096   # connections of the bypass, each with six descriptors
TICK=1         # in seconds. Ticks are counted, so that a pause of the container is no time in which the shim was silent

words=("$@")
program=$(dirname "$(dirname "$(realpath "$0")")")/dist
for word; do
  case $word in --version | --help | -h) exec node "$program/cri-resize-shim.js" "$@" ;; esac
done

fail() {
  printf '%s\n' "$1" >&2
  exit 1
}

# A log that nobody reads must not stop this.
report() { timeout 1 printf 'cri-resize-shim entry point: %s\n' "$1" >&2; }

# The last value of a flag.
flag() {
  local word value='' previous=''
  for word in "${words[@]}"; do
    case $word in
      "--$1="*) value=${word#*=} ;;
      *) [[ $previous != "--$1" ]] || value=$word ;;
    esac
    previous=$word
  done
  printf %s "$value"
}

# The value of a flag, or that of a line in the configuration file, which may be invalid otherwise; the default if it is no path.
setting() {
  local line value file plain="[^[:space:]#\"'&*!|>]([^#]*[^[:space:]#])?"
  local pattern="^[\"']?$2[\"']?:[[:space:]]+(\"([^\"\\]*)\"|'([^']*)'|($plain))([[:space:]]+#.*|[[:space:]]*)\$"
  value=$(flag "$1")
  file=$(flag config)
  # A FIFO would not open before it has a writer.
  if [[ ! $value && -f $file ]]; then
    while IFS= read -r line || [[ $line ]]; do
      if [[ $line =~ $pattern ]]; then
        value=${BASH_REMATCH[2]}${BASH_REMATCH[3]}${BASH_REMATCH[4]}
      elif [[ $line == *$2* && ! $line =~ ^[[:space:]]*# ]]; then
        report "$file: cannot read $2 in this notation: use the flag --$1"
      fi
    done <"$file"
  fi
  case $value in unix:///*) value=${value#unix://} ;; unix:/[!/]*) value=${value#unix:} ;; esac
  case $value in /*) printf %s "$value" ;; *) printf %s "$3" ;; esac
}

listen=$(setting listen listen /run/cri-resize-shim/cri-resize-shim.sock)
state_folder=$(setting state-folder stateFolder /var/lib/cri-resize-shim)
cgroup_root=$(setting cgroup-root cgroupRoot /sys/fs/cgroup)
# A name that the shim knows as its own in this folder.
state=$(dirname "$listen")/.$(basename "$listen").bypass

# Creates the socket as its standard input, for root only, and starts this program again. Ends if another process listens there.
bind_socket() {
  type -P systemd-socket-proxyd >/dev/null || fail 'systemd-socket-proxyd is not installed'
  # sun_path of unix(7) has 108 bytes, including the terminating zero.
  [[ ${#listen} -le 107 ]] || fail "listen: $listen has ${#listen} bytes, at most 107 are possible: use a shorter path"
  mkdir -p -m 0711 "$(dirname "$listen")"
  if [[ -e $listen || -L $listen ]]; then
    [[ -S $listen ]] || fail "$listen exists and is not a socket"
    case $(timeout 5 s6-ipcclient "$listen" true 2>&1 || echo "exit code $?") in
      *'Connection refused'*) rm "$listen" ;;
      # A process whose queue is full does not answer.
      '' | *unavailable* | *'exit code 124') fail "another process listens on $listen" ;;
      *) fail "cannot connect to $listen" ;;
    esac
  fi
  CRI_RESIZE_SHIM_ENTRY=bound exec s6-ipcserver-socketbinder -D -b 4096 -a 0660 "$listen" bash "$0" "${words[@]}"
}

[[ ${CRI_RESIZE_SHIM_ENTRY-} == bound ]] || bind_socket
unset CRI_RESIZE_SHIM_ENTRY
# The first descriptor of sd_listen_fds(3).
exec 3<&0 0</dev/null
# A pipe of its own: both ends stay open. The shim writes its notifications to it.
exec 4<> <(:)
identity=$(stat -c %d:%i "$listen")

now=0
shim='' ready='' beat=0 started=0 next=0 code=0
# Since when clients have no shim.
down=0
failures=0 pause=$PAUSE
restoring='' ended_at=0
proxy='' drain='' begun=0
stopping=''

# Whether a process has ended. Its exit code is in $status.
ended() {
  ! kill -0 "$1" 2>/dev/null || return 1
  wait "$1" 2>/dev/null
  status=$?
}

# Starts the shim as systemd does: with the socket as its descriptor 3.
start_shim() {
  ready='' started=$now
  (
    export LISTEN_PID=$BASHPID LISTEN_FDS=1 LISTEN_FDNAMES=cri
    export CRI_RESIZE_SHIM_NOTIFY_FD=4 WATCHDOG_PID=$BASHPID WATCHDOG_USEC=$((WATCHDOG * 1000000))
    export CRI_RESIZE_SHIM_BYPASS_STATE=$state
    exec node "$program/cri-resize-shim.js" "${words[@]}"
  ) &
  shim=$!
}

# Notes the end of the shim, and decides when to start it again.
reap_shim() {
  local how wait=0
  how="exit code $status"
  ((status <= 128)) || how="signal $((status - 128))"
  shim='' code=$status ended_at=$now
  # It has ended before it could handle our signal.
  [[ ! $stopping || $status -ne 143 ]] || code=0
  if restored; then
    restore_highs &
    restoring=$!
  fi
  [[ ! $stopping ]] || return 0
  note_failure
  if serves; then
    wait=$((pause < MOST ? pause : MOST))
    ((pause >= MOST)) || ((pause *= 2))
  fi
  next=$((now + wait))
  report "the shim has ended ($how), and is started again in $wait s"
}

# A shim that was killed leaves memory.high lowered where it has held usage down or reclaimed. Its records have the values to restore.
# The same as ExecStopPost= of cri-resize-shim.service.
restore_highs() (
  read -r boot </proc/sys/kernel/random/boot_id
  for record in "$state_folder"/*.json; do
    grep -qs "bootId.:.$boot.*memoryHigh" "$record" || continue
    grep -o 'cgroup.:[^{}]*memoryHigh.:[^{},]*' "$record" | sed 's|[^[:alnum:]/_.@-]| |g' | while read -r _ path _ high; do
      cd "$cgroup_root$path" 2>/dev/null && value=$(cat memory.high) && [[ $value != max ]] || continue
      ((value % 262144 == 196608)) || continue
      [[ $high == max ]] || ((value < high)) || continue
      grep -q "to.:[^0-9]$value[^0-9]" "$record" || echo "$high" >|memory.high
    done
  done
)

# Whether memory.high is restored. Without an answer of the disk, the next start of the shim does it.
restored() {
  if [[ $restoring ]] && ended "$restoring"; then restoring=''; fi
  [[ ! $restoring ]] || ((now - ended_at > RESTORE))
}

# The shim serves no more.
note_failure() {
  if [[ $ready ]]; then
    ((now - ready < SERVED)) || failures=0
    down=$now
  elif ((failures)); then
    return
  fi
  ready=''
  ((++failures))
  pause=$PAUSE
  for ((more = failures; more > AT_ONCE && pause < MOST; more--)); do ((pause *= 2)); done
}

# Whether the bypass accepts clients.
serves() { [[ ! $ready && ! $stopping ]] && ((failures >= AT_ONCE || now - down >= UNSERVED)); }

# The bypass does not wait for the exit: a process that waits for a disk has none. It is killed again after $START.
kill_shim() {
  kill -KILL "$shim"
  report "the shim is killed: $1"
  note_failure
  started=$now
}

supervise_shim() {
  if [[ $shim ]] && ended "$shim"; then reap_shim; fi
  if [[ $stopping ]]; then
    return
  elif [[ ! $shim ]]; then
    ((now < next)) || ! restored || start_shim
  elif [[ ! $ready ]]; then
    ((now - started <= START)) || kill_shim "not ready after $START s"
  else
    ((now - beat <= WATCHDOG)) || kill_shim "no notification for $WATCHDOG s"
  fi
}

# Starts the proxy with the same socket.
start_proxy() {
  local backend
  backend=$(setting container-runtime-endpoint containerRuntimeEndpoint /run/containerd/containerd.sock)
  report "the shim does not serve: clients reach $backend without it"
  (
    ulimit -Sn $((CLIENTS * 6 + 16)) 2>/dev/null || ulimit -Sn hard
    places=$((($(ulimit -Sn) - 16) / 6))
    export LISTEN_PID=$BASHPID LISTEN_FDS=1
    exec systemd-socket-proxyd --connections-max=$((places < CLIENTS ? places : CLIENTS)) "$backend" 4>&-
  ) &
  proxy=$!
  printf -v begun '%(%s)T' -1
  write_state active "@$begun" 0
}

# Moves its clients to the shim, as cri-resize-shim-takeover.service does. Node waits at its exit for a reader of its output.
start_drain() {
  node "$program/resizectl.js" bypass drain "$proxy" "$listen" > >(
    exec 3<&- 4>&-
    while IFS= read -r line; do report "$line"; done
  ) 2>&1 3<&- 4>&- &
  drain=$!
}

supervise_proxy() {
  if [[ $drain ]] && ended "$drain"; then
    drain=''
    # A drain that was killed or interrupted (3) starts again. Without a shim, one that was too late has left a proxy that can open no
    # descriptor.
    if [[ $stopping ]] || if [[ $ready ]]; then ((status < 128 && status != 3)); else grep -qs '^Max open files *0 ' "/proc/$proxy/limits"; fi; then
      kill -KILL "$proxy"
      wait "$proxy" 2>/dev/null
    fi
  fi
  if [[ $proxy ]] && ended "$proxy"; then
    proxy=''
    local now_seconds
    printf -v now_seconds '%(%s)T' -1
    # Rounded up: not before the start of the shim.
    write_state inactive "@$begun" "@$((now_seconds + 1))"
  fi
  if serves; then
    if [[ ! $proxy ]]; then start_proxy; elif [[ $drain ]]; then kill -INT "$drain"; fi
  elif [[ $proxy && ! $drain ]]; then
    report 'clients of the bypass move to the shim'
    start_drain
  fi
}

# The shim reads this like the output of systemctl show. Does not follow the link of another one.
write_state() {
  rm -f "$state.new"
  printf 'ActiveState=%s\nActiveEnterTimestampMonotonic=%s\nInactiveEnterTimestampMonotonic=%s\n' "$@" >"$state.new" &&
    mv -fT "$state.new" "$state" || report "cannot write $state"
}

# The first signal is passed on: the shim answers its calls. The second one ends everything.
stop() {
  if [[ $stopping ]]; then
    kill -KILL $shim $proxy $drain 2>/dev/null
    return
  fi
  stopping=$now
  [[ ! $shim ]] || kill -TERM "$shim"
  [[ $(stat -c %d:%i "$listen" 2>/dev/null) != "$identity" ]] || rm -f "$listen"
  exec 3<&-
}

trap 'echo STOP=1 >&4' TERM INT
write_state inactive 0 0
while [[ ! $stopping || $shim || $proxy ]] || ! restored; do
  supervise_shim
  supervise_proxy
  if ! read -rt "$TICK" -u 4 event; then
    ((++now))
    [[ ! $stopping || ! $drain || $((now - stopping)) -ne $STOP ]] || kill -TERM "$drain"
    continue
  fi
  case $event in
    READY=1) [[ ! $shim || $ready ]] || ready=$now beat=$now ;;
    WATCHDOG=1) beat=$now ;;
    STOP=1) stop ;;
  esac
done
rm -f "$state"
exit "$code"
