import { mkdirSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { markedHigh } from '../../../src/cgroups/memory-high.ts';
import { Code } from '../../../src/core/grpc.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { eventually } from '../../support/fake-clock.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

const CGROUP = `/kubepods/pod1/${containerId(0)}`;

let runtime: FakeRuntime;
let pod: PodDescription;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(192 * MiB), [192 * MiB]);
  runtime.applyUpdates();
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
  pod = (await runtime.node.registry.pod(SANDBOX))!;
  await runtime.node.registry.describeContainer(containerId(0));
});
afterEach(async () => {
  await runtime.decreaseReclaimer.close();
  await runtime.close();
});

const high = (): string => runtime.read(`${containerId(0)}/memory.high`);
const records = (): string[] => readdirSync(runtime.stateFolder).filter((name) => name.endsWith('.json'));
const record = (): unknown => JSON.parse(readFileSync(join(runtime.stateFolder, records()[0] ?? ''), 'utf8'));

describe('a hold that remains after a crash', () => {
  test('KEP-1287: a hold that remains after a crash is ended at the start, and memory.high is restored', async () => {
    await runtime.node.journal.setHolds(pod, [{ cgroup: CGROUP, memoryHigh: mi(180) }]);
    expect(record()).toMatchObject({ holds: [{ cgroup: CGROUP, memoryHigh: 180 * MiB }] });
    runtime.writeFile(CGROUP, 'memory.high', String(markedHigh(mi(56))));
    expect(await recover(runtime.node)).toBe(true);
    expect([high(), records()]).toEqual([String(180 * MiB), []]);
  });

  test('KEP-1287: the end of a hold that remains after a crash keeps a memory.high that another program has set', async () => {
    await runtime.node.journal.setHolds(pod, [{ cgroup: CGROUP, memoryHigh: 'max' }]);
    runtime.writeFile(CGROUP, 'memory.high', String(100 * MiB));
    await recover(runtime.node);
    expect([high(), records()]).toEqual([String(100 * MiB), []]);
  });

  test('KEP-1287: a hold and a transaction that remain after a crash end together, and memory.high has the newer stored value', async () => {
    const { journal } = runtime.node;
    await journal.setHolds(pod, [{ cgroup: CGROUP, memoryHigh: 'max' }]);
    const steps = [{ kind: 'container', id: containerId(0), memory: { from: mi(192), to: mi(64) } }] as const;
    await journal.begin(pod, steps, { volumes: new Map(), highs: [{ cgroup: CGROUP, memoryHigh: mi(150) }] });
    expect(record()).toMatchObject({ holds: [{}], transaction: { highs: [{}] } });
    runtime.writeFile(CGROUP, 'memory.high', String(markedHigh(mi(56))));
    await recover(runtime.node);
    expect([high(), records()]).toEqual([String(150 * MiB), []]);
  });
});

test('KEP-1287: a hold whose memory.high cannot be read does not prevent the recovery of a transaction', async () => {
  const { journal } = runtime.node;
  await journal.setHolds(pod, [{ cgroup: '/kubepods/pod1', memoryHigh: 'max' }]);
  await journal.begin(pod, [{ kind: 'pod-memory', from: mi(256), to: mi(192) }], { volumes: new Map() });
  rmSync(join(runtime.cgroupRoot, 'kubepods/pod1/memory.high'));
  expect(await recover(runtime.node)).toBe(false);
  expect(record()).toMatchObject({ holds: [{}] });
  expect(record()).not.toHaveProperty('transaction');
});

test('deferred requests and the end of a transaction do not remove the hold from the journal', async () => {
  const { journal } = runtime.node;
  const holds = [{ cgroup: CGROUP, memoryHigh: 'max' }] as const;
  await journal.setHolds(pod, holds);
  await journal.setResizes(pod.metadata.uid, ['a request']);
  const open = await journal.begin(pod, [{ kind: 'pod-memory', from: mi(192), to: mi(64) }], { volumes: new Map() });
  await open.end('done', new Map());
  expect(record()).toMatchObject({ holds, resizes: ['a request'] });
  await journal.setHolds(pod, []);
  expect(record()).not.toHaveProperty('holds');
});

/** The usage of the container falls as soon as memory.high is lowered, and stays until the test changes it. */
async function heldContainer(): Promise<void> {
  const limits = (mebibytes: number) => ({
    containers: new Map([['c0', { memory: mi(mebibytes) }]]),
    pod: undefined,
    isComplete: true,
  });
  runtime.allocated.set('uid-1', limits(64));
  runtime.actuated.set('uid-1', limits(192));
  for (const cgroup of [CGROUP, '/kubepods/pod1']) runtime.writeFile(cgroup, 'memory.current', String(120 * MiB));
  // kubelet is about to compare.
  void runtime.decreaseReclaimer.comparable('uid-1', 'cadvisor');
  for (const cgroup of [CGROUP, '/kubepods/pod1']) {
    const file = join(runtime.cgroupRoot, cgroup, 'memory.high');
    await eventually(() => readFileSync(file, 'utf8') !== 'max\n');
    runtime.writeFile(cgroup, 'memory.current', String(50 * MiB));
  }
  await eventually(() => runtime.counted.snapshot().foresight['held'] === 1);
}

describe('a hold and a request for the pod', () => {
  test('the journal contains memory.high of container and pod while both are lowered for a hold', async () => {
    await heldContainer();
    expect(record()).toMatchObject({
      holds: [
        { cgroup: CGROUP, memoryHigh: 'max' },
        { cgroup: '/kubepods/pod1', memoryHigh: 'max' },
      ],
    });
    await runtime.decreaseReclaimer.close();
    expect([high(), runtime.read('memory.high'), records()]).toEqual(['max', 'max', []]);
  });

  test('KEP-1287: a hold does not outlast an update of its pod: the update finds memory.high from before the hold', async () => {
    await heldContainer();
    const found: string[] = [];
    const request = containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(64 * MiB) });
    await updateContainer(runtime.node, request, () => {
      found.push(
        ...(record() as { transaction: { highs: { memoryHigh: string }[] } }).transaction.highs.map(
          ({ memoryHigh }) => memoryHigh,
        ),
      );
      runtime.writeFile(CGROUP, 'memory.max', String(64 * MiB));
      return Promise.resolve(Buffer.alloc(0));
    });
    expect(found).toEqual(['max', 'max']);
    await runtime.decreaseReclaimer.close();
    expect([high(), runtime.read('memory.high')]).toEqual(['max', 'max']);
  });

  test('a decrease is deferred with the error of the update when the update of kubelet fails for the second time', async () => {
    await heldContainer();
    const { decreaseReclaimer } = runtime;
    const inUse = new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_IN_USE, 'volume cache is in use');
    const fails = (memory: number): Promise<unknown> => {
      const request = containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(memory * MiB) });
      return expect(updateContainer(runtime.node, request, () => Promise.reject(inUse))).rejects.toThrow(inUse);
    };
    const heldAgain = (times: number): Promise<void> =>
      eventually(() => runtime.counted.snapshot().foresight['held'] === times);
    // Another program's update is not kubelet's.
    await fails(100);
    await heldAgain(2);
    await fails(64);
    await heldAgain(3);
    expect(decreaseReclaimer.reportOf('uid-1')).toMatchObject({ state: 'InProgress' });
    await fails(64);
    await eventually(() => decreaseReclaimer.reportOf('uid-1')?.state === 'Deferred');
    expect(decreaseReclaimer.reportOf('uid-1')).toMatchObject({ reason: 'VOLUME_IN_USE', message: inUse.message });
    await decreaseReclaimer.close();
  });

  test('a recovery is requested if memory.high cannot be restored when a hold ends, and restores it', async () => {
    await heldContainer();
    let asked = 0;
    runtime.node.journal.onUnfinished(() => (asked += 1));
    const file = join(runtime.cgroupRoot, CGROUP, 'memory.high');
    const lowered = high();
    rmSync(file);
    mkdirSync(file);
    await runtime.decreaseReclaimer.release('uid-1');
    expect(asked).toBe(1);
    rmSync(file, { recursive: true });
    runtime.writeFile(CGROUP, 'memory.high', lowered);
    runtime.actuated.set('uid-1', runtime.allocated.get('uid-1')!);
    expect(await recover(runtime.node)).toBe(true);
    expect([high(), records()]).toEqual(['max', []]);
  });
});
