import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type ServiceError, status } from '@grpc/grpc-js';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { HeldSocket, passOn } from '../../support/daemon/held-socket.ts';
import { ResizeClient } from '../../support/resize-api/client.ts';

/**
 * Upgrades under load. This process acts as systemd: it holds the sockets and starts one shim after the other with
 * them.
 */

const UPGRADES = 10;
const CALLS_A_SECOND = 50;
/** Maximum of concurrent calls, far more than kubelet's: a busy machine answers more slowly than calls start. */
const MOST_CALLS = 200;
const MOST_RESIZES = 5;

let folder: string;
let sockets: { readonly cri: HeldSocket; readonly resize: HeldSocket };
let shim: ShimProcess;
let running: RunningPod;
const direct = new CriClient('unix:///run/containerd/containerd.sock');

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'upgrade-'));
  mkdirSync(join(folder, 'run'));
  sockets = {
    cri: new HeldSocket(join(folder, 'run/cri.sock')),
    resize: new HeldSocket(join(folder, 'run/resize.sock')),
  };
  shim = await start();
  running = await runPod(direct, {
    name: 'upgraded',
    containers: [
      {
        name: 'app',
        command: ['sleep', '1000000'],
        resources: { memory_limit_in_bytes: 128 * MiB, cpu_quota: 50_000, cpu_period: 100_000 },
        mounts: { cache: '/cache' },
      },
    ],
    volumes: [{ name: 'cache', size: 64 * MiB }],
  });
});
afterEach(async () => {
  await running.remove();
  await shim.stop();
  for (const socket of Object.values(sockets)) socket.close();
  rmSync(folder, { recursive: true });
});
afterAll(() => direct.close());

function start(): Promise<ShimProcess> {
  const passedOn = passOn([
    ['cri', sockets.cri.descriptor],
    ['resize', sockets.resize.descriptor],
  ]);
  const args = ['--state-folder', join(folder, 'state')];
  return ShimProcess.start({ listen: `unix://${sockets.cri.path}`, args, passedOn, wait: 'serving' });
}

/** Replaces the shim as `systemctl restart` does: the next process starts when the last one has ended. */
async function upgrade(): Promise<void> {
  expect(await shim.stop()).toBe(0);
  shim = await start();
}

/**
 * Starts calls at a fixed rate until stopped, without waiting for answers as long as the number of unanswered calls is
 * below the limit. Returns the result of each call. No call is repeated.
 */
function load<Result>(aSecond: number, mostAtOnce: number, call: (number: number) => Promise<Result>) {
  const calls: Promise<PromiseSettledResult<Result>>[] = [];
  const begun = performance.now();
  let unanswered = 0;
  let isStopped = false;
  const settled = async (number: number): Promise<PromiseSettledResult<Result>> => {
    unanswered += 1;
    const [outcome] = await Promise.allSettled([call(number)]);
    unanswered -= 1;
    return outcome;
  };
  const timer = setInterval(() => {
    // Follows the clock, which a timer lags behind on a busy machine.
    const due = ((performance.now() - begun) / 1000) * aSecond;
    while (!isStopped && calls.length < due && unanswered < mostAtOnce) calls.push(settled(calls.length));
  }, 10);
  return {
    async stop(): Promise<readonly PromiseSettledResult<Result>[]> {
      isStopped = true;
      const outcomes = await Promise.all(calls);
      clearInterval(timer);
      return outcomes;
    },
  };
}

const failuresOf = (outcomes: readonly PromiseSettledResult<unknown>[]): string[] =>
  outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [(outcome.reason as Error).message] : []));

test('upgrade: ten upgrades under load fail no call, and each resize completes or is cleanly rejected', async () => {
  const cri = new CriClient(`unix://${sockets.cri.path}`);
  const api = new ResizeClient(sockets.resize.path);
  const app = running.id('app');
  const unary = [
    () => cri.version(),
    () => cri.call('ListContainers', {}),
    () => cri.containerStatus(app),
    () => cri.call('PodSandboxStatus', { pod_sandbox_id: running.sandboxId, verbose: true }),
    () => cri.call('RuntimeConfig', {}),
  ];
  const calls = load(CALLS_A_SECOND, MOST_CALLS, (number) => unary[number % unary.length]!());
  const resizes = load(1, MOST_RESIZES, async (number) => {
    const memory = (128 + (number % 8) * 8) * MiB;
    if (number % 2 === 0) await cri.updateContainer(app, { memory_limit_in_bytes: memory });
    else
      await api.call('ResizePod', {
        pod: { uid: running.uid },
        containers: { app: { limits: { memory: String(memory) } } },
        volumes: { cache: '50%' },
      });
    return memory;
  });
  for (let count = 0; count < UPGRADES; count += 1) {
    await delay(1000);
    await upgrade();
  }
  await delay(1000);
  const outcomes = await resizes.stop();
  const answered = await calls.stop();
  expect(failuresOf(answered)).toEqual([]);
  expect(answered.length).toBeGreaterThan(UPGRADES * 20);
  expect(outcomes.length).toBeGreaterThan(UPGRADES);
  for (const outcome of outcomes) {
    if (outcome.status !== 'rejected') continue;
    const { code, message } = outcome.reason as ServiceError;
    expect(code, message).toBe(status.UNAVAILABLE);
  }
  // No resize is half done: pod and container have the same limit, and no record contains a transaction.
  expect(running.read('memory.max')).toBe(running.read('memory.max', 'app'));
  const records = readdirSync(join(folder, 'state')).filter((name) => name.endsWith('.json'));
  for (const name of records)
    expect(JSON.parse(readFileSync(join(folder, 'state', name), 'utf8'))).not.toHaveProperty('transaction');
  expect(existsSync(sockets.cri.path)).toBe(true);
  cri.close();
  api.close();
}, 600_000);

test('upgrade: a long call is answered during an upgrade, and new calls wait for the new process', async () => {
  const cri = new CriClient(`unix://${sockets.cri.path}`);
  const processes = (): number => running.read('cgroup.procs', 'app').trim().split('\n').length;
  await expect.poll(processes).toBe(1);
  const long = cri.tryExec(running.id('app'), 'sh', '-c', 'echo started; sleep 3; echo done');
  // The call has reached containerd once its process exists.
  await expect.poll(processes).toBeGreaterThan(1);
  const upgraded = upgrade();
  const old = shim;
  await old.waitForLog(({ msg }) => msg === 'stopping');
  const other = new CriClient(`unix://${sockets.cri.path}`);
  const waiting = other.version();
  expect(await long).toMatchObject({ stdout: 'started\ndone\n', exit_code: 0 });
  expect(await waiting).toMatchObject({ runtime_name: 'containerd' });
  await upgraded;
  expect(old.log.find(({ msg }) => msg.startsWith('calls were cut'))).toBeUndefined();
  cri.close();
  other.close();
});

test('a watch does not delay an upgrade: it ends UNAVAILABLE once no other call runs, and can be opened again', async () => {
  const cri = new CriClient(`unix://${sockets.cri.path}`);
  const watch = cri.stream('GetContainerEvents', {});
  const ended = new Promise<ServiceError>((resolve) => watch.once('error', (error) => resolve(error as ServiceError)));
  // The watch reaches the backend, because an event has arrived.
  const event = new Promise((resolve) => watch.once('data', resolve));
  const other = await runPod(direct, {
    name: 'seen',
    containers: [{ name: 'a', command: ['true'], resources: { cpu_quota: 10_000, cpu_period: 100_000 } }],
  });
  await event;
  const begun = performance.now();
  await upgrade();
  // Far less than --shutdown-timeout.
  expect(performance.now() - begun).toBeLessThan(15_000);
  const { code, details } = await ended;
  expect([code, details]).toEqual([status.UNAVAILABLE, 'cri-resize-shim is being restarted: call again']);
  const again = cri.stream('GetContainerEvents', {});
  again.on('error', () => undefined);
  const next = new Promise((resolve) => again.once('data', resolve));
  await other.remove();
  await next;
  again.cancel();
  cri.close();
});
