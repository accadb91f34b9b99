#!/usr/bin/perl
# The entry point of the image. Keeps the CRI socket open, starts the shim with it, and forwards clients to containerd itself while the
# shim cannot serve: what the systemd units do on a host (docs/bypass.md). Needs nothing but perl-base, an essential package of the base
# image: no Node, no file of the shim.
use strict;
use warnings;
use Cwd qw(realpath);
use Errno;
use Fcntl qw(F_GETFL F_SETFD F_SETFL O_APPEND O_CREAT O_EXCL O_NONBLOCK O_WRONLY);
use File::Basename qw(basename dirname);
use POSIX qw(WNOHANG _SC_OPEN_MAX sysconf);
use Socket qw(AF_UNIX SOCK_DGRAM SOCK_STREAM pack_sockaddr_un);

# In seconds. The same values as in the units.
my $UNSERVED = 4;      # without a shim, until the bypass serves
my $START = 60;        # from a start of the shim until it is ready
my $WATCHDOG = 20;     # between two notifications of the shim
my $SERVED = 600;      # of service, after which earlier failures count no more
my $DRAIN = 600;       # for calls that the bypass has begun
my $STOP = 30;         # the same when the container stops
my $AT_ONCE = 3;       # failures before the bypass serves without waiting
my $PAUSE = 5;         # before the first start while the bypass serves; each next pause is twice as long
my $MOST = 300;        # the longest pause
my $PAUSED = 3;        # without a look at the shim: more than the loop ever waits
my $CLIENTS = 400;     # connections of the bypass, each with two descriptors
my $QUIET = 10;        # without a byte, after which a connection without a call ends for a new client if there are $CLIENTS
my $CALL = 128;        # bytes of a client that has made a call, with the preface and its settings, at least
my $SPARE = 16;        # descriptors for everything else
my $REFRAIN = 1;       # after a client that cannot be accepted: the node or the process has no descriptor left
my $BUFFER = 256 * 1024;
# RFC 9113: no new streams on this connection, running ones are answered. The client makes its next call on another connection.
my $GOAWAY = pack 'H*', '0000080700000000007fffffff00000000';

# An own description of the log that does not block: a log that nobody reads must not keep clients waiting. The shim keeps the other one.
my $log = \*STDERR;
if (-p STDERR && sysopen my $pipe, '/proc/self/fd/2', O_WRONLY | O_APPEND | O_NONBLOCK) { $log = $pipe }
# Stays open, so that the time is known without a free descriptor.
open my $uptime, '<', '/proc/uptime' or die "/proc/uptime: $!\n";

my $program = dirname(dirname(realpath($0))) . '/dist/cri-resize-shim.js';
exec 'node', $program, @ARGV or exit 127 if grep { /^(?:--version|--help|-h)$/ } @ARGV;

my $listen = setting('listen', 'listen', '/run/cri-resize-shim/cri-resize-shim.sock');
my $backend = setting('container-runtime-endpoint', 'containerRuntimeEndpoint', '/run/containerd/containerd.sock');
my $state_folder = setting('state-folder', 'stateFolder', '/var/lib/cri-resize-shim');
my $cgroup_root = setting('cgroup-root', 'cgroupRoot', '/sys/fs/cgroup');
# Names that the shim knows as its own in this folder.
my ($notify_path, $state_path) = map { dirname($listen) . '/.' . basename($listen) . ".$_" } 'notify', 'bypass';

# sun_path of unix(7) has 108 bytes, including the terminating zero.
my $longest = 107 - (length($notify_path) - length $listen);
die "listen: $listen has " . length($listen) . " bytes, at most $longest are possible: use a shorter path\n" if length $listen > $longest;

my ($signals, $is_mirrored, $is_our_folder) = (0, 0, 0);
my ($child, $started, $ready, $beat, $next_start, $stopping);
my $code = 0;
my ($failures, $pause) = (0, $PAUSE);
my $down = now();
my $looked = $down;
# When the bypass has begun and ended, in seconds since the epoch, and until when its clients may stay.
my ($begun, $ended, $deadline) = (0, 0);
my %pairs;
# No client is accepted before this time.
my $accepts_from = 0;

$SIG{PIPE} = 'IGNORE';
$SIG{CHLD} = sub { };
$SIG{$_} = sub { $signals++ } for qw(TERM INT);

my $open = sysconf(_SC_OPEN_MAX);
$CLIENTS = int(($open - $SPARE) / 2) if defined $open && $open >= 0 && $open < 2 * $CLIENTS + $SPARE;
my $socket = listening($listen);
my @identity = (stat $listen)[0, 1];
unlink $notify_path;
socket my $notify, AF_UNIX, SOCK_DGRAM, 0 or die "socket: $!\n";
bound($notify, $notify_path);
write_state();
start();
until ($stopping && !$child && !%pairs) {
    wait_for_events();
    reap();
    stop() if $signals;
    supervise() unless $stopping;
    mirror_rights() unless $is_mirrored || $stopping;
    drain();
}
unlink $notify_path, $state_path;
exit $code;

# The last value of a flag, or that of a line in the configuration file, which may be invalid otherwise; the default if it is no path.
sub setting {
    my ($flag, $key, $default) = @_;
    my $value = flag($flag);
    my $file = flag('config');
    # A FIFO would not open before it has a writer.
    if (!defined $value && defined $file && -f $file && open my $lines, '<', $file) {
        while (<$lines>) {
            $value = defined $2 ? $2 : $3 if /^["']?\Q$key\E["']?:\s+(?:(["'])(.*?)\1|([^\s#]\S*))\s*(?:#.*)?$/;
        }
    }
    return defined $value && $value =~ m{^(?:unix:(?://)?)?(/.+)$} ? $1 : $default;
}

sub flag {
    my ($name) = @_;
    my $value;
    for my $at (0 .. $#ARGV) {
        $value = $1 if $ARGV[$at] =~ /^--\Q$name\E=(.*)$/s;
        $value = $ARGV[$at + 1] if $ARGV[$at] eq "--$name" && $at < $#ARGV;
    }
    return $value;
}

sub report { syswrite $log, "cri-resize-shim entry point: $_[0]\n" }

# Seconds since the boot.
sub now {
    sysseek $uptime, 0, 0;
    sysread $uptime, my $text, 64;
    return (split ' ', $text)[0];
}

# Creates the socket, for root only at first. Ends if another process listens there.
sub listening {
    my ($path) = @_;
    my $folder = dirname($path);
    make_folder($folder);
    if (-e $path || -l $path) {
        -S $path or die "$path exists and is not a socket\n";
        socket my $probe, AF_UNIX, SOCK_STREAM, 0 or die "socket: $!\n";
        unblock($probe);
        # EAGAIN: its queue is full.
        die "another process listens on $path\n" if connect($probe, pack_sockaddr_un($path)) || $!{EAGAIN};
        $!{ECONNREFUSED} or die "cannot connect to $path: $!\n";
        unlink $path;
    }
    socket my $server, AF_UNIX, SOCK_STREAM, 0 or die "socket: $!\n";
    bound($server, $path);
    listen $server, 4096 or die "listen on $path: $!\n";
    unblock($server);
    return $server;
}

sub bound {
    my ($handle, $path) = @_;
    my $before = umask 0177;
    bind $handle, pack_sockaddr_un($path) or die "bind $path: $!\n";
    umask $before;
    unblock($handle);
}

sub make_folder {
    my ($path) = @_;
    my $above = dirname($path);
    make_folder($above), chmod 0755, $above unless -d $above;
    $is_our_folder = mkdir $path, 0700;
    return if $is_our_folder || !opendir(my $entries, $path);
    # A folder with other files, or that others may write to, is not ours.
    my ($mode, $owner) = (stat $path)[2, 4];
    my $is_backends = (realpath($path) // '') eq (realpath(dirname($backend)) // '');
    my @others = grep { !/^\./ && !-S "$path/$_" } readdir $entries;
    $is_our_folder = !@others && !$is_backends && $owner == $> && !($mode & 022);
}

# Sets owner and mode of socket and folder to those of containerd's, once it is there, without those who cannot reach containerd's.
sub mirror_rights {
    my $real = realpath($backend);
    return unless defined $real && -S $real;
    $is_mirrored = 1;
    set_rights(dirname($listen), (stat dirname($real))[2, 4, 5]) if $is_our_folder;
    my ($mode, $owner, $group) = (stat $real)[2, 4, 5];
    my ($theirs, $ours) = map { reach(dirname($_), $group) } $real, $listen;
    $mode &= ~($ours & ~$theirs);
    set_rights($listen, $mode, $owner, $group);
}

# The bits of group and others that have search permission down to a folder.
sub reach {
    my ($path, $gid) = @_;
    my $bits = 077;
    for (my $at = realpath($path); ; $at = dirname($at)) {
        my ($mode, $group) = (stat $at)[2, 5];
        $bits &= 070 unless $mode & 01;
        $bits &= 07 unless $mode & ($group == $gid ? 010 : 01);
        return $bits if $at eq dirname($at);
    }
}

# At no instant wider than before or after.
sub set_rights {
    my ($path, $mode, $owner, $group) = @_;
    $mode &= 01777;
    my ($before, $uid, $gid) = (stat $path)[2, 4, 5];
    if ($uid != $owner || $gid != $group) {
        chmod $before & $mode & 0700, $path;
        chown $owner, $group, $path or $mode &= 0700;
    }
    chmod $mode, $path;
}

sub unblock {
    my ($handle) = @_;
    fcntl $handle, F_SETFL, fcntl($handle, F_GETFL, 0) | O_NONBLOCK or die "fcntl: $!\n";
}

# Starts the shim as systemd does: with the socket as its descriptor 3, and a socket for notifications.
sub start {
    ($started, $ready, $next_start, $is_mirrored) = (now(), undef, undef, 0);
    $child = fork;
    if (!defined $child) {
        $next_start = now() + next_pause();
        report("cannot start the shim: $!");
    }
    return if !defined $child || $child;
    $SIG{$_} = 'DEFAULT' for qw(PIPE CHLD TERM INT);
    # Not closed at exec.
    if (fileno $socket == 3) { fcntl $socket, F_SETFD, 0 }
    else { POSIX::dup2(fileno $socket, 3) }
    @ENV{qw(LISTEN_PID LISTEN_FDS LISTEN_FDNAMES)} = ($$, 1, 'cri');
    @ENV{qw(NOTIFY_SOCKET WATCHDOG_PID WATCHDOG_USEC)} = ($notify_path, $$, $WATCHDOG * 1_000_000);
    $ENV{CRI_RESIZE_SHIM_BYPASS_STATE} = $state_path;
    { no warnings 'exec'; exec 'node', $program, @ARGV; }
    report("cannot start node: $!");
    POSIX::_exit(127);
}

# Notes the end of the shim, and decides when to start it again.
sub reap {
    while ((my $pid = waitpid -1, WNOHANG) > 0) {
        next unless $child && $pid == $child;
        my $how = $? & 127 ? 'signal ' . ($? & 127) : 'exit code ' . ($? >> 8);
        $child = undef;
        $code = $? & 127 ? 128 + ($? & 127) : $? >> 8;
        restore_highs();
        return if $stopping;
        note_failure();
        my $wait = $begun && !$ended || serves() ? next_pause() : 1;
        $next_start = now() + $wait;
        report("the shim has ended ($how), and is started again in $wait s");
    }
}

# A shim that was killed leaves memory.high lowered where it has held usage down or reclaimed. Its records have the values to restore.
# Restores only temporary values, which have a mark, and none that a step has set, as the next start does.
sub restore_highs {
    my $boot = content('/proc/sys/kernel/random/boot_id') // return;
    chomp $boot;
    for my $record (map { content($_) // () } records_in($state_folder)) {
        next unless $record =~ /"bootId":"\Q$boot\E"/;
        while ($record =~ /"cgroup":"([^"]+)","memoryHigh":"?(max|\d+)/g) {
            my ($file, $high) = ("$cgroup_root$1/memory.high", $2);
            my $found = content($file) // next;
            next unless $found =~ /^(\d+)$/ && $1 % 262_144 == 196_608 && ($high eq 'max' || $1 < $high);
            next if $record =~ /"to":"$1"/;
            open my $handle, '>', $file or next;
            syswrite $handle, $high;
        }
    }
}

sub records_in {
    my ($folder) = @_;
    opendir my $entries, $folder or return;
    return map { "$folder/$_" } grep { /^[0-9a-z-]+\.json$/i } readdir $entries;
}

sub content {
    my ($path) = @_;
    open my $handle, '<', $path or return;
    local $/;
    return scalar <$handle>;
}

# The shim serves no more.
sub note_failure {
    if (!defined $down) {
        $failures = 0 if now() - $ready >= $SERVED;
        $down = now();
        count_failure();
    }
    elsif (!$failures) { count_failure() }
    ($ready, $deadline) = ();
}

sub count_failure {
    $failures++;
    $pause = $PAUSE;
    for (my $more = $failures; $more > $AT_ONCE && $pause < $MOST; $more--) { $pause *= 2 }
}

sub next_pause {
    my $wait = $pause < $MOST ? $pause : $MOST;
    $pause *= 2 if $pause < $MOST;
    return $wait;
}

# Whether the bypass accepts clients.
sub serves { return !$stopping && defined $down && ($failures >= $AT_ONCE || now() - $down >= $UNSERVED) }

sub supervise {
    my $time = now();
    my $gap = $time - $looked;
    $looked = $time;
    # A pause of the container was one of the shim, too, and is no time in which it was silent.
    if ($gap > $PAUSED) { $_ = $_ + $gap < $time ? $_ + $gap : $time for grep { defined } $started, $beat }
    start() if !$child && defined $next_start && $time >= $next_start;
    kill_shim("not ready after $START s") if $child && !defined $ready && $time - $started > $START;
    kill_shim("no notification for $WATCHDOG s") if $child && defined $ready && $time - $beat > $WATCHDOG;
    return unless serves() && (!$begun || $ended);
    report("the shim does not serve: clients reach $backend without it");
    ($begun, $ended) = (time, 0);
    write_state();
}

sub kill_shim {
    my ($why) = @_;
    report("the shim is killed: $why");
    kill 'KILL', $child;
    # The bypass does not wait for the exit: a process that waits for a disk has none. It is killed again after $START.
    note_failure();
    $started = now();
}

# The shim reads this like the output of systemctl show.
sub write_state {
    my $active = $begun && !$ended ? 'active' : 'inactive';
    my ($from, $to) = map { $_ ? "\@$_" : 0 } $begun, $ended;
    # Another one's link is not followed.
    unlink "$state_path.new";
    sysopen my $file, "$state_path.new", O_WRONLY | O_CREAT | O_EXCL, 0644 or return report("cannot write $state_path: $!");
    print $file "ActiveState=$active\nActiveEnterTimestampMonotonic=$from\nInactiveEnterTimestampMonotonic=$to\n";
    close $file;
    rename "$state_path.new", $state_path;
}

sub notified {
    while (defined recv $notify, my $text, 4096, 0) {
        my %said = map { split /=/, $_, 2 } grep { /=/ } split /\n/, $text;
        next unless $child;
        if (exists $said{READY} && !defined $ready) {
            ($ready, $beat, $down) = (now(), now(), undef);
            $deadline = now() + $DRAIN if $begun && !$ended;
            report('the shim serves: clients of the bypass move to it') if $deadline;
        }
        $beat = now() if exists $said{WATCHDOG};
    }
}

# Clients go once their calls are answered.
sub drain {
    return unless defined $deadline || $stopping;
    for my $pair (values %pairs) {
        next if $pair->{goaway}++;
        goaway($pair);
        flush($pair, 'client');
    }
    my $limit = $stopping ? $stopping + $STOP : $deadline;
    finish($_) for grep { now() > $limit } values %pairs;
    return if $stopping || %pairs;
    report('all clients of the bypass have moved to the shim');
    # Rounded up: not before the start of the shim.
    ($ended, $deadline) = (time + 1, undef);
    write_state();
}

# The first signal is passed on: the shim answers its calls. The second one ends everything.
sub stop {
    exit 143 if $stopping && $signals > 1 && (!$child || kill 'KILL', $child);
    return if $stopping;
    ($stopping, $deadline) = (now(), undef);
    kill 'TERM', $child if $child;
    my @there = (stat $listen)[0, 1];
    unlink $listen if @there && "@there" eq "@identity";
    close $socket;
}

sub wait_for_events {
    my ($read, $write) = ('', '');
    my $accepts = serves() && has_room() && now() >= $accepts_from;
    vec($read, fileno $socket, 1) = 1 if $accepts;
    vec($read, fileno $notify, 1) = 1;
    for my $pair (values %pairs) {
        for ([qw(client backend)], [qw(backend client)]) {
            my ($from, $to) = @$_;
            vec($read, fileno $pair->{$from}, 1) = 1 if !$pair->{eof} && length $pair->{"to $to"} < $BUFFER;
            vec($write, fileno $pair->{$to}, 1) = 1 if length $pair->{"to $to"};
        }
    }
    my $found = select $read, $write, undef, defined $ready && !%pairs ? 1 : 0.2;
    return unless $found > 0;
    notified() if vec $read, fileno $notify, 1;
    for my $pair (values %pairs) {
        my ($client, $server) = map { fileno $pair->{$_} } qw(client backend);
        flush($pair, 'client') if vec $write, $client, 1;
        flush($pair, 'backend') if vec $write, $server, 1;
        receive($pair, 'client', 'backend') if vec $read, $client, 1;
        receive($pair, 'backend', 'client') if vec $read, $server, 1;
    }
    accept_clients() if $accepts && vec $read, fileno $socket, 1;
}

sub accept_clients {
    while (serves() && has_room()) {
        accept my $client, $socket or return $!{EAGAIN} || $!{EINTR} || $!{ECONNABORTED} || refrain();
        finish(quietest()) if keys %pairs >= $CLIENTS;
        # The client is closed.
        socket my $server, AF_UNIX, SOCK_STREAM, 0 or return refrain();
        unblock($_) for $client, $server;
        # A client that is closed tries again, as without the shim.
        connect $server, pack_sockaddr_un($backend) or next;
        $pairs{fileno $client} = {
            id => fileno $client, client => $client, backend => $server, 'to client' => '', 'to backend' => '',
            head => '', body => 0, frames => 0, headers => 0, goaway => 0, used => now(), asked => 0,
        };
    }
}

# Whether a client can be accepted: those that have never made a call do not keep others out.
sub has_room { return keys %pairs < $CLIENTS || defined quietest() }

# The connection without a call that has been without a byte for longest; undef if none has been for long.
sub quietest {
    my ($pair) = sort { $a->{used} <=> $b->{used} } grep { $_->{asked} < $CALL } values %pairs;
    return $pair && now() - $pair->{used} >= $QUIET ? $pair : undef;
}

# Clients wait in the socket's queue. Without a pause, select would return at once again and again.
sub refrain {
    report("no client is accepted for $REFRAIN s: $!");
    $accepts_from = now() + $REFRAIN;
}

sub receive {
    my ($pair, $from, $to) = @_;
    return unless $pairs{$pair->{id}} && $pairs{$pair->{id}} == $pair;
    my $count = sysread $pair->{$from}, my $bytes, 65536;
    return if !defined $count && ($!{EAGAIN} || $!{EINTR});
    $pair->{used} = now() if $count;
    $pair->{asked} += $count // 0 if $from eq 'client';
    if (!$count) {
        $pair->{eof} = $from;
        return finish($pair) unless length $pair->{"to $to"};
    }
    elsif ($to eq 'client') { frames($pair, $bytes) }
    elsif (!$pair->{deaf}) { $pair->{'to backend'} .= $bytes }
    flush($pair, $to);
}

# Follows the frames of the backend (RFC 9113, section 4.1), so that a GOAWAY comes between two of them.
sub frames {
    my ($pair, $bytes) = @_;
    my $at = 0;
    while ($at < length $bytes) {
        my $want = $pair->{body} || 9 - length $pair->{head};
        my $part = substr $bytes, $at, $want;
        $at += length $part;
        $pair->{'to client'} .= $part;
        if ($pair->{body}) { $pair->{body} -= length $part }
        else {
            $pair->{head} .= $part;
            if (length $pair->{head} == 9) {
                my ($high, $low, $type, $flags) = unpack 'CnCC', $pair->{head};
                ($pair->{body}, $pair->{head}) = ($high << 16 | $low, '');
                $pair->{frames}++;
                # A GOAWAY of containerd: one of ours with a higher stream would be an error (section 6.8).
                $pair->{sent} = 1 if $type == 7;
                # HEADERS, PUSH_PROMISE and CONTINUATION without END_HEADERS: nothing may come before the next one.
                $pair->{headers} = !($flags & 4) if $type == 1 || $type == 5 || $type == 9;
            }
        }
        goaway($pair) if $pair->{goaway};
    }
}

# Once, and as soon as it is allowed: after the first frame of the backend, which has to be its settings.
sub goaway {
    my ($pair) = @_;
    return if $pair->{sent} || !$pair->{frames} || $pair->{body} || length $pair->{head} || $pair->{headers};
    $pair->{sent} = 1;
    $pair->{'to client'} .= $GOAWAY;
}

sub flush {
    my ($pair, $to) = @_;
    return unless $pairs{$pair->{id}} && $pairs{$pair->{id}} == $pair;
    while (length $pair->{"to $to"}) {
        my $count = syswrite $pair->{$to}, $pair->{"to $to"};
        return if !defined $count && ($!{EAGAIN} || $!{EINTR});
        return failed_write($pair, $to) unless defined $count;
        substr $pair->{"to $to"}, 0, $count, '';
    }
    finish($pair) if $pair->{eof} && $pair->{eof} ne $to;
}

# containerd may have closed after answers that are still to be read. Without the client, nobody waits for them.
sub failed_write {
    my ($pair, $to) = @_;
    return finish($pair) if $to eq 'client' || $pair->{eof} && $pair->{eof} eq 'client';
    ($pair->{'to backend'}, $pair->{deaf}) = ('', 1);
}

sub finish {
    my ($pair) = @_;
    delete $pairs{$pair->{id}} or return;
    close $pair->{$_} for qw(client backend);
}
