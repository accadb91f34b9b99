import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { Metadata } from '../../../src/core/grpc.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { ContainerState } from '../../../src/runtime/messages.ts';
import { ResizeHistory } from '../../../src/sandbox/history/history.ts';
import { overviewOf } from '../../../src/sandbox/report/overview.ts';
import type { PodDirectory, ViewedPod } from '../../../src/sandbox/report/pod-directory.ts';
import { podDirectory, viewsOf } from '../../../src/sandbox/report/pod-directory.ts';
import { readPodView } from '../../../src/sandbox/report/pod-view.ts';
import { MemoryVolumes } from '../../../src/tmpfs/memory-volumes.ts';
import { EMPTY_DIRS } from '../../../src/tmpfs/volumes.ts';
import { FakeRuntime, podConfig, RuntimeFailure } from '../../support/fake-runtime.ts';

const pod = (sandboxId: string): PodDescription => ({
  sandboxId,
  metadata: { uid: `uid-${sandboxId}`, name: sandboxId, namespace: 'default' },
  cgroupParent: '/kubepods/pod',
  annotations: {},
  cpuShares: undefined,
  overhead: { memoryBytes: 0, cpuQuotaMicroseconds: 0, cpuPeriodMicroseconds: 0 },
});

test('a pod whose containers the runtime does not describe does not hide the others', async () => {
  const details = 'no such container';
  const failure = Object.assign(new Error(details), { code: status.NOT_FOUND, details, metadata: new Metadata() });
  const registry = {
    pods: [pod('a'), pod('b')],
    pod: () => Promise.resolve(undefined),
    container: () => undefined,
    refresh: () => Promise.resolve(new Map()),
    refreshPods: () => Promise.resolve(),
    refreshContainers: () => Promise.resolve(new Map()),
  };
  const described: string[] = [];
  const pods = podDirectory({
    registry,
    volumes: new MemoryVolumes({ kubeletRoot: '/nonexistent' }),
    isReady: () => Promise.resolve(true),
    readPodView: (sandboxId) => {
      described.push(sandboxId);
      return Promise.reject(failure);
    },
  });
  const { pods: seen } = await overviewOf({ history: new ResizeHistory() }, pods);
  expect(described).toEqual(['a', 'b']);
  expect(seen.map(({ view }) => view)).toEqual(
    described.map(() => ({ reason: 'BACKEND_FAILED', message: 'the backend: NOT_FOUND: no such container' })),
  );
});

test('a backend that does not answer is called for one pod only, and all pods report the error', async () => {
  const details = 'no answer';
  const failure = Object.assign(new Error(details), { code: status.UNAVAILABLE, details, metadata: new Metadata() });
  const described: string[] = [];
  const pods = podDirectory({
    registry: {
      pods: [pod('a'), pod('b'), pod('c')],
      pod: () => Promise.resolve(undefined),
      container: () => undefined,
      refresh: () => Promise.resolve(new Map()),
      refreshPods: () => Promise.resolve(),
      refreshContainers: () => Promise.resolve(new Map()),
    },
    volumes: new MemoryVolumes({ kubeletRoot: '/nonexistent' }),
    isReady: () => Promise.resolve(true),
    readPodView: (sandboxId) => {
      described.push(sandboxId);
      return Promise.reject(failure);
    },
  });
  const { pods: seen } = await overviewOf({ history: new ResizeHistory() }, pods);
  expect(described).toEqual(['a']);
  expect(seen.map(({ pod: { name }, view }) => [name, 'reason' in view && view.reason])).toEqual(
    ['a', 'b', 'c'].map((name) => [name, 'BACKEND_UNAVAILABLE']),
  );
});

test('a pod is found by name while the status of another pod hangs in the runtime', async () => {
  const known = [pod('a')];
  const never = (): never => expect.fail('not asked');
  const pods = podDirectory({
    registry: {
      get pods() {
        return known;
      },
      pod: never,
      container: never,
      refresh: never,
      refreshContainers: never,
      refreshPods: () => {
        known.push(pod('b'));
        return new Promise(() => undefined);
      },
    },
    volumes: new MemoryVolumes({ kubeletRoot: '/nonexistent' }),
    isReady: () => Promise.resolve(true),
    readPodView: never,
  });
  expect(await pods.find({ by: 'name', namespace: 'default', name: 'b' })).toMatchObject({ sandboxId: 'b' });
});

describe('views of pods', () => {
  const { CONTAINER_CREATED: CREATED, CONTAINER_RUNNING: RUNNING, CONTAINER_EXITED: EXITED } = ContainerState;

  interface Container {
    readonly id: string;
    readonly pod: string;
    readonly name: string;
    state: number;
  }

  const podId = (index: number): string => `pod-${index}`;
  const cgroupOf = (pod: string): string => `/kubepods/${pod}`;

  /** The containers of the node, by id. Tests change them. */
  let containers: Map<string, Container>;
  let runtime: FakeRuntime;
  let pods: PodDirectory;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    containers = new Map();
    pods = podDirectory({
      registry: runtime.node.registry,
      volumes: runtime.node.volumes,
      isReady: () => Promise.resolve(true),
      readPodView: (sandboxId, listed, signal) =>
        readPodView(runtime.node, runtime.decreaseReclaimer, sandboxId, listed, signal),
    });
    const podsNow = (): string[] => [...new Set([...containers.values()].map(({ pod }) => pod))];
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: podsNow().map((id) => ({ id })) }));
    runtime.on('PodSandboxStatus', (request) => {
      const id = decode('PodSandboxStatusRequest', request).pod_sandbox_id;
      const metadata = { ...podConfig.metadata, name: id, uid: `uid-${id}` };
      const config = { ...podConfig, metadata, linux: { cgroup_parent: cgroupOf(id) } };
      return encode('PodSandboxStatusResponse', { status: { id }, info: { info: JSON.stringify({ config }) } });
    });
    runtime.on('ListContainers', (request) => {
      const filter = decode('ListContainersRequest', request).filter?.pod_sandbox_id ?? '';
      const wanted = [...containers.values()].filter(({ pod }) => filter === '' || pod === filter);
      return encode('ListContainersResponse', {
        containers: wanted.map(({ id, pod, name, state }) => ({ id, pod_sandbox_id: pod, metadata: { name }, state })),
      });
    });
    runtime.on('ContainerStatus', (request) => {
      const found = containers.get(decode('ContainerStatusRequest', request).container_id);
      if (found === undefined) throw new RuntimeFailure(status.NOT_FOUND, 'no such container');
      const { id, pod, name, state } = found;
      return encode('ContainerStatusResponse', {
        status: { id, metadata: { name }, state },
        info: { info: JSON.stringify({ sandboxID: pod, pid: 0 }) },
      });
    });
  });

  afterEach(() => runtime.close());

  const limits = { 'memory.max': '1048576', 'cpu.max': 'max 100000', 'cpu.weight': '39' };

  function addContainer(pod: string, name: string, state: number = RUNNING): Container {
    const container = { id: `${pod}-${name}`, pod, name, state };
    containers.set(container.id, container);
    runtime.writeCgroup(cgroupOf(pod), limits);
    if (state === RUNNING) runtime.writeCgroup(`${cgroupOf(pod)}/${container.id}`, limits);
    return container;
  }

  /** Adds pods of two running containers and one that has ended. */
  function addPods(count: number): void {
    for (let index = 0; index < count; index += 1) {
      const pod = podId(index);
      addContainer(pod, 'web');
      addContainer(pod, 'proxy');
      addContainer(pod, 'init', EXITED);
    }
  }

  /** Lists the pods, calls `meanwhile`, and describes them. Also returns the number of calls by method. */
  async function view(
    meanwhile: () => void = () => undefined,
  ): Promise<{ readonly viewed: readonly ViewedPod[]; readonly calls: Readonly<Record<string, number>> }> {
    // The pods are known after the first list.
    await pods.list();
    runtime.calls.length = 0;
    const listed = await pods.list();
    meanwhile();
    const viewed: ViewedPod[] = [];
    for await (const each of viewsOf(pods, listed)) viewed[each.at] = each;
    const calls: Record<string, number> = {};
    for (const method of runtime.calls) calls[method] = (calls[method] ?? 0) + 1;
    return { viewed, calls };
  }

  /** The containers of a view: the running ones, and the state of all. */
  const namesIn = ({ view: seen }: Pick<ViewedPod, 'view'>) =>
    'reason' in seen
      ? seen.reason
      : {
          running: seen.containers.map(({ name }) => name),
          declared: Object.fromEntries((seen.declared?.containers ?? []).map(({ name, state }) => [name, state])),
        };

  const settled = { running: ['proxy', 'web'], declared: { init: 'ended', proxy: 'running', web: 'running' } };

  describe('backend calls for pod views', () => {
    test.each([1, 10, 40])(
      'the views of %i pods need two lists of containers, and one status of each container',
      async (count) => {
        addPods(count);
        const { viewed, calls } = await view();
        expect(viewed.map(namesIn)).toEqual(Array.from({ length: count }, () => settled));
        expect(calls).toEqual({ ListPodSandbox: 1, ListContainers: 2, ContainerStatus: 3 * count });
      },
    );

    test('the views of all pods read the mount table once, and the view of a single pod reads it again', async () => {
      addPods(10);
      for (const { pod } of containers.values())
        mkdirSync(join(runtime.kubeletRoot, `pods/uid-${pod}${EMPTY_DIRS}`), { recursive: true });
      const survey = vi.spyOn(runtime.node.volumes, 'survey');
      const { viewed } = await view(() => survey.mockClear());
      expect(viewed.map(namesIn)).toEqual(Array.from({ length: 10 }, () => settled));
      expect(survey).toHaveBeenCalledTimes(1);
      await pods.describe(podId(1));
      expect(survey).toHaveBeenCalledTimes(2);
    });

    test('the view of a single pod needs one list of containers, filtered by its sandbox', async () => {
      addPods(3);
      await pods.list();
      const filters: (string | undefined)[] = [];
      runtime.wrapResponder('ListContainers', (request, before) => {
        filters.push(decode('ListContainersRequest', request).filter?.pod_sandbox_id);
        return before(request);
      });
      const pod = await pods.find({ by: 'sandbox_id', id: podId(1) });
      expect(namesIn({ view: await pods.describe(pod.sandboxId) })).toEqual(settled);
      expect(filters).toEqual([podId(1)]);
    });
  });

  describe('containers that change between list and view', () => {
    const learn = ({ id, pod, name }: Container): void =>
      runtime.node.registry.learnContainer({ containerId: id, sandboxId: pod, name });

    test.each<[string, () => void, object]>([
      [
        'are not lost if created and started',
        () => learn(addContainer(podId(1), 'agent')),
        {
          running: ['agent', 'proxy', 'web'],
          declared: { agent: 'running', init: 'ended', proxy: 'running', web: 'running' },
        },
      ],
      [
        'are not lost if created',
        () => learn(addContainer(podId(1), 'agent', CREATED)),
        {
          running: ['proxy', 'web'],
          declared: { agent: 'created', init: 'ended', proxy: 'running', web: 'running' },
        },
      ],
      [
        'are not reported if removed by a call through the shim',
        () => {
          containers.delete(`${podId(1)}-init`);
          runtime.node.registry.forgetContainer(`${podId(1)}-init`);
        },
        { running: ['proxy', 'web'], declared: { proxy: 'running', web: 'running' } },
      ],
      [
        'are not reported if removed without the shim',
        () => containers.delete(`${podId(1)}-web`),
        { running: ['proxy'], declared: { init: 'ended', proxy: 'running' } },
      ],
      [
        'are reported as ended if they end',
        () => (containers.get(`${podId(1)}-web`)!.state = EXITED),
        { running: ['proxy'], declared: { init: 'ended', proxy: 'running', web: 'ended' } },
      ],
    ])('containers that change after the list %s', async (_, change, expected) => {
      addPods(3);
      const { viewed, calls } = await view(change);
      expect(viewed.map(namesIn)).toEqual([settled, expected, settled]);
      // Only the containers of that pod are listed again, and all of them at the end.
      expect(calls).toMatchObject({ ListPodSandbox: 1, ListContainers: 3 });
    });

    test('views that were read stay valid if the runtime fails while new containers are read', async () => {
      addPods(3);
      await pods.list();
      const listed = await pods.list();
      for (let index = 0; index < 3; index += 1) addContainer(podId(index), 'agent');
      const viewed: ViewedPod[] = [];
      for await (const each of viewsOf(pods, listed)) {
        viewed[each.at] = each;
        // From the second description of the pods onwards.
        if (viewed.length === 3)
          runtime.on('ContainerStatus', () => {
            throw new RuntimeFailure(status.UNAVAILABLE, 'gone');
          });
      }
      expect(viewed.map(namesIn)).toEqual([settled, settled, settled]);
      expect(runtime.calls.filter((method) => method === 'ContainerStatus')).toHaveLength(10);
    });

    test('KEP-1287: a list of pods includes containers created without the shim, even in a pod that was already read', async () => {
      addPods(3);
      await pods.list();
      const listed = await pods.list();
      const viewed: ViewedPod[] = [];
      const seen: number[] = [];
      runtime.calls.length = 0;
      for await (const each of viewsOf(pods, listed)) {
        seen.push(each.at);
        viewed[each.at] = each;
        // At this time, the first pod has been described, and the second one is next.
        if (seen.length === 1) for (const index of [0, 1]) addContainer(podId(index), 'agent');
      }
      const withAgent = {
        running: ['agent', 'proxy', 'web'],
        declared: { agent: 'running', init: 'ended', proxy: 'running', web: 'running' },
      };
      expect(viewed.map(namesIn)).toEqual([withAgent, withAgent, settled]);
      expect(seen).toEqual([0, 1, 2, 0, 1]);
      expect(runtime.calls.filter((call) => call === 'ListContainers')).toHaveLength(1);
    });

    test('the views stay as read if the backend cannot list the containers at the end', async () => {
      addPods(2);
      const { viewed } = await view(() => runtime.on('ListContainers'));
      expect(viewed.map(namesIn)).toEqual([settled, settled]);
    });

    test('a container that starts after the list is reported as running', async () => {
      addPods(2);
      const agent = addContainer(podId(0), 'agent', CREATED);
      const { viewed, calls } = await view(() => {
        agent.state = RUNNING;
        runtime.writeCgroup(`${cgroupOf(agent.pod)}/${agent.id}`, limits);
      });
      expect(namesIn(viewed[0]!)).toEqual({
        running: ['agent', 'proxy', 'web'],
        declared: { agent: 'running', init: 'ended', proxy: 'running', web: 'running' },
      });
      expect(calls).toMatchObject({ ListContainers: 3 });
    });

    test('a pod that is removed after the list is reported as unknown, and the others are described', async () => {
      addPods(3);
      const { viewed, calls } = await view(() => {
        for (const name of ['web', 'proxy', 'init']) containers.delete(`${podId(1)}-${name}`);
        runtime.node.registry.forgetPod(podId(1));
        runtime.on('PodSandboxStatus', () => {
          throw new RuntimeFailure(status.NOT_FOUND, 'no such sandbox');
        });
      });
      expect(viewed.map(namesIn)).toEqual([settled, 'UNKNOWN_POD', settled]);
      expect(calls).toMatchObject({ ListContainers: 2, PodSandboxStatus: 1 });
    });
  });

  test('KEP-1287: a list of pods ends with its client: the call in progress is ended and no further pod is read', async () => {
    addPods(3);
    const gone = new AbortController();
    const asked: string[] = [];
    runtime.wrapResponder('ContainerStatus', (request, before) => {
      asked.push(decode('ContainerStatusRequest', request).container_id);
      if (asked.length < 4) return before(request);
      gone.abort(new Error('gone'));
      return new Promise(() => undefined);
    });
    const viewed: string[] = [];
    const read = async (): Promise<void> => {
      for await (const { pod } of viewsOf(pods, await pods.list(), gone.signal)) viewed.push(pod.sandboxId);
    };
    // The deadline of the call, after 10 s, never comes.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    await expect(read()).rejects.toThrow('gone');
    expect(viewed).toEqual([podId(0)]);
    expect(asked).toHaveLength(4);
  });

  describe('errors of pod views', () => {
    test('an error of one pod does not hide the other pods, and needs no further list', async () => {
      addPods(3);
      const { viewed, calls } = await view(() => runtime.removeCgroup(cgroupOf(podId(1))));
      expect(viewed.map(namesIn)).toEqual([settled, 'CGROUP_UNAVAILABLE', settled]);
      expect(calls).toEqual({ ListPodSandbox: 1, ListContainers: 2, ContainerStatus: 6 });
    });

    test('a backend error for one container does not hide the other pods', async () => {
      addPods(3);
      const { viewed } = await view(() =>
        runtime.wrapResponder('ContainerStatus', (request, before) => {
          if (decode('ContainerStatusRequest', request).container_id !== `${podId(1)}-web`) return before(request);
          throw new RuntimeFailure(status.INTERNAL, 'no spec');
        }),
      );
      expect(viewed.map(namesIn)).toEqual([settled, 'BACKEND_FAILED', settled]);
    });

    test('a backend that does not answer ends the calls, and all later pods report the error', async () => {
      addPods(4);
      const { viewed, calls } = await view(() =>
        runtime.wrapResponder('ContainerStatus', (request, before) => {
          if (decode('ContainerStatusRequest', request).container_id !== `${podId(1)}-web`) return before(request);
          throw new RuntimeFailure(status.UNAVAILABLE, 'no answer');
        }),
      );
      const gone = 'BACKEND_UNAVAILABLE';
      expect(viewed.map(namesIn)).toEqual([settled, gone, gone, gone]);
      expect(calls).toEqual({ ListPodSandbox: 1, ListContainers: 1, ContainerStatus: 4 });
    });

    test('an error of the list of containers is an error of the list of pods', async () => {
      addPods(2);
      runtime.on('ListContainers');
      await expect(pods.list()).rejects.toMatchObject({ reason: 'BACKEND_UNAVAILABLE' });
      expect(runtime.calls.filter((call) => call === 'ContainerStatus')).toEqual([]);
    });
  });
});
