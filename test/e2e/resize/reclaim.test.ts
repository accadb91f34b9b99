import { closeSync, openSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient, type Resources } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { type LogLine, ShimProcess } from '../../support/cri/shim.ts';
import { cgroupOf, Tenant } from '../../support/e2e/tenant.ts';

// A folder of the machine outside, so its pages are page cache. All other folders of the node are in a tmpfs, whose
// pages are not.
const outside = process.env['NODE_OUT'] ?? '';
const big = join(outside, 'big');
const written = join(outside, 'written');

let shim: ShimProcess;
let cri: CriClient;
const pods: RunningPod[] = [];
const tenants: Tenant[] = [];

beforeAll(async () => {
  // A sparse file takes no space outside, and its pages are page cache when read.
  closeSync(openSync(big, 'w'));
  truncateSync(big, 200 * MiB);
  shim = await ShimProcess.start({ args: ['--log-level', 'debug'] });
  cri = new CriClient(shim.address);
});

afterEach(async () => {
  for (const tenant of tenants.splice(0)) await tenant.end();
  for (const pod of pods.splice(0)) await pod.remove();
});

afterAll(async () => {
  cri.close();
  expect(await shim.stop()).toBe(0);
  for (const file of [big, written]) rmSync(file, { force: true });
});

const memory = (mebibytes: number): Resources => ({ memory_limit_in_bytes: mebibytes * MiB });

async function makePod(mebibytes: number): Promise<RunningPod> {
  const pod = await runPod(cri, {
    name: 'web',
    containers: [
      {
        name: 'a',
        command: ['sleep', '1000000'],
        resources: { ...memory(mebibytes), cpu_quota: 100_000, cpu_period: 100_000 },
      },
    ],
  });
  pods.push(pod);
  return pod;
}

async function tenantIn(pod: RunningPod): Promise<Tenant> {
  const tenant = await Tenant.in(cgroupOf(pod.cgroup, pod.id('a')));
  tenants.push(tenant);
  return tenant;
}

interface Refusal {
  readonly code: number;
  readonly details: string;
}

const outcomeOf = (call: Promise<unknown>): Promise<Refusal | undefined> =>
  call.then(
    () => undefined,
    (error: unknown) => error as Refusal,
  );

/** All values that a resize could change. */
const stateOf = (pod: RunningPod): Record<string, string> =>
  Object.fromEntries(
    ['memory.max', 'memory.high'].flatMap((file) => [
      [`pod ${file}`, pod.read(file)],
      [`container ${file}`, pod.read(file, 'a')],
    ]),
  );

const lowered = (mebibytes: number): Record<string, string> => ({
  'pod memory.max': String(mebibytes * MiB),
  'pod memory.high': 'max',
  'container memory.max': String(mebibytes * MiB),
  'container memory.high': 'max',
});

const useOf = (pod: RunningPod): number => Number(pod.read('memory.current', 'a'));

test('KEP-1287: a decrease reclaims 200 MiB of page cache first, and one below the anonymous memory is rejected', async () => {
  const pod = await makePod(256);
  const pid = await cri.pidOf(pod.id('a'));
  const tenant = await tenantIn(pod);
  await tenant.run('hold', 40 * MiB);
  await tenant.run('read', big);
  expect(useOf(pod)).toBeGreaterThan(220 * MiB);

  const isReclaimed = ({ msg, reached }: LogLine): boolean => msg === 'memory reclaimed' && Number(reached) < 64 * MiB;
  const earlier = shim.log.filter(isReclaimed).length;
  await cri.updateContainer(pod.id('a'), memory(64));
  expect(stateOf(pod)).toEqual(lowered(64));
  expect(useOf(pod)).toBeLessThan(64 * MiB);
  expect(pod.oomKills()).toBe(0);
  const line = await shim.waitForLog(isReclaimed, earlier + 1);
  expect(line).toMatchObject({ container: 'a', target: 64 * MiB });

  const refusal = await outcomeOf(cri.updateContainer(pod.id('a'), memory(32)));
  expect(refusal?.code).toBe(9);
  expect(refusal?.details).toContain(String(32 * MiB));
  const found = Number(/(\d+) bytes are in use that cannot be reclaimed/.exec(refusal?.details ?? '')?.[1]);
  expect(found).toBeGreaterThan(40 * MiB);
  expect(found).toBeLessThan(64 * MiB);
  expect(stateOf(pod)).toEqual(lowered(64));
  expect(pod.oomKills()).toBe(0);
  expect(await cri.pidOf(pod.id('a'))).toBe(pid);
  await tenant.run('nothing');
});

describe('a decrease while a process allocates quickly', () => {
  test('a decrease succeeds while the process allocates page cache and memory that it frees', async () => {
    const pod = await makePod(256);
    const tenant = await tenantIn(pod);
    await tenant.run('churn', big, 24 * MiB);
    for (let round = 0; round < 3; round += 1) {
      await cri.updateContainer(pod.id('a'), memory(64));
      expect(stateOf(pod)).toEqual(lowered(64));
      await cri.updateContainer(pod.id('a'), memory(256));
    }
    expect(pod.oomKills()).toBe(0);
    await tenant.run('nothing');
  });

  test('KEP-1287: a decrease ends with the new or the old limit and kills nothing if the process allocates up to its limit', async () => {
    const outcomes = new Set<string>();
    // In rounds with the file, it occupies 200 of the 256 MiB if the previous pods have released its pages. In rounds
    // without it, the limit can be lowered.
    for (const [head, cached] of [
      [0, big],
      [16, big],
      [32, big],
      [40, big],
      [64, undefined],
      [80, undefined],
      [88, undefined],
      [120, undefined],
    ] as const) {
      const pod = await makePod(256);
      const tenant = await tenantIn(pod);
      if (cached !== undefined) await tenant.run('read', cached);
      // How much has been allocated when the limit is lowered differs from round to round.
      await tenant.run('grow');
      while (Number(/^anon (\d+)$/m.exec(pod.read('memory.stat', 'a'))?.[1]) < head * MiB)
        await new Promise((resolve) => setImmediate(resolve));
      const refusal = await outcomeOf(cri.updateContainer(pod.id('a'), memory(96)));
      expect(refusal === undefined || [4, 9].includes(refusal.code), refusal?.details).toBe(true);
      expect(stateOf(pod)).toEqual(lowered(refusal === undefined ? 96 : 256));
      outcomes.add(refusal === undefined ? 'lowered' : 'rejected');
      await tenant.run('nothing');
      expect(pod.oomKills()).toBe(0);
    }
    expect(outcomes).toContain('rejected');
  });
});

test('a decrease reclaims dirty page cache without losing data', async () => {
  const pod = await makePod(256);
  const tenant = await tenantIn(pod);
  await tenant.run('hold', 20 * MiB);
  await tenant.run('dirty', written, 150 * MiB);
  expect(Number(/^file (\d+)$/m.exec(pod.read('memory.stat', 'a'))?.[1])).toBeGreaterThan(100 * MiB);
  await cri.updateContainer(pod.id('a'), memory(64));
  expect(stateOf(pod)).toEqual(lowered(64));
  expect(pod.oomKills()).toBe(0);
  const content = readFileSync(written);
  expect(content.length).toBe(150 * MiB);
  expect(content.equals(Buffer.alloc(150 * MiB, 'd'))).toBe(true);
});

test('KEP-1287: a decrease that times out ends with DEADLINE_EXCEEDED and the old limit, and does not block other calls', async () => {
  const [busy, other] = [await makePod(256), await makePod(128)];
  const tenant = await tenantIn(busy);
  await tenant.run('read', big);
  // Page cache is reclaimable by its kind, but memory.min protects it from a reclaim that starts at the pod.
  writeFileSync(join(cgroupOf(busy.cgroup, busy.id('a')), 'memory.min'), String(220 * MiB));
  const before = stateOf(busy);
  const request = { pod_sandbox_id: busy.sandboxId, resources: memory(64) };
  const over = new AbortController();
  const start = performance.now();
  const lowering = outcomeOf(cri.call('UpdatePodSandboxResources', request, 8000)).finally(() => over.abort());
  const otherPod = (async (): Promise<void> => {
    await cri.updateContainer(other.id('a'), memory(64));
    expect(over.signal.aborted).toBe(false);
  })();
  const waits: number[] = [];
  while (!over.signal.aborted) {
    const asked = performance.now();
    await cri.version();
    waits.push(performance.now() - asked);
  }
  const refusal = await lowering;
  const took = performance.now() - start;
  await otherPod;
  expect(refusal?.code).toBe(4);
  // The shim answers by itself, with both figures, before the caller's timeout.
  expect(refusal?.details).toContain(`could not be lowered below ${64 * MiB} bytes`);
  expect(refusal?.details).toMatch(/: 2\d{8} bytes are in use/);
  expect(took).toBeGreaterThan(4000);
  expect(stateOf(busy)).toEqual(before);
  expect(busy.oomKills()).toBe(0);
  expect(stateOf(other)).toEqual(lowered(64));
  expect(waits.length).toBeGreaterThan(20);
  // No call waits for the reclaim. A busy machine makes calls wait too, but not as long.
  expect(Math.max(...waits)).toBeLessThan(took / 2);
});
