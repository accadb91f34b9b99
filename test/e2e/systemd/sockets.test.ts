import { readdirSync, readFileSync } from 'node:fs';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { CriClient } from '../../support/cri/client.ts';
import type { RunningPod } from '../../support/cri/pod.ts';
import { CONFIG, calledThrough, OURS, property, startKubelet, stopKubelet } from '../../support/e2e/kubelet-unit.ts';
import { startSystemdNode } from '../../support/e2e/systemd-node.ts';
import { ResizeClient } from '../../support/resize-api/client.ts';

/** An operator restarts the socket units while the shim runs. kubelet is a fake. */

// On a node where systemd is the first process: npm run node -- --init systemd

const SERVICE = 'cri-resize-shim.service';
const STARTED = ['cri-resize-shim-bypass.service', 'cri-resize-shim-fallback.service'];
const SOCKETS = ['cri-resize-shim.socket', 'cri-resize-shim-resize.socket'];
const RESIZE = '/run/cri-resize-shim/resize.sock';
/** A client waits this long for the next shim, which starts within seconds. */
const WITHIN_MS = 20_000;
const LONG = { timeout: 60_000, interval: 300 };

let direct: CriClient;
let pod: RunningPod;

beforeAll(async () => {
  ({ direct, pod } = await startSystemdNode(['a']));
});
afterAll(async () => {
  await resizectl('uninstall');
  await stopKubelet();
  await pod.remove();
  direct.close();
});

afterEach(async ({ task }) => {
  if (task.result?.state !== 'fail') return;
  const units = ['service', 'socket'].map((kind) => `--unit=cri-resize-shim*.${kind}`);
  const { stdout } = await execa('journalctl', ['--no-pager', '--output=short-monotonic', '--lines=80', ...units]);
  process.stderr.write(`${stdout}\n`);
});

const resizectl = (...args: readonly string[]) =>
  execa('node', ['dist/resizectl.js', ...args], { reject: false, all: true });
const active = (unit: string): Promise<string> => property(unit, 'ActiveState');

/** Returns the command lines of all processes. A process that ends during the read has none. */
const commandLines = (): string[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        return [readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').join(' ').trim()];
      } catch {
        return [];
      }
    });

/** Rejects if a client that connects now gets no answer from the shim in time. */
async function isServed(): Promise<void> {
  const client = new CriClient(OURS);
  try {
    const status = client.call<{ info: Readonly<Record<string, string>> }>('Status', { verbose: true }, WITHIN_MS);
    expect((await status).info).toHaveProperty('cri-resize-shim');
  } finally {
    client.close();
  }
}

/** Rejects if a new client of the resize API gets no answer in time. */
async function isResizeApiServed(): Promise<void> {
  const api = new ResizeClient(RESIZE);
  try {
    expect(await api.call('ListPods', {}, Date.now() + WITHIN_MS)).toHaveProperty('pods');
  } finally {
    api.close();
  }
}

test('kubelet uses the shim after an installation with socket units', async () => {
  await startKubelet(`--config=${CONFIG}`);
  const { all, exitCode } = await resizectl('install');
  expect(exitCode, all).toBe(0);
  await calledThrough(OURS);
});

const cases = SOCKETS.flatMap((socket) =>
  [['restart'], ['stop', 'start']].map((commands) => ({ socket, commands, by: commands.join(', ') })),
);

test.each(cases)(
  'after systemctl $by of $socket, new clients of both sockets reach the shim, and running calls are answered',
  async ({ socket, commands }) => {
    const pid = await property(SERVICE, 'MainPID');
    const one = new CriClient(OURS);
    await one.version();
    const running = one.call('ExecSync', { container_id: pod.id('a'), cmd: ['sleep', '4'], timeout: 60 });
    await expect.poll(() => commandLines().includes('sleep 4'), LONG).toBe(true);
    for (const command of commands) {
      await execa('systemctl', [command, socket]);
      await isServed();
    }
    await isResizeApiServed();
    await running;
    one.close();
    expect(await property(SERVICE, 'MainPID')).not.toBe(pid);
    await expect
      .poll(() => Promise.all([SERVICE, ...STARTED].map(active)), LONG)
      .toEqual(['active', 'inactive', 'inactive']);
    await calledThrough(OURS);
  },
);
