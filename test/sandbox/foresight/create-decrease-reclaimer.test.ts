import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { KnownDeclarations } from '../../../src/sandbox/foresight/create-decrease-reclaimer.ts';
import { containerId, FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

test.each(['before', 'after'])(
  'the newest of two sandboxes of a pod counts, even if recovery has found it %s the ended one',
  async (order) => {
    const runtime = await FakeRuntime.start();
    runtime.makePod(String(200 * MiB), [200 * MiB]);
    const { decreaseReclaimer } = runtime;
    const { registry } = runtime.node;
    const found = (await registry.pod(SANDBOX))!;
    registry.forgetPod(SANDBOX);
    // kubelet counts the sandboxes of a pod.
    const newest = { ...found, metadata: { ...found.metadata, attempt: 1 } };
    const ended = { ...found, sandboxId: 'ended', metadata: { ...found.metadata, attempt: 0 } };
    for (const pod of order === 'before' ? [newest, ended] : [ended, newest]) registry.learnPod(pod);
    registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
    const asked: string[] = [];
    runtime.on('ListContainers', (request) => {
      asked.push(decode('ListContainersRequest', request).filter?.pod_sandbox_id ?? '');
      return encode('ListContainersResponse', { containers: [] });
    });
    const entry = (limit: number) => ({
      containers: new Map([['c0', { memory: bytes(limit * MiB) }]]),
      pod: undefined,
      isComplete: true,
    });
    runtime.allocated.set(found.metadata.uid, entry(50));
    runtime.actuated.set(found.metadata.uid, entry(200));
    decreaseReclaimer.check();
    await expect.poll(() => asked.length, LONG_WAIT).toBeGreaterThan(0);
    expect(new Set(asked)).toEqual(new Set([SANDBOX]));
    await decreaseReclaimer.close();
    await runtime.close();
  },
);

test('a cgroup left by a container of an ended sandbox does not defer a decrease of the container that replaced it', async () => {
  const runtime = await FakeRuntime.start();
  runtime.makePod(String(200 * MiB), [200 * MiB]);
  const { decreaseReclaimer } = runtime;
  const { registry } = runtime.node;
  const found = (await registry.pod(SANDBOX))!;
  registry.learnPod({ ...found, metadata: { ...found.metadata, attempt: 1 } });
  registry.learnPod({ ...found, sandboxId: 'ended', metadata: { ...found.metadata, attempt: 0 } });
  registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
  const left = 'e'.repeat(64);
  registry.learnContainer({ containerId: left, sandboxId: 'ended', name: 'c0' });
  runtime.writeCgroup(`/kubepods/pod1/${left}`, {
    'memory.max': String(200 * MiB),
    'cpu.max': '10000 100000',
    'memory.current': String(150 * MiB),
    'memory.stat': `anon 0\nshmem ${150 * MiB}\nunevictable 0\nfile ${150 * MiB}`,
    'cgroup.events': 'populated 0\nfrozen 0',
  });
  const entry = (limit: number) => ({
    containers: new Map([['c0', { memory: bytes(limit * MiB) }]]),
    pod: undefined,
    isComplete: true,
  });
  runtime.allocated.set(found.metadata.uid, entry(50));
  runtime.actuated.set(found.metadata.uid, entry(200));
  await decreaseReclaimer.comparable(found.metadata.uid, 'runtime');
  expect(decreaseReclaimer.reportOf(found.metadata.uid)).toBeUndefined();
  // The decrease of the running container is known, because kubelet has not applied it.
  expect(runtime.calls).toContain('ListContainers');
  await decreaseReclaimer.close();
  await runtime.close();
});

describe('a decrease that kubelet does not compare in place', () => {
  const POD = '/kubepods/pod1';
  let runtime: FakeRuntime;
  let uid: string;
  const told: string[] = [];
  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(text(300), [200 * MiB, 100 * MiB]);
    const { decreaseReclaimer } = runtime;
    const { registry } = runtime.node;
    const pod = (await registry.pod(SANDBOX))!;
    ({ uid } = pod.metadata);
    registry.learnPod(pod);
    for (const index of [0, 1])
      registry.learnContainer({ containerId: containerId(index), sandboxId: SANDBOX, name: `c${index}` });
    told.length = 0;
    decreaseReclaimer.watch((_uid, { message }) => told.push(message));
  });
  afterEach(async () => {
    await runtime.decreaseReclaimer.close();
    await runtime.close();
  });

  const text = (mebibytes: number): string => String(mebibytes * MiB);
  const use = (cgroup: string, anon: number, file: number): void => {
    runtime.writeFile(cgroup, 'memory.current', text(anon + file));
    runtime.writeFile(
      cgroup,
      'memory.stat',
      `anon ${text(anon)}\nshmem 0\nunevictable 0\nfile ${text(file)}\nactive_anon ${text(anon)}\ninactive_anon 0`,
    );
  };
  const admit = async (): Promise<void> => {
    const entry = (limit: number) => ({
      containers: new Map([
        ['c0', { memory: bytes(limit * MiB) }],
        ['c1', { memory: bytes(100 * MiB) }],
      ]),
      pod: undefined,
      isComplete: true,
    });
    runtime.actuated.set(uid, entry(200));
    runtime.allocated.set(uid, entry(50));
    runtime.decreaseReclaimer.check();
    await expect.poll(() => runtime.calls, LONG_WAIT).toContain('ListContainers');
    // Waits for the reads of the cgroups, which follow that call.
    for (let turn = 0; turn < 100; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  };

  test('after a container is killed for a decrease, only the pod limit is held, and compared once the pod is measured', async () => {
    use(`${POD}/${containerId(0)}`, 150, 0);
    use(POD, 170, 10);
    await admit();
    expect([told, runtime.read(`${containerId(0)}/memory.high`), runtime.read('memory.high')]).toEqual([
      [],
      'max',
      'max',
    ]);
    runtime.removeCgroup(`${POD}/${containerId(0)}`);
    use(POD, 20, 10);
    let isThrough = false;
    const waiting = runtime.decreaseReclaimer.comparable(uid, 'cadvisor')?.then(() => (isThrough = true));
    await expect.poll(() => runtime.read('memory.high'), LONG_WAIT).not.toBe('max');
    expect([isThrough, told]).toEqual([false, []]);
    // Reads the file as cAdvisor does.
    await expect.poll(() => [runtime.read('cgroup.procs'), isThrough], LONG_WAIT).toEqual(['', true]);
    await waiting;
  });

  test('a decrease of a container that does not run is neither held nor reported', async () => {
    runtime.removeCgroup(`${POD}/${containerId(0)}`);
    use(POD, 60, 120);
    await admit();
    expect([told, runtime.read('memory.high')]).toEqual([[], 'max']);
    expect(runtime.decreaseReclaimer.reportOf(uid)).toBeUndefined();
  });
});

describe('known declarations', () => {
  let runtime: FakeRuntime;
  let declarations: KnownDeclarations;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    for (const index of [0, 1])
      runtime.node.registry.learnContainer({ containerId: containerId(index), sandboxId: SANDBOX, name: `c${index}` });
    declarations = new KnownDeclarations();
  });

  afterEach(() => runtime.close());

  const entry = (): PodEntry => ({
    containers: new Map([0, 1].map((index) => [`c${index}`, { memory: bytes(100 * MiB) }])),
    pod: undefined,
    isComplete: true,
  });

  async function kindsWith(allocated: PodEntry): Promise<readonly string[] | undefined> {
    for (const file of [runtime.allocated, runtime.actuated]) file.set('uid-1', allocated);
    const pod = (await runtime.node.registry.pod(SANDBOX))!;
    const { declared } = await declarations.readPod(runtime.node, pod, allocated);
    return declared?.containers.map(({ name, kind, state: phase }) => `${name} ${kind} ${phase}`);
  }
  const listed = (): number => runtime.calls.filter((call) => call === 'ListContainers').length;

  test('the containers of a pod are listed once for an entry, and again when other containers run', async () => {
    const allocated = entry();
    expect(await kindsWith(allocated)).toEqual(['c0 app running', 'c1 app running']);
    const before = listed();
    await kindsWith(allocated);
    expect(listed()).toBe(before);
    runtime.removeCgroup(`/kubepods/pod1/${containerId(1)}`);
    expect(await kindsWith(allocated)).toEqual(['c0 app running', 'c1 unknown ended']);
    await kindsWith(entry());
    expect(listed()).toBe(before + 2);
  });

  test('KEP-1287: the declaration of a pod is the last known one while the backend fails, and unknown for a new entry', async () => {
    const allocated = entry();
    await kindsWith(allocated);
    runtime.on('ListContainers');
    runtime.removeCgroup(`/kubepods/pod1/${containerId(1)}`);
    expect(await kindsWith(allocated)).toEqual(['c0 app running', 'c1 app running']);
    expect(await kindsWith(entry())).toBeUndefined();
  });
});
