import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { encode } from '../../../src/runtime/index.ts';
import { recoverPod, recover } from '../../../src/resize/execute/recover.ts';
import { type Bytes, bytes, cpuShares, microseconds } from '../../../src/core/quantities/index.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import type { Step } from '../../../src/resize/model/step.ts';
import { describePod } from '../../../src/resize/report/describe-pod.ts';
import { resizePod } from '../../../src/resize/operations/resize-pod.ts';
import { updateContainer } from '../../../src/resize/operations/update-container.ts';
import type { RequestedVolume } from '../../../src/resize/journal/volume-record.ts';
import { Journal, type JournalOptions, type LoadedRecord } from '../../../src/resize/journal/store.ts';

const MiB = 1024 * 1024;
const mi = (count: number): Bytes => bytes(count * MiB);
const cpu = (quota: number) => ({ quota: microseconds(quota), period: microseconds(100_000) });

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  runtime.applyUpdates();
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
});
afterEach(() => runtime.close());

/** A resize that a process has begun before it was killed: the pod and both containers were to be raised. */
const steps: readonly Step[] = [
  { kind: 'pod-memory', from: mi(300), to: mi(400) },
  { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(150) } },
  { kind: 'container', id: containerId(1), memory: { from: mi(200), to: mi(250) } },
];

const half: RequestedVolume = { policy: { kind: 'share', hundredths: 5000 }, annotated: true };
const pod = async () => (await runtime.context.registry.pod(SANDBOX))!;
const begin = async (planned: readonly Step[] = steps, asked?: ReadonlyMap<string, RequestedVolume>) =>
  runtime.context.journal.begin(await pod(), planned, {
    volumes: runtime.context.policies.records(SANDBOX),
    ...(asked && { asked }),
  });
const has = (podMemory: number, ...containers: readonly number[]): void => {
  runtime.writeFile('/kubepods/pod1', 'memory.max', String(podMemory * MiB));
  for (const [index, memory] of containers.entries())
    runtime.writeFile(`/kubepods/pod1/${containerId(index)}`, 'memory.max', String(memory * MiB));
};
const found = (): number[] => [
  Number(runtime.read('memory.max')) / MiB,
  ...[0, 1].map((index) => runtime.limitOf(index) / MiB),
];
/** What another process finds. */
const loaded = async (options: JournalOptions = {}): Promise<LoadedRecord[]> => {
  const another = await Journal.open(runtime.stateFolder, options);
  try {
    return await another.load();
  } finally {
    await another.close();
  }
};
const journal = (): string[] => readdirSync(runtime.stateFolder).filter((name) => name.endsWith('.json'));

describe('a resize that was cut off', () => {
  test('when all was done is finished', async () => {
    await begin();
    has(400, 150, 250);
    await recover(runtime.context);
    expect(found()).toEqual([400, 150, 250]);
    expect(journal()).toEqual([]);
    expect(runtime.calls).not.toContain('UpdateContainerResources');
    expect(runtime.warnings.at(-1)).toMatchObject({ pod: SANDBOX, outcome: 'finished' });
  });

  test.each([
    ['before its first step', 300, 100, 200],
    ['after the pod', 400, 100, 200],
    ['after a container', 400, 150, 200],
  ])('%s is undone', async (_when, ...values: readonly [number, number, number]) => {
    await begin();
    const [podMemory, ...containers] = values;
    has(podMemory, ...containers);
    await recover(runtime.context);
    expect(found()).toEqual([300, 100, 200]);
    expect(journal()).toEqual([]);
  });

  test('leaves what is neither old nor new: somebody else has written it since', async () => {
    await begin();
    has(500, 150, 220);
    await recover(runtime.context);
    expect(found()).toEqual([500, 100, 220]);
    expect(journal()).toEqual([]);
  });

  test('is not done by a container that has one of its new values and not the other', async () => {
    const both: Step = {
      kind: 'container',
      id: containerId(0),
      memory: { from: mi(100), to: mi(50) },
      cpu: { from: cpu(10_000), to: cpu(5000) },
    };
    await begin([both]);
    has(300, 50);
    await recover(runtime.context);
    expect(found()).toEqual([300, 100, 200]);
    expect(runtime.read(`${containerId(0)}/cpu.max`)).toBe('10000 100000');
  });

  test('takes back shares as the runtime has stored them', async () => {
    const shares = (stored: bigint): void =>
      runtime.describeContainer(containerId(0), {
        metadata: { name: 'c0' },
        state: 2,
        resources: { linux: { cpu_shares: stored } },
      });
    const asked: bigint[] = [];
    runtime.on('UpdateContainerResources', (request) => {
      asked.push(runtime.decodeUpdate(request).linux!.cpu_shares);
      shares(102n);
      return Buffer.alloc(0);
    });
    const step: Step = { kind: 'container', id: containerId(0), shares: { from: cpuShares(102), to: cpuShares(204) } };
    shares(102n);
    await begin([{ kind: 'pod-memory', from: mi(300), to: mi(400) }, step]);
    has(400);
    await recover(runtime.context);
    expect([found()[0], asked]).toEqual([300, []]);
    shares(204n);
    await begin([{ kind: 'pod-memory', from: mi(300), to: mi(400) }, step]);
    await recover(runtime.context);
    expect([found()[0], asked]).toEqual([300, [102n]]);
  });

  test('gives memory.high back that was lowered to reclaim', async () => {
    const open = await begin();
    await open.lowersHigh(`/kubepods/pod1/${containerId(1)}`, 'max');
    runtime.writeFile(`/kubepods/pod1/${containerId(1)}`, 'memory.high', String(20 * MiB));
    await recover(runtime.context);
    expect(runtime.read(`${containerId(1)}/memory.high`)).toBe('max');
    expect(found()).toEqual([300, 100, 200]);
  });

  test('and was being undone is not finished, though all of it is there', async () => {
    await (await begin()).undoing();
    has(400, 150, 250);
    await recover(runtime.context);
    expect(found()).toEqual([300, 100, 200]);
  });

  test.each([
    ['all was done', [400, 150, 250], { cache: { ...half, source: 'asked' } }],
    ['it is undone', [400, 150, 200], undefined],
  ] as const)('when %s, what it asks for volumes is kept: %j', async (_when, [podMemory, ...containers], kept) => {
    await begin(steps, new Map([['cache', half]]));
    has(podMemory, ...containers);
    await recover(runtime.context);
    const sizes = runtime.context.journal.volumesOf(await pod());
    expect(sizes.size === 0 ? undefined : Object.fromEntries(sizes)).toEqual(kept);
  });

  test('of which a container has ended is undone for the others', async () => {
    await begin();
    has(400, 150, 250);
    runtime.writeFile(`/kubepods/pod1/${containerId(1)}`, 'memory.max', String(200 * MiB));
    runtime.removeCgroup(`/kubepods/pod1/${containerId(0)}`);
    await recover(runtime.context);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    expect(journal()).toEqual([]);
  });

  test('of a pod that has gone is forgotten', async () => {
    await begin();
    runtime.removeCgroup('/kubepods/pod1');
    await recover(runtime.context);
    expect(journal()).toEqual([]);
    await begin();
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', {}));
    runtime.on('PodSandboxStatus', () => {
      throw new Error('no such pod');
    });
    await recover(runtime.context);
    await expect.poll(journal).toEqual([]);
  });

  test('before the machine was started anew is forgotten: its cgroups have gone', async () => {
    await begin();
    has(400, 150, 200);
    const [record] = await loaded({ bootId: 'another' });
    expect(record).toBeUndefined();
    expect(journal()).toEqual([]);
    expect(found()).toEqual([400, 150, 200]);
  });
});

describe('a resize that cannot be undone', () => {
  beforeEach(async () => {
    await begin();
    has(400, 150, 200);
    runtime.applyUpdates((id) => id === containerId(0));
  });

  test('marks its pod, stays in the journal and is reported', async () => {
    await expect(recoverPod(runtime.context, await pod())).rejects.toMatchObject({ code: 13, reason: 'UNDO_FAILED' });
    expect(journal()).toHaveLength(1);
    const { lastError } = await describePod(runtime.context, SANDBOX);
    expect(lastError).toMatchObject({ reason: 'UNDO_FAILED', message: expect.stringContaining('refused') as string });
    // The container keeps what it was given, and with it the pod.
    expect(found()).toEqual([400, 150, 200]);
    // Another process finds it, too.
    const [record] = await loaded();
    expect(record?.transaction?.failed).toContain('refused');
  });

  test('is mended at the next request of its pod, before that is carried out', async () => {
    await recover(runtime.context);
    runtime.applyUpdates();
    const request = containerUpdate(containerId(1), { memory_limit_in_bytes: BigInt(220 * MiB) });
    let atCall: number[] = [];
    await updateContainer(runtime.context, request, () => {
      atCall = found();
      runtime.writeFile(`/kubepods/pod1/${containerId(1)}`, 'memory.max', String(220 * MiB));
      return Promise.resolve(Buffer.alloc(0));
    });
    expect(atCall).toEqual([320, 100, 200]);
    expect(found()).toEqual([320, 100, 220]);
    expect(journal()).toEqual([]);
  });

  test('is not forgotten by a request that fails as well', async () => {
    await recover(runtime.context);
    // The pod has to be raised for it, so there is another transaction.
    const request = containerUpdate(containerId(1), { memory_limit_in_bytes: BigInt(300 * MiB) });
    const failing = updateContainer(runtime.context, request, () => Promise.reject(new Error('no')));
    await expect(failing).rejects.toThrow('no');
    runtime.applyUpdates();
    await recover(runtime.context);
    expect(found()).toEqual([300, 100, 200]);
    expect(journal()).toEqual([]);
  });

  test('is over once a request has been carried out: its values stay', async () => {
    await recover(runtime.context);
    const request = containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(150 * MiB) });
    await updateContainer(runtime.context, request, () => Promise.resolve(Buffer.alloc(0)));
    runtime.applyUpdates();
    await recover(runtime.context);
    expect(found().slice(1)).toEqual([150, 200]);
    expect(journal()).toEqual([]);
  });

  test('refuses a resize of the whole pod, and lets it pass once it is mended', async () => {
    const wanted = { pod: {}, containers: new Map([['c1', { memory: mi(250) }]]), volumes: new Map() };
    for (const index of [0, 1])
      runtime.context.registry.learnContainer({
        containerId: containerId(index),
        sandboxId: SANDBOX,
        name: `c${index}`,
      });
    const resize = () => resizePod(runtime.context, SANDBOX, wanted, { dryRun: false, deadline: Date.now() + 60_000 });
    await expect(resize()).rejects.toMatchObject({ reason: 'UNDO_FAILED' });
    runtime.applyUpdates();
    await resize();
    expect(found()).toEqual([350, 100, 250]);
  });
});

test('a container that uses more by now than it had is not brought back to that: it would be killed', async () => {
  await begin();
  has(400, 150, 200);
  const uses = (anon: number): void => {
    const cgroup = `/kubepods/pod1/${containerId(0)}`;
    runtime.writeFile(cgroup, 'memory.stat', `anon ${anon}\nshmem 0\nunevictable 0\nfile 0\n`);
    runtime.writeFile(cgroup, 'memory.current', String(anon));
  };
  uses(120 * MiB);
  await recover(runtime.context);
  expect(found()).toEqual([400, 150, 200]);
  expect(journal()).toHaveLength(1);
  // It has given it back.
  uses(500_000);
  await recover(runtime.context);
  expect(found()).toEqual([300, 100, 200]);
  expect(journal()).toEqual([]);
});

test('a unified key is taken back however the kernel prints it', async () => {
  runtime.writeFile('/kubepods/pod1', 'memory.low', String(32 * MiB));
  await begin([
    { kind: 'pod-unified', key: 'memory.low', from: '0', to: '32M' },
    { kind: 'container', id: containerId(0), memory: { from: mi(100), to: mi(150) } },
  ]);
  await recover(runtime.context);
  expect(runtime.read('memory.low')).toBe('0');
});

test('the state folder is gone meanwhile: the pod is mended all the same', async () => {
  await begin();
  has(400, 150, 200);
  rmSync(runtime.stateFolder, { recursive: true });
  await recover(runtime.context);
  expect(found()).toEqual([300, 100, 200]);
  expect(existsSync(join(runtime.stateFolder, 'uid-1.json'))).toBe(false);
});
