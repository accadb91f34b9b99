import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { specOf } from '../../../src/kubernetes/pods/pod.ts';
import { decode } from '../../../src/runtime/codec.ts';
import type { DeclaredPod } from '../../../src/sandbox/pods/declared-pod.ts';
import { qosOfCgroup } from '../../../src/sandbox/pods/declare-pod.ts';
import type { PodSpecs } from '../../../src/sandbox/pods/pod-spec.ts';
import { SANDBOX } from '../../support/fake-runtime.ts';
import {
  CREATED,
  FakeDeclaringRuntime,
  EXITED,
  PRE_STOP,
  RUNNING,
  lines,
} from '../../support/fake-declaring-runtime.ts';

let given: FakeDeclaringRuntime;
beforeEach(async () => {
  given = await FakeDeclaringRuntime.start();
});
afterEach(() => given.close());

describe('pod declared by the spec', () => {
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

  test('every container of the spec has a kind and a state, and limits even if it does not run', async () => {
    given.has(
      { name: 'init', state: EXITED, limit: 300 },
      { name: 'proxy', state: RUNNING, limit: 10 },
      { name: 'web', state: CREATED, limit: 100 },
      { name: 'debugger', state: RUNNING },
    );
    const pod = await given.declared(specs);
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

  test('KEP-1287: limits that kubelet has admitted take precedence over those of the spec', async () => {
    given.has();
    given.kubeletAdmitted({ web: 50, log: 200 }, 400);
    const pod = await given.declared(specs);
    expect(lines(pod).slice(2, 4)).toEqual(['web app declared, 50', 'log app declared, 200']);
    expect(pod.limits).toEqual({ memory: 400 * MiB });
  });
});

test("admitted requests take precedence over those of the spec, and the spec's QoS class over that of the cgroup", async () => {
  given.has();
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
  const before = await given.declared(inSpec);
  expect(requested(before)).toEqual([30 * MiB, 20 * MiB, 70 * MiB]);
  expect(before.qosClass).toBe('Burstable');
  given.kubeletAdmitted({ web: 100 });
  const admitted = { containers: new Map([['web', { memory: bytes(10 * MiB) }]]), pod: { memory: bytes(60 * MiB) } };
  given.runtime.allocated.set('uid-1', { ...given.runtime.allocated.get('uid-1')!, requests: admitted });
  expect(requested(await given.declared(inSpec))).toEqual([10 * MiB, 20 * MiB, 60 * MiB]);
  // Without a class in the status.
  expect((await given.declared({ of: () => ({ ...spec, requests, qosClass: undefined }) })).qosClass).toBe(
    'Guaranteed',
  );
});

test('marks only init containers that kubelet’s state does not list as fixed', async () => {
  given.has();
  given.kubeletAdmitted({ web: 50 });
  const spec = specOf(
    { initContainers: [{ name: 'proxy', restartPolicy: 'Always' }, { name: 'init' }], containers: [{ name: 'log' }] },
    {},
  );
  expect(lines(await given.declared({ of: () => spec }))).toEqual([
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
    given.has(...running.map((name) => ({ name, state: RUNNING })));
    return (await given.declared({ of: () => spec })).containers.map(({ state }) => state);
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
] as const)(
  'declares an init container of the spec when kubelet’s state %s',
  async (_what, admitted, isComplete, expected) => {
    given.has();
    given.kubeletAdmitted(admitted);
    given.runtime.allocated.set('uid-1', { ...given.runtime.allocated.get('uid-1')!, isComplete });
    const containers = [{ name: 'init', resources: { limits: { memory: '300Mi' } } }];
    const spec = specOf({ initContainers: containers, containers: [{ name: 'web' }] }, {});
    expect(lines(await given.declared({ of: () => spec })).slice(0, 1)).toEqual(expected);
  },
);

describe("pod inferred from the runtime's containers", () => {
  test('A4: the newest container of a name counts if it was created or has failed, but not if it ended with 0', async () => {
    given.has(
      { name: 'a', state: RUNNING },
      { name: 'b', state: EXITED, limit: 100, exitCode: 1 },
      { name: 'b', state: EXITED, limit: 200, exitCode: 137 },
      { name: 'c', state: CREATED, limit: 30 },
      { name: 'd', state: EXITED, limit: 40 },
    );
    const pod = await given.declared();
    expect(pod.source).toBe('inference');
    expect(lines(pod)).toEqual([
      'a unknown running',
      'b unknown ended, 200',
      'c unknown created, 30',
      'd unknown ended, 40, uncounted',
    ]);
  });

  test('of several containers with one name, the running one counts, at its own position', async () => {
    given.has(
      { name: 'a', state: EXITED, limit: 10 },
      { name: 'b', state: RUNNING },
      { name: 'a', state: RUNNING, limit: 20 },
      { name: 'a', state: CREATED, limit: 30 },
    );
    const { containers } = await given.declared();
    expect(containers.map(({ name, id, state }) => [name, id, state])).toEqual([
      ['b', 'b-1', 'running'],
      ['a', 'a-2', 'running'],
    ]);
  });

  test('asks the runtime only for the containers of the sandbox', async () => {
    given.has();
    const filters: unknown[] = [];
    given.runtime.wrapResponder('ListContainers', (request, respond) => {
      filters.push(decode('ListContainersRequest', request).filter?.pod_sandbox_id);
      return respond(request);
    });
    await given.declared();
    expect(filters).toEqual([SANDBOX]);
  });

  test("a single container with kubelet's labels shows that kubelet has created the pod", async () => {
    const labels = { 'io.kubernetes.container.name': 'a' };
    given.has({ name: 'a', state: RUNNING, labels }, { name: 'b', state: RUNNING });
    expect((await given.declared()).source).toBe('kubelet-labels');
  });

  test("kubelet's preStop annotation shows that an ended container is an app container", async () => {
    const labels = { 'io.kubernetes.container.name': 'a' };
    given.has({ name: 'a', state: EXITED, limit: 100, labels, annotations: PRE_STOP });
    const pod = await given.declared();
    expect(pod.source).toBe('kubelet-labels');
    expect(lines(pod)).toEqual(['a app ended, 100']);
  });

  test('the QoS class follows from the cgroup of the pod', async () => {
    given.has();
    expect((await given.declared()).qosClass).toBe('Guaranteed');
    given.runtime.describePod({
      config: {
        metadata: { name: 'web', uid: 'uid-1', namespace: 'default' },
        linux: { cgroup_parent: '/kubepods/burstable/pod1' },
      },
    });
    given.runtime.node.registry.forgetPod(SANDBOX);
    expect((await given.declared()).qosClass).toBe('Burstable');
  });
});

test.each(['', 'pod1', '/other/pod1'])('the cgroup %j has no QoS class', (cgroupParent) => {
  expect(qosOfCgroup({ cgroupParent })).toBeUndefined();
});
