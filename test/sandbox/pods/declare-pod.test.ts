import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { specOf } from '../../../src/kubernetes/pods/pod.ts';
import { decode } from '../../../src/runtime/codec.ts';
import { qosOfCgroup } from '../../../src/sandbox/pods/declare-pod.ts';
import type { DeclaredPod } from '../../../src/sandbox/pods/declared-pod.ts';
import type { PodSpecs } from '../../../src/sandbox/pods/pod-spec.ts';
import {
  CREATED,
  EXITED,
  FakeDeclaringRuntime,
  lines,
  PRE_STOP,
  RUNNING,
} from '../../support/fake-declaring-runtime.ts';
import { SANDBOX } from '../../support/fake-runtime.ts';

let given: FakeDeclaringRuntime;

describe('sources of a declaration', () => {
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
});

describe("pod declared by kubelet's state", () => {
  beforeEach(async () => {
    given = await FakeDeclaringRuntime.start();
  });

  afterEach(() => given.close());

  test('regards a listed container that was not created as declared, and one that failed as ended', async () => {
    given.has({ name: 'a', state: RUNNING }, { name: 'b', state: EXITED, limit: 200, exitCode: 1 });
    given.kubeletAdmitted({ a: 100, b: 200, c: 50 });
    const pod = await given.declared();
    expect(pod.source).toBe('kubelet-state');
    expect(lines(pod)).toEqual([
      'a app running, 100',
      // A container that may still be an init container that fails, with c waiting for it.
      'b unknown ended, 200, may be init',
      'c unknown declared, 50, may be init',
    ]);
  });

  test('A3: an unlisted container with limits is an init container, and one created before it is a sidecar', async () => {
    given.has({ name: 'proxy', state: RUNNING }, { name: 'init', state: RUNNING, limit: 300 });
    given.kubeletAdmitted({ proxy: 10, web: 290 });
    expect(lines(await given.declared())).toEqual([
      'proxy sidecar running, 10',
      'init init running, 300, fixed',
      'web unknown declared, 290, may be init',
    ]);
  });

  test('A2: an unlisted container that runs once all others were created is an ephemeral one', async () => {
    given.has(
      { name: 'init', state: EXITED, limit: 20 },
      { name: 'web', state: RUNNING },
      { name: 'debugger', state: RUNNING },
    );
    given.kubeletAdmitted({ web: 100 });
    expect(lines(await given.declared())).toEqual([
      'init init ended, 20, fixed',
      'web app running, 100',
      'debugger ephemeral running, no limit',
    ]);
  });

  test('an unlisted container of unknown kind does not count in the pod limit', async () => {
    given.has({ name: 'first', state: RUNNING });
    given.kubeletAdmitted({ web: 100 });
    expect(lines(await given.declared())).toEqual([
      'first unknown running, no limit, uncounted',
      'web unknown declared, 100, may be init',
    ]);
    // With a pod-level limit an ephemeral container inherits it.
    given.has({ name: 'first', state: EXITED, limit: 400 });
    given.kubeletAdmitted({ web: 100 }, 400);
    expect(lines(await given.declared())[0]).toBe('first unknown ended, 400, uncounted');
  });

  test('A9: a listed container that ended with 0 may be an app or an init container, unless it has a preStop hook', async () => {
    given.has(
      { name: 'a', state: EXITED, limit: 50 },
      { name: 'b', state: EXITED, limit: 50, annotations: PRE_STOP },
      { name: 'c', state: RUNNING },
    );
    given.kubeletAdmitted({ a: 50, b: 50, c: 100 });
    expect(lines(await given.declared())).toEqual([
      'a unknown ended, 50, may be init',
      'b app ended, 50',
      'c app running, 100',
    ]);
  });

  test('returns pod-level limits and requests, and the requests of containers', async () => {
    given.has({ name: 'a', state: RUNNING });
    given.kubeletAdmitted({ a: 100, b: 50 });
    const without = await given.declared();
    expect([without.limits, without.requests, without.containers.map(({ requests }) => requests)]).toEqual([
      undefined,
      undefined,
      [undefined, undefined],
    ]);
    expect(Object.keys(without)).not.toContain('limits');
    given.kubeletAdmitted({ a: 100, b: 50 }, 400);
    const [own, level] = [{ memory: bytes(10 * MiB) }, { memory: bytes(90 * MiB) }];
    const requests = { containers: new Map([['a', own]]), pod: level };
    given.runtime.allocated.set('uid-1', { ...given.runtime.allocated.get('uid-1')!, requests });
    const pod = await given.declared();
    expect([pod.limits, pod.requests]).toEqual([{ memory: 400 * MiB }, level]);
    expect(pod.containers.map((one) => one.requests)).toEqual([own, undefined]);
  });

  test('a listed container that failed is an app container once all others were created', async () => {
    given.has(
      { name: 'a', state: RUNNING },
      { name: 'b', state: EXITED, limit: 50, exitCode: 1 },
      { name: 'c', state: RUNNING },
    );
    given.kubeletAdmitted({ a: 100, b: 50, c: 100 });
    expect(lines(await given.declared())[1]).toBe('b app ended, 50');
  });

  test('an unlisted container with only a CPU limit has limits of its own, and is an init container', async () => {
    given.has({ name: 'setup', state: EXITED, milliCpu: 250 }, { name: 'web', state: RUNNING });
    given.kubeletAdmitted({ web: 100 });
    const [setup] = (await given.declared()).containers;
    expect(setup).toMatchObject({ kind: 'init', limits: { milliCpu: 250 } });
    expect(setup?.limits).not.toHaveProperty('memory');
  });

  test("a container that is removed during the lookup is still declared if kubelet's state lists it", async () => {
    given.has({ name: 'gone', state: EXITED }, { name: 'a', state: EXITED }, { name: 'web', state: RUNNING });
    given.kubeletAdmitted({ a: 30, web: 100 });
    given.runtime.wrapResponder('ContainerStatus', (request, respond) => {
      if (/gone-0|a-1/.test(decode('ContainerStatusRequest', request).container_id))
        throw new Error('no such container');
      return respond(request);
    });
    expect(lines(await given.declared())).toEqual([
      'gone unknown ended, uncounted',
      'a app ended, 30',
      'web app running, 100',
    ]);
    given.runtime.allocated.clear();
    expect(lines(await given.declared())).toEqual(['gone unknown ended', 'a unknown ended', 'web unknown running']);
  });

  test('asks the runtime only for containers that do not run and for those that are not listed', async () => {
    given.has({ name: 'a', state: RUNNING }, { name: 'b', state: EXITED }, { name: 'x', state: RUNNING });
    const asked = async (): Promise<string[]> => {
      const ids: string[] = [];
      given.runtime.wrapResponder('ContainerStatus', (request, respond) => {
        ids.push(decode('ContainerStatusRequest', request).container_id);
        return respond(request);
      });
      await given.declared();
      return ids.sort();
    };
    given.kubeletAdmitted({ a: 100, b: 50 });
    expect(await asked()).toEqual(['b-1', 'x-2']);
    given.runtime.allocated.clear();
    expect(await asked()).toEqual(['b-1']);
  });

  test("does not use kubelet's state if a part of it is not understood", async () => {
    given.has({ name: 'a', state: RUNNING });
    given.kubeletAdmitted({ b: 100 });
    given.runtime.allocated.set('uid-1', { ...given.runtime.allocated.get('uid-1')!, isComplete: false });
    expect((await given.declared()).source).toBe('inference');
  });
});

const UID = '3f2504e0-4f89-11d3-9a0c-0305e82c3301';
const unit = UID.replaceAll('-', '_');

test.each([
  [`/kubepods/pod${UID}`, 'Guaranteed'],
  [`/kubepods/burstable/pod${UID}`, 'Burstable'],
  [`/kubepods/besteffort/pod${UID}`, 'BestEffort'],
  [`kubepods-pod${unit}.slice`, 'Guaranteed'],
  [`kubepods-burstable-pod${unit}.slice`, 'Burstable'],
  [`kubepods-besteffort-pod${unit}.slice`, 'BestEffort'],
  // Not kubelet's, and no parent at all.
  ['/pods/web', undefined],
  ['web.slice', undefined],
  ['', undefined],
])('the QoS class of a pod in the cgroup %j is %s', (cgroupParent, expected) => {
  expect(qosOfCgroup({ cgroupParent })).toBe(expected);
});
