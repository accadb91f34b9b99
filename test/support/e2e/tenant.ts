import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { containerFolder } from '../cri/pod-cgroup.ts';

/**
 * A process in the cgroup of a container that uses memory on command, in bytes and paths:
 * - `hold N`: anonymous memory
 * - `read FILE`: page cache
 * - `dirty FILE N`: dirty page cache
 * - `reread FILE`: reads a file ten times per second: hot page cache
 * - `rewrite FILE N`: overwrites a file once per second: page cache that is dirty again and again
 * - `churn FILE N`: reads a file repeatedly, and allocates and frees N bytes meanwhile
 * - `grow`: allocates anonymous memory as fast as possible while the limit of its cgroup allows it, like a runtime that
 * knows its limit
 *
 * The last four continue until the next command. Files stay open, because a file of the machine outside loses its page
 * cache with its last close.
 */
export class Tenant {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #answers: AsyncIterator<string>;

  private constructor(folder: string) {
    // Enters the cgroup first, so that all of its pages are charged there.
    this.#child = spawn('sh', ['-c', 'echo $$ > "$0/cgroup.procs" && exec perl -e "$1" "$0"', folder, SCRIPT], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#answers = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** @param cgroup the folder of the cgroup. Resolves once the process is in it. */
  static async in(cgroup: string): Promise<Tenant> {
    const tenant = new Tenant(cgroup);
    await tenant.run('nothing');
    return tenant;
  }

  get isAlive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Resolves when the command is done, or when a continuous one has started. */
  async run(...command: (string | number)[]): Promise<void> {
    this.#child.stdin.write(`${command.join(' ')}\n`);
    const { value } = (await this.#answers.next()) as { value: unknown };
    if (value !== 'done') throw new Error(`${command.join(' ')}: ${String(value)}`);
  }

  async end(): Promise<void> {
    if (!this.isAlive) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
  }
}

/** The folder of a container's cgroup on the node. */
export const cgroupOf = containerFolder;

const SCRIPT = `
$| = 1; my ($cgroup) = @ARGV; my @held; my @open; my $more;
sub number { open(my $f, "<", "$cgroup/$_[0]") or die "$_[0]: $!"; my $n = <$f>; $n eq "max\\n" ? 1e15 : $n + 0 }
sub take { my $x = ""; vec($x, $_[0] - 1, 8) = 1; substr($x, $_ * 4096, 1) = "x" for 0 .. $_[0] / 4096 - 1; \\$x }
sub opened { open(my $f, $_[0], $_[1]) or die "$_[1]: $!"; push @open, $f; $f }
sub slurp { sysseek($_[0], 0, 0); while (sysread($_[0], my $b, 1 << 20)) {} }
while (1) {
  my $ready = ""; vec($ready, 0, 1) = 1;
  if (!$more || select($ready, undef, undef, 0)) {
    my $line = ""; while (sysread(STDIN, my $c, 1)) { last if $c eq "\\n"; $line .= $c; }
    exit if $line eq "";
    my ($do, $a, $b) = split / /, $line; $more = undef;
    if ($do eq "hold") { push @held, take($a) }
    if ($do eq "read") { slurp(opened("<", $a)) }
    if ($do eq "dirty") { my $f = opened(">", $a); syswrite($f, "d" x (1 << 20)) for 1 .. $b >> 20 }
    if ($do eq "reread") { my $f = opened("<", $a); slurp($f); $more = sub { slurp($f); select(undef, undef, undef, 0.1) } }
    if ($do eq "rewrite") { my $f = opened("+>", $a); $more = sub {
      sysseek($f, 0, 0); syswrite($f, "d" x (1 << 20)) for 1 .. $b >> 20; select(undef, undef, undef, 1) } }
    if ($do eq "churn") { my $f = opened("<", $a); $more = sub { my $x = take($b); slurp($f) } }
    if ($do eq "grow") { $more = sub {
      if (number("memory.current") + (4 << 20) < number("memory.max")) { push @held, take(1 << 20) }
      else { select(undef, undef, undef, 0.01) } } }
    print "done\\n";
  }
  $more->() if $more;
}`;
