import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/index.ts';
import { specOf } from '../../../src/kubernetes/pods/spec.ts';
import { decode, encode } from '../../../src/runtime/index.ts';
import { type DeclaredPod, declarePod, noPodSpecs, qosOfCgroup } from '../../../src/sandbox/declared/index.ts';
import type { PodSpecs } from '../../../src/sandbox/index.ts';
import { FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';

const MiB = 1024 * 1024;
const CREATED = 0;
const RUNNING = 1;
const EXITED = 2;
const PRE_STOP = { 'io.kubernetes.container.preStopHandler': '{"exec":{}}' };

/** A container as the runtime has it. The limit is in mebibytes; 0: none. */
interface Given {
  readonly name: string;
  readonly state: number;
  readonly limit?: number;
  /** Thousandths of a CPU. */
  readonly milliCpu?: number;
  readonly exitCode?: number;
  readonly labels?: Record<string, string>;
  readonly annotations?: Record<string, string>;
}

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
});
afterEach(() => runtime.close());

/** The runtime's containers, in the order of their creation. */
function has(...containers: readonly Given[]): void {
  const ids = containers.map(({ name }, index) => `${name}-${index}`);
  runtime.on('ListContainers', () =>
    encode('ListContainersResponse', {
      // The backend lists them in any order.
      containers: containers
        .map(({ name, state, labels = {}, annotations = {} }, index) => ({
          ...{ id: ids[index]!, pod_sandbox_id: SANDBOX, metadata: { name }, state, labels, annotations },
          created_at: BigInt(index + 1),
        }))
        .reverse(),
    }),
  );
  for (const [index, { name, state, limit = 0, milliCpu = 0, exitCode = 0 }] of containers.entries())
    runtime.describeContainer(ids[index]!, {
      ...{ metadata: { name }, state, exit_code: exitCode },
      resources: {
        linux: {
          memory_limit_in_bytes: BigInt(limit * MiB),
          ...(milliCpu > 0 && { cpu_quota: BigInt(milliCpu * 50), cpu_period: 50_000n }),
        },
      },
    });
}

function kubeletAdmitted(limits: Readonly<Record<string, number>>, level?: number): void {
  const containers = new Map(Object.entries(limits).map(([name, size]) => [name, { memory: bytes(size * MiB) }]));
  const pod = level === undefined ? undefined : { memory: bytes(level * MiB) };
  runtime.allocated.set('uid-1', { containers, pod, isComplete: true });
}

async function declared(specs: PodSpecs = noPodSpecs): Promise<DeclaredPod> {
  const { registry, backend, kubelet } = runtime.context;
  const pod = await registry.pod(SANDBOX);
  return declarePod({ registry, backend, kubelet, specs }, pod!);
}

const lines = ({ containers }: DeclaredPod): string[] =>
  containers.map(({ name, kind, state, limits, mayBeInit, isUncounted, isFixed }) =>
    [
      `${name} ${kind} ${state}`,
      limits && (limits.memory === undefined ? 'no limit' : `${limits.memory / MiB}`),
      mayBeInit && 'may be init',
      isUncounted && 'uncounted',
      isFixed && 'fixed',
    ]
      .filter(Boolean)
      .join(', '),
  );

describe('from the spec', () => {
  const limit = (memory: string) => ({ resources: { limits: { memory } } });
  const spec = specOf(
    {
      initContainers: [
        { name: 'init', ...limit('300Mi') },
        { name: 'proxy', restartPolicy: 'Always', ...limit('10Mi') },
      ],
      containers: [
        { name: 'web', ...limit('100Mi') },
        { name: 'log', ...limit('200Mi') },
      ],
      ephemeralContainers: [{ name: 'debugger' }],
      priority: 7,
      volumes: [{ name: 'cache', emptyDir: { medium: 'Memory', sizeLimit: '64Mi' } }],
    },
    { qosClass: 'Guaranteed' },
  );
  const specs: PodSpecs = { of: () => spec };

  test('every container has kind and state, and limits whether or not it runs', async () => {
    has(
      { name: 'init', state: EXITED, limit: 300 },
      { name: 'proxy', state: RUNNING, limit: 10 },
      { name: 'web', state: CREATED, limit: 100 },
      { name: 'debugger', state: RUNNING },
    );
    const pod = await declared(specs);
    expect(lines(pod)).toEqual([
      'init init ended, 300',
      'proxy sidecar running, 10',
      'web app created, 100',
      'log app declared, 200',
      'debugger ephemeral running, no limit',
    ]);
    expect(pod).toMatchObject({ source: 'spec', qosClass: 'Guaranteed', priority: 7 });
    expect([...pod.volumes]).toEqual([['cache', { sizeLimit: 64 * MiB }]]);
  });

  test('what kubelet has admitted counts before what the spec asks for', async () => {
    has();
    kubeletAdmitted({ web: 50, log: 200 }, 400);
    const pod = await declared(specs);
    expect(lines(pod).slice(2, 4)).toEqual(['web app declared, 50', 'log app declared, 200']);
    expect(pod.limits).toEqual({ memory: 400 * MiB });
  });
});

test('of the spec, the requests that kubelet has admitted count first, and the QoS class before that of the cgroup', async () => {
  has();
  const asking = (memory: string) => ({ resources: { requests: { memory } } });
  const { requests, ...spec } = specOf(
    {
      containers: [
        { name: 'web', ...asking('30Mi') },
        { name: 'log', ...asking('20Mi') },
      ],
      ...asking('70Mi'),
    },
    { qosClass: 'Burstable' },
  )!;
  expect(requests).toEqual({ memory: 70 * MiB });
  const inSpec = { of: () => ({ ...spec, requests }) };
  const requested = ({ containers, requests: level }: DeclaredPod) => [
    ...containers.map((one) => one.requests?.memory),
    level?.memory,
  ];
  const before = await declared(inSpec);
  expect(requested(before)).toEqual([30 * MiB, 20 * MiB, 70 * MiB]);
  expect(before.qosClass).toBe('Burstable');
  kubeletAdmitted({ web: 100 });
  const admitted = { containers: new Map([['web', { memory: bytes(10 * MiB) }]]), pod: { memory: bytes(60 * MiB) } };
  runtime.allocated.set('uid-1', { ...runtime.allocated.get('uid-1')!, requests: admitted });
  expect(requested(await declared(inSpec))).toEqual([10 * MiB, 20 * MiB, 60 * MiB]);
  // Without a class in the status.
  expect((await declared({ of: () => ({ ...spec, requests, qosClass: undefined }) })).qosClass).toBe('Guaranteed');
});

test('only an init container that kubelet’s state does not list is fixed, and no other container', async () => {
  has();
  kubeletAdmitted({ web: 50 });
  const spec = specOf(
    { initContainers: [{ name: 'proxy', restartPolicy: 'Always' }, { name: 'init' }], containers: [{ name: 'log' }] },
    {},
  );
  expect(lines(await declared({ of: () => spec }))).toEqual([
    'proxy sidecar declared, no limit',
    'init init declared, no limit, fixed',
    'log app declared, no limit',
  ]);
});

test('an init container of the spec that is not in the runtime has ended once a later container was created', async () => {
  const [setup, proxy] = [{ name: 'setup' }, { name: 'proxy', restartPolicy: 'Always' }];
  const spec = specOf(
    {
      initContainers: [setup, proxy, { name: 'late' }],
      containers: [{ name: 'web' }],
      ephemeralContainers: [{ name: 'debugger' }],
    },
    {},
  );
  const states = async (...running: readonly string[]): Promise<string[]> => {
    has(...running.map((name) => ({ name, state: RUNNING })));
    return (await declared({ of: () => spec })).containers.map(({ state }) => state);
  };
  expect(await states('debugger')).toEqual(['declared', 'declared', 'declared', 'declared', 'running']);
  expect(await states('proxy')).toEqual(['ended', 'running', 'declared', 'declared', 'declared']);
  expect(await states('web')).toEqual(['ended', 'declared', 'ended', 'running', 'declared']);
});

test.each([
  ['up to 1.35 does not list it', { web: 50, log: 200 }, true, ['init init declared, 300, fixed']],
  ['1.36 lists it', { init: 200, web: 50, log: 200 }, true, ['init init declared, 200']],
  ['was not completely understood', { web: 50 }, false, ['init init declared, 300']],
  ['has no container of the pod', {}, true, ['init init declared, 300']],
] as const)('an init container of the spec when kubelet’s state %s', async (_what, admitted, isComplete, expected) => {
  has();
  kubeletAdmitted(admitted);
  runtime.allocated.set('uid-1', { ...runtime.allocated.get('uid-1')!, isComplete });
  const containers = [{ name: 'init', resources: { limits: { memory: '300Mi' } } }];
  const spec = specOf({ initContainers: containers, containers: [{ name: 'web' }] }, {});
  expect(lines(await declared({ of: () => spec })).slice(0, 1)).toEqual(expected);
});

describe("from kubelet's state", () => {
  test('a listed container that was not created is declared, one that failed has ended', async () => {
    has({ name: 'a', state: RUNNING }, { name: 'b', state: EXITED, limit: 200, exitCode: 1 });
    kubeletAdmitted({ a: 100, b: 200, c: 50 });
    const pod = await declared();
    expect(pod.source).toBe('kubelet-state');
    expect(lines(pod)).toEqual([
      'a app running, 100',
      // It may be an init container that fails, with c waiting for it.
      'b unknown ended, 200, may be init',
      'c unknown declared, 50, may be init',
    ]);
  });

  test('A3: an unlisted container with limits is an init container, and what was created before it a sidecar', async () => {
    has({ name: 'proxy', state: RUNNING }, { name: 'init', state: RUNNING, limit: 300 });
    kubeletAdmitted({ proxy: 10, web: 290 });
    expect(lines(await declared())).toEqual([
      'proxy sidecar running, 10',
      'init init running, 300, fixed',
      'web unknown declared, 290, may be init',
    ]);
  });

  test('A2: an unlisted container that runs once all others were created is an ephemeral one', async () => {
    has(
      { name: 'init', state: EXITED, limit: 20 },
      { name: 'web', state: RUNNING },
      { name: 'debugger', state: RUNNING },
    );
    kubeletAdmitted({ web: 100 });
    expect(lines(await declared())).toEqual([
      'init init ended, 20, fixed',
      'web app running, 100',
      'debugger ephemeral running, no limit',
    ]);
  });

  test('an unlisted container of which nothing tells the kind has no part in the pod limit', async () => {
    has({ name: 'first', state: RUNNING });
    kubeletAdmitted({ web: 100 });
    expect(lines(await declared())).toEqual([
      'first unknown running, no limit, uncounted',
      'web unknown declared, 100, may be init',
    ]);
    // With a pod-level limit an ephemeral container inherits it.
    has({ name: 'first', state: EXITED, limit: 400 });
    kubeletAdmitted({ web: 100 }, 400);
    expect(lines(await declared())[0]).toBe('first unknown ended, 400, uncounted');
  });

  test('A9: a listed container that ended with 0 may be an app or an init container, unless it has a preStop hook', async () => {
    has(
      { name: 'a', state: EXITED, limit: 50 },
      { name: 'b', state: EXITED, limit: 50, annotations: PRE_STOP },
      { name: 'c', state: RUNNING },
    );
    kubeletAdmitted({ a: 50, b: 50, c: 100 });
    expect(lines(await declared())).toEqual([
      'a unknown ended, 50, may be init',
      'b app ended, 50',
      'c app running, 100',
    ]);
  });

  test('has the limits and requests of the pod level, and the requests of containers', async () => {
    has({ name: 'a', state: RUNNING });
    kubeletAdmitted({ a: 100, b: 50 });
    const without = await declared();
    expect([without.limits, without.requests, without.containers.map(({ requests }) => requests)]).toEqual([
      undefined,
      undefined,
      [undefined, undefined],
    ]);
    expect(Object.keys(without)).not.toContain('limits');
    kubeletAdmitted({ a: 100, b: 50 }, 400);
    const [own, level] = [{ memory: bytes(10 * MiB) }, { memory: bytes(90 * MiB) }];
    const requests = { containers: new Map([['a', own]]), pod: level };
    runtime.allocated.set('uid-1', { ...runtime.allocated.get('uid-1')!, requests });
    const pod = await declared();
    expect([pod.limits, pod.requests]).toEqual([{ memory: 400 * MiB }, level]);
    expect(pod.containers.map((one) => one.requests)).toEqual([own, undefined]);
  });

  test('a listed container that failed is an app container once all others were created', async () => {
    has(
      { name: 'a', state: RUNNING },
      { name: 'b', state: EXITED, limit: 50, exitCode: 1 },
      { name: 'c', state: RUNNING },
    );
    kubeletAdmitted({ a: 100, b: 50, c: 100 });
    expect(lines(await declared())[1]).toBe('b app ended, 50');
  });

  test('an unlisted container with a CPU limit alone has limits of its own', async () => {
    has({ name: 'setup', state: EXITED, milliCpu: 250 }, { name: 'web', state: RUNNING });
    kubeletAdmitted({ web: 100 });
    const [setup] = (await declared()).containers;
    expect(setup).toMatchObject({ kind: 'init', limits: { milliCpu: 250 } });
    expect(setup?.limits).not.toHaveProperty('memory');
  });

  test('a container that is removed while it is asked for may still be declared', async () => {
    has({ name: 'gone', state: EXITED }, { name: 'a', state: EXITED }, { name: 'web', state: RUNNING });
    kubeletAdmitted({ a: 30, web: 100 });
    runtime.wrapResponder('ContainerStatus', (request, respond) => {
      if (/gone-0|a-1/.test(decode('ContainerStatusRequest', request).container_id))
        throw new Error('no such container');
      return respond(request);
    });
    expect(lines(await declared())).toEqual([
      'gone unknown ended, uncounted',
      'a app ended, 30',
      'web app running, 100',
    ]);
    runtime.allocated.clear();
    expect(lines(await declared())).toEqual(['gone unknown ended', 'a unknown ended', 'web unknown running']);
  });

  test('asks the runtime only for containers that do not run and for those that are not listed', async () => {
    has({ name: 'a', state: RUNNING }, { name: 'b', state: EXITED }, { name: 'x', state: RUNNING });
    const asked = async (): Promise<string[]> => {
      const ids: string[] = [];
      runtime.wrapResponder('ContainerStatus', (request, respond) => {
        ids.push(decode('ContainerStatusRequest', request).container_id);
        return respond(request);
      });
      await declared();
      return ids.sort();
    };
    kubeletAdmitted({ a: 100, b: 50 });
    expect(await asked()).toEqual(['b-1', 'x-2']);
    runtime.allocated.clear();
    expect(await asked()).toEqual(['b-1']);
  });

  test('is not used when a part of it is not understood', async () => {
    has({ name: 'a', state: RUNNING });
    kubeletAdmitted({ b: 100 });
    runtime.allocated.set('uid-1', { ...runtime.allocated.get('uid-1')!, isComplete: false });
    expect((await declared()).source).toBe('inference');
  });
});

describe("from the runtime's containers", () => {
  test('A4: the newest container of a name counts if it was created or has failed, not if it ended well', async () => {
    has(
      { name: 'a', state: RUNNING },
      { name: 'b', state: EXITED, limit: 100, exitCode: 1 },
      { name: 'b', state: EXITED, limit: 200, exitCode: 137 },
      { name: 'c', state: CREATED, limit: 30 },
      { name: 'd', state: EXITED, limit: 40 },
    );
    const pod = await declared();
    expect(pod.source).toBe('inference');
    expect(lines(pod)).toEqual([
      'a unknown running',
      'b unknown ended, 200',
      'c unknown created, 30',
      'd unknown ended, 40, uncounted',
    ]);
  });

  test('of several containers of a name, the one that runs counts, at its own place', async () => {
    has(
      { name: 'a', state: EXITED, limit: 10 },
      { name: 'b', state: RUNNING },
      { name: 'a', state: RUNNING, limit: 20 },
      { name: 'a', state: CREATED, limit: 30 },
    );
    const { containers } = await declared();
    expect(containers.map(({ name, id, state }) => [name, id, state])).toEqual([
      ['b', 'b-1', 'running'],
      ['a', 'a-2', 'running'],
    ]);
  });

  test('only those of the sandbox are asked for', async () => {
    has();
    const filters: unknown[] = [];
    runtime.wrapResponder('ListContainers', (request, respond) => {
      filters.push(decode('ListContainersRequest', request).filter?.pod_sandbox_id);
      return respond(request);
    });
    await declared();
    expect(filters).toEqual([SANDBOX]);
  });

  test('one container of kubelet is enough to tell that kubelet has created the pod', async () => {
    const labels = { 'io.kubernetes.container.name': 'a' };
    has({ name: 'a', state: RUNNING, labels }, { name: 'b', state: RUNNING });
    expect((await declared()).source).toBe('kubelet-labels');
  });

  test("kubelet's annotation tells that a container with a preStop hook is restarted when it ended well", async () => {
    const labels = { 'io.kubernetes.container.name': 'a' };
    has({ name: 'a', state: EXITED, limit: 100, labels, annotations: PRE_STOP });
    const pod = await declared();
    expect(pod.source).toBe('kubelet-labels');
    expect(lines(pod)).toEqual(['a app ended, 100']);
  });

  test('the QoS class follows from the cgroup of the pod', async () => {
    has();
    expect((await declared()).qosClass).toBe('Guaranteed');
    runtime.describePod({
      config: {
        metadata: { name: 'web', uid: 'uid-1', namespace: 'default' },
        linux: { cgroup_parent: '/kubepods/burstable/pod1' },
      },
    });
    runtime.context.registry.forgetPod(SANDBOX);
    expect((await declared()).qosClass).toBe('Burstable');
  });
});

test.each(['', 'pod1', '/other/pod1'])('the cgroup %j tells no QoS class', (cgroupParent) => {
  expect(qosOfCgroup({ cgroupParent })).toBeUndefined();
});
