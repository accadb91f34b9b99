import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Program } from '../support/daemon/daemon-program.ts';
import { attacks } from './attacks.ts';
import { attack, call, flood, type Latency, serve } from './roles.ts';

/**
 * The suite `limits`: measures the shim's memory and another client's latency under each attack, from one connection
 * and from 20. Fails above the limits of docs/limits.md. `-- TEXT` runs the attacks whose name has the text.
 */
const MOST_MEGABYTES = 150;
const MOST_SLOWDOWN = 3;

/** The shim releases memory within two checks, which are 5 s apart. */
const AFTER_MS = 32_000;
/** After this attack, memory must fall below this many MB. */
const RELEASED = '1,000 short connections';
const MOST_AFTERWARDS = 110;
/** The result for a client of a flooding backend, which answers nobody: only the memory is measured. */
const NONE: Latency = { shim: 0, direct: 0 };

const self = fileURLToPath(import.meta.url);
/** The shipped daemon: this program is in dist/tools. */
const shipped = join(dirname(self), '../cri-resize-shim.js');
const FLOOD = 'L1: the backend floods with PING';

const [role = '', path = '', name = '', connections = ''] = process.argv.slice(2);
const roles: Readonly<Record<string, () => Promise<void>>> = {
  serve: () => serve(path),
  flood: () => flood(path),
  call: () => call(path, name),
  attack: () => attack(path, name, Number(connections)),
};
const run = roles[role];
process.exitCode = run === undefined ? await measureAll(role) : await run().then(() => process.exitCode);

interface Result {
  /** The most resident memory, in MB. */
  readonly megabytes: number;
  /** Resident memory after the attack, in MB. For the attack {@link RELEASED}, measured {@link AFTER_MS} later. */
  readonly after: number;
  readonly quiet: Latency;
  readonly attacked: Latency;
}

/** The factor by which the attack slows calls through the shim, beyond its effect on calls without the shim. */
function slowdownOf({ quiet, attacked }: Result): number {
  if (quiet.shim === 0) return 0;
  return attacked.shim / quiet.shim / Math.max(1, attacked.direct / quiet.direct);
}

async function measureAll(part: string): Promise<number> {
  const chosen = Object.keys(attacks).filter((known) => known.includes(part));
  if (chosen.length === 0) {
    process.stderr.write(`limits: no attack has ${JSON.stringify(part)} in its name\n`);
    return 2;
  }
  let [passed, failed] = [0, 0];
  process.stdout.write(
    '| attack | connections | RSS, MB | RSS afterwards, MB | p99 quiet (direct), ms | p99 attacked (direct), ms | ratio |\n' +
      '|---|---|---|---|---|---|---|\n',
  );
  for (const attacked of chosen)
    for (const count of [1, 20]) {
      const result = await measure(attacked, count);
      const { megabytes, after } = result;
      const ratio = slowdownOf(result);
      const isBack = attacked !== RELEASED || after < MOST_AFTERWARDS;
      const isGood = megabytes < MOST_MEGABYTES && isBack && ratio <= MOST_SLOWDOWN;
      if (isGood) passed += 1;
      else failed += 1;
      const times = [result.quiet, result.attacked].map(
        ({ shim, direct }) => `${shim.toFixed(2)} (${direct.toFixed(2)})`,
      );
      const cells = [attacked, count, megabytes.toFixed(0), after.toFixed(0), ...times, ratio.toFixed(1)];
      process.stdout.write(`| ${cells.join(' | ')} |${isGood ? '' : ' above the limit'}\n`);
    }
  process.stdout.write(`limits: ${passed} passed, ${failed} failed\n`);
  return failed === 0 ? 0 : 1;
}

async function measure(attacked: string, count: number): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), 'limits-'));
  const [listen, backend] = [join(folder, 'shim/s.sock'), join(folder, 'b/b.sock')];
  mkdirSync(join(folder, 'b'));
  const children: ChildProcess[] = [];
  const start = (...args: string[]): ChildProcess => {
    const child = fork(self, args);
    children.push(child);
    return child;
  };
  const args = [
    '--listen',
    `unix://${listen}`,
    '--container-runtime-endpoint',
    `unix://${backend}`,
    '--state-folder',
    folder,
  ];
  const server = start(attacked === FLOOD ? 'flood' : 'serve', backend);
  await once(server, 'message');
  const shim = new Program(shipped, args, { env: { MALLOC_ARENA_MAX: '1', MALLOC_TRIM_THRESHOLD_: '65536' } });
  try {
    await shim.logged('serving');
    const client = (): ChildProcess => start('call', listen, backend);
    const quiet = attacked === FLOOD ? NONE : await latency(client(), delay(3000));
    const attacker = start('attack', listen, attacked, String(count));
    const over = once(attacker, 'exit');
    const slow = attacked === FLOOD ? await over.then(() => NONE) : await latency(client(), over);
    if (attacked === RELEASED) await delay(AFTER_MS);
    const { pid } = shim.process;
    return { megabytes: megabytesOf(pid, 'VmHWM'), after: megabytesOf(pid, 'VmRSS'), quiet, attacked: slow };
  } finally {
    for (const child of children) child.kill('SIGKILL');
    shim.kill('SIGKILL');
    await shim.exited;
    rmSync(folder, { recursive: true });
  }
}

/** Reads resident memory of a process, proc_pid_status(5): the most of it, or what it is now. */
function megabytesOf(pid: number | undefined, field: 'VmHWM' | 'VmRSS'): number {
  const [, kibibytes = '0'] = new RegExp(`${field}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kibibytes) / 1024;
}

/** Makes a client call until `over` resolves. Returns its latency. */
async function latency(client: ChildProcess, over: Promise<unknown>): Promise<Latency> {
  await over;
  client.send('stop');
  const [result] = (await once(client, 'message')) as [Latency];
  return result;
}
