import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Program } from '../support/daemon/daemon-program.ts';
import { attacks } from './attacks.ts';
import { attack, call, flood, serve } from './roles.ts';

/**
 * `npm run limits`: measures the shim's memory and another client's latency under each attack, from one connection and from 20. Fails
 * above the limits of docs/limits.md. `-- TEXT` runs the attacks whose name has the text.
 */
const MOST_MEGABYTES = 150;
const MOST_SLOWDOWN = 3;

const self = fileURLToPath(import.meta.url);
/** The shipped daemon: this program is in dist/tools. */
const shipped = join(dirname(self), '../cri-resize-shim.js');
const FLOOD = 'L1: the backend floods with PING';

const [role = '', path = '', name = '', connections = ''] = process.argv.slice(2);
const roles: Readonly<Record<string, () => Promise<void>>> = {
  serve: () => serve(path),
  flood: () => flood(path),
  call: () => call(path),
  attack: () => attack(path, name, Number(connections)),
};
const run = roles[role];
process.exitCode = run === undefined ? await measureAll(role) : await run().then(() => process.exitCode);

interface Result {
  readonly megabytes: number;
  /** The 99th percentiles, in milliseconds. */
  readonly quiet: number;
  readonly attacked: number;
}

async function measureAll(part: string): Promise<number> {
  let failed = 0;
  process.stdout.write(
    '| attack | connections | RSS, MB | p99 quiet, ms | p99 attacked, ms | ratio |\n|---|---|---|---|---|---|\n',
  );
  for (const attacked of Object.keys(attacks).filter((known) => known.includes(part)))
    for (const count of [1, 20]) {
      const { megabytes, quiet, attacked: slow } = await measure(attacked, count);
      // The flooding backend answers nobody: only the memory counts.
      const ratio = attacked === FLOOD ? 0 : slow / quiet;
      const isGood = megabytes < MOST_MEGABYTES && ratio <= MOST_SLOWDOWN;
      if (!isGood) failed += 1;
      const cells = [attacked, count, megabytes.toFixed(0), quiet.toFixed(2), slow.toFixed(2), ratio.toFixed(1)];
      process.stdout.write(`| ${cells.join(' | ')} |${isGood ? '' : ' above the limit'}\n`);
    }
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
    const quiet = attacked === FLOOD ? 0 : await percentile(start('call', listen), delay(3000));
    const attacker = start('attack', listen, attacked, String(count));
    const over = once(attacker, 'exit');
    const slow = attacked === FLOOD ? await over.then(() => 0) : await percentile(start('call', listen), over);
    const { pid = 0 } = shim.process;
    const [, peak = '0'] = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
    return { megabytes: Number(peak) / 1024, quiet, attacked: slow };
  } finally {
    for (const child of children) child.kill('SIGKILL');
    shim.kill('SIGKILL');
    await shim.exited;
    rmSync(folder, { recursive: true });
  }
}

/** Lets a client call until `over`, and returns its 99th percentile. */
async function percentile(client: ChildProcess, over: Promise<unknown>): Promise<number> {
  await over;
  client.send('stop');
  const [result] = (await once(client, 'message')) as [number];
  return result;
}
