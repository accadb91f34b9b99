import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { ContainerState } from '../../../src/runtime/messages.ts';
import { assertSandboxRuns } from '../../../src/sandbox/operations/pod-containers.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';
import { learnContainer, learnPod } from '../../../src/server/handlers/create-and-remove.ts';
import type { FakeRuntime } from '../../support/fake-runtime.ts';
import { containerId, podConfig, RuntimeFailure, SANDBOX } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { ContainerUpdates, desired, ResizedPod } from '../../support/resize/resized-pod.ts';

let web: ResizedPod;
let runtime: FakeRuntime;

afterEach(() => web.close());

describe('state of the sandbox', () => {
  beforeEach(async () => {
    web = await ResizedPod.start();
    ({ runtime } = web);
  });

  const { CONTAINER_CREATED: CREATED, CONTAINER_RUNNING: RUNNING, CONTAINER_EXITED: EXITED } = ContainerState;
  /** Returns the answer for a sandbox and containers in these states. */
  async function check(sandbox: number, ...containers: number[]): Promise<unknown> {
    web.make(String(100 * MiB), [100 * MiB]);
    const pod = (await runtime.node.registry.pod(SANDBOX))!;
    runtime.on('PodSandboxStatus', () =>
      encode('PodSandboxStatusResponse', { status: { id: SANDBOX, state: sandbox } }),
    );
    return assertSandboxRuns(
      runtime.node.backend,
      pod,
      containers.map((state) => ({ state })),
    );
  }
  const [READY, NOTREADY] = [0, 1];

  test.each([
    ['ready', READY, [EXITED, CREATED]],
    ['ended, as far as its status shows, while a container runs', NOTREADY, [EXITED, RUNNING]],
    ['ready without containers', READY, []],
  ])('accepts a sandbox that is %s', async (_, sandbox, containers) => {
    await expect(check(sandbox, ...containers)).resolves.toBeUndefined();
  });

  test.each([[[EXITED, EXITED]], [[CREATED]], [[]]])(
    'a sandbox that has ended, with containers in the states %j, is rejected',
    async (containers) => {
      await expect(check(NOTREADY, ...containers)).rejects.toMatchObject({
        code: 9,
        reason: 'SANDBOX_ENDED',
        message: expect.stringContaining(`pod default/web: its sandbox ${SANDBOX} has ended`) as string,
        context: { pod: 'uid-1', found: SANDBOX },
      });
    },
  );

  test('rejects a sandbox that was removed after the pod lookup with UNKNOWN_POD', async () => {
    web.make(String(100 * MiB), [100 * MiB]);
    const pod = (await runtime.node.registry.pod(SANDBOX))!;
    runtime.on('PodSandboxStatus', () => {
      throw new RuntimeFailure(status.NOT_FOUND, 'an error occurred when try to find sandbox: not found');
    });
    await expect(assertSandboxRuns(runtime.node.backend, pod, [])).rejects.toMatchObject({
      code: 5,
      reason: 'UNKNOWN_POD',
      message: `pod default/web: its sandbox ${SANDBOX} was removed`,
    });
    runtime.on('PodSandboxStatus', () => {
      throw new RuntimeFailure(status.UNAVAILABLE, 'no answer');
    });
    await expect(assertSandboxRuns(runtime.node.backend, pod, [])).rejects.not.toMatchObject({ reason: 'UNKNOWN_POD' });
  });

  describe('a request that may be deferred', () => {
    const ended = 'e'.repeat(64);
    let stored: number;
    const resize = (
      containers: number[],
      state: number,
      waits: boolean,
      pid = 0,
      others: Parameters<typeof desired>[0] = {},
      exitCode = 0,
    ): Promise<object> => {
      web.make(String(300 * MiB), containers);
      runtime.node.registry.learnContainer({ containerId: ended, sandboxId: SANDBOX, name: 'web' });
      const resources = { linux: { memory_limit_in_bytes: BigInt(50 * MiB) } };
      runtime.describeContainer(ended, { metadata: { name: 'web' }, state, resources, exit_code: exitCode }, pid);
      stored = 0;
      runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
        if (runtime.decodeUpdate(request).container_id !== ended) return obey(request);
        stored += 1;
        return Buffer.alloc(0);
      });
      return web.resize(desired({ web: { memory: mi(80) }, ...others }), { waits });
    };

    test.each([
      ['has ended, and no other runs', [], EXITED],
      ['has ended, and another one runs', [100 * MiB], EXITED],
      ['is about to start', [100 * MiB], CREATED],
      ['is ending: it runs, but its process is gone', [100 * MiB], RUNNING],
    ])(
      'a resize waits for the next start if its container %s, because stored values have no effect before that',
      async (_, others, state) => {
        await expect(resize(others, state, true)).rejects.toMatchObject({
          code: status.FAILED_PRECONDITION,
          reason: 'NO_RUNNING_CONTAINER',
          message: 'pod default/web: web does not run: the resize waits for the next start',
          context: { pod: 'uid-1' },
        });
        expect(stored).toBe(0);
      },
    );

    test.each([true, false])(
      'a request changes nothing while the start of its container is in progress (waits: %s)',
      async (waits) => {
        web.make(String(300 * MiB), [100 * MiB]);
        runtime.describeContainer(containerId(0), { metadata: { name: 'c0' }, state: CREATED });
        await expect(web.resize(desired({ c0: { memory: mi(80) } }), { waits })).rejects.toMatchObject({
          reason: 'NO_RUNNING_CONTAINER',
          message: 'pod default/web: c0 is being started: repeat the request when the start has ended',
        });
        expect(runtime.limitOf(0)).toBe(100 * MiB);
      },
    );

    test('a dry run reports that the request waits', async () => {
      await expect(resize([], EXITED, true)).rejects.toMatchObject({ reason: 'NO_RUNNING_CONTAINER' });
      const trial = (waits: boolean) => web.resize(desired({ web: { memory: mi(80) } }), { waits, dryRun: true });
      await expect(trial(true)).rejects.toMatchObject({ reason: 'NO_RUNNING_CONTAINER' });
      expect((await trial(false)).steps).toHaveLength(1);
      expect(stored).toBe(0);
    });

    test('a request does not wait for a running container without a cgroup, such as one of Kata Containers', async () => {
      mkdirSync(join(runtime.procRoot, '77'), { recursive: true });
      await expect(resize([100 * MiB], RUNNING, true, 77)).rejects.toMatchObject({ reason: 'CGROUP_UNAVAILABLE' });
    });

    test.each([CREATED, EXITED])(
      'a request that may not be deferred is stored for a container in state %i',
      async (state) => {
        await resize([100 * MiB], state, false);
        expect(stored).toBe(1);
      },
    );

    test('a request with an unknown container is rejected before it waits for another container', async () => {
      await expect(resize([], EXITED, true, 0, { wbe: { memory: mi(80) } })).rejects.toMatchObject({
        reason: 'UNKNOWN_CONTAINER',
      });
    });

    test('a request waits if its container ends during the attempt, even if the update fails because of that', async () => {
      web.make(String(300 * MiB), [100 * MiB]);
      for (const ends of [
        (obey: () => Buffer | Promise<Buffer>) => obey(),
        () => {
          throw new RuntimeFailure(status.INTERNAL, 'no task');
        },
      ]) {
        runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
          runtime.describeContainer(containerId(0), { metadata: { name: 'c0' }, state: EXITED });
          return ends(() => obey(request));
        });
        await expect(web.resize(desired({ c0: { memory: mi(80) } }), { waits: true })).rejects.toMatchObject({
          reason: 'NO_RUNNING_CONTAINER',
        });
      }
    });

    test('a request without containers does not wait for a container', async () => {
      web.make(String(300 * MiB), []);
      runtime.describeContainer(ended, { metadata: { name: 'web' }, state: EXITED });
      await web.resize(desired({}, { pod: { memory: mi(200) } }), { waits: true });
      expect(runtime.read('memory.max')).toBe(String(200 * MiB));
    });

    test('a request with an unknown container is rejected as such even in a sandbox that has ended', async () => {
      await runtime.node.registry.pod(SANDBOX);
      runtime.on('PodSandboxStatus', () => encode('PodSandboxStatusResponse', { status: { id: SANDBOX, state: 1 } }));
      await expect(resize([], EXITED, true)).rejects.toMatchObject({ reason: 'SANDBOX_ENDED' });
      await expect(resize([], EXITED, true, 0, { wbe: { memory: mi(80) } })).rejects.toMatchObject({
        reason: 'UNKNOWN_CONTAINER',
      });
    });

    test('a request for a pod that has ended for good is rejected, and does not wait for another sandbox', async () => {
      await runtime.node.registry.pod(SANDBOX);
      runtime.on('PodSandboxStatus', () => encode('PodSandboxStatusResponse', { status: { id: SANDBOX, state: 1 } }));
      const resizePolicy = { cpu: 'NotRequired', memory: 'NotRequired' } as const;
      const container = { name: 'c0', kind: 'app', limits: {}, requests: {}, resizePolicy } as const;
      const none = { limits: {}, requests: {}, qosClass: undefined, priority: 0, volumes: new Map() };
      for (const containers of [[container], [container, { ...container, name: 'web' }]]) {
        runtime.specs.set('uid-1', { containers, ...none, hasEnded: true });
        await expect(resize([100 * MiB], EXITED, true)).rejects.toMatchObject({
          ...{ code: 9, reason: 'POD_ENDED' },
          message: expect.stringContaining('none of its containers starts again') as string,
        });
      }
      runtime.specs.set('uid-1', { containers: [container, { ...container, name: 'web' }], ...none });
      await expect(resize([], EXITED, true)).rejects.toMatchObject({ reason: 'SANDBOX_ENDED' });
    });

    describe('a container that never runs again', () => {
      const declares = (restartPolicy: 'Always' | 'OnFailure' | 'Never' | undefined): void => {
        const amounts = {
          limits: {},
          requests: {},
          resizePolicy: { cpu: 'NotRequired', memory: 'NotRequired' },
        } as const;
        const containers = ['c0', 'web'].map((name) => ({ name, kind: 'app', ...amounts, restartPolicy }) as const);
        const none = { limits: {}, requests: {}, qosClass: undefined, priority: 0, volumes: new Map() };
        runtime.specs.set('uid-1', { containers, ...none } as never);
      };
      const policies = ['Always', 'OnFailure', 'Never', undefined] as const;

      test.each(policies.flatMap((policy) => [0, 1].map((exitCode) => [policy, exitCode] as const)))(
        'KEP-1287: with the spec, a request with defer waits for an ended container only if it may run again: restartPolicy %s, exit code %i',
        async (policy, exitCode) => {
          declares(policy);
          const isOver = policy === 'Never' || (policy === 'OnFailure' && exitCode === 0);
          const resized = resize([100 * MiB], EXITED, true, 0, { c0: { memory: mi(90) } }, exitCode);
          if (isOver) {
            await resized;
            expect([stored, runtime.limitOf(0)]).toEqual([1, 90 * MiB]);
          } else await expect(resized).rejects.toMatchObject({ reason: 'NO_RUNNING_CONTAINER' });
        },
      );

      test('a request waits for a container that is about to start, even with restartPolicy Never', async () => {
        declares('Never');
        await expect(resize([100 * MiB], CREATED, true)).rejects.toMatchObject({ reason: 'NO_RUNNING_CONTAINER' });
      });
    });

    describe('a declared container that is not created yet', () => {
      const amounts = {
        limits: {},
        requests: {},
        resizePolicy: { cpu: 'NotRequired', memory: 'NotRequired' },
      } as const;
      /** The spec of a pod with an init container, and with app and web. */
      const declareSpec = (): void => {
        const containers = [
          { name: 'c0', kind: 'init', ...amounts },
          { name: 'setup', kind: 'init', ...amounts },
          ...['app', 'web'].map((name) => ({ name, kind: 'app', ...amounts }) as const),
        ] as const;
        runtime.specs.set('uid-1', {
          ...{ containers, limits: {}, requests: {}, qosClass: undefined, priority: 0, volumes: new Map() },
        });
      };
      const declareState = (): void => {
        const containers = new Map(['app', 'web'].map((name) => [name, {}]));
        runtime.allocated.set('uid-1', { containers, pod: undefined, isComplete: true });
      };
      const request = (name: string, waits: boolean): Promise<object> =>
        web.resize(desired({ [name]: { memory: mi(80) } }), { waits });

      test.each([
        ['the spec', declareSpec],
        ["kubelet's state", declareState],
      ])(
        'a request waits for a declared container while an init container runs, according to %s',
        async (_, declare) => {
          web.make(String(300 * MiB), [100 * MiB]);
          declare();
          await expect(request('app', true)).rejects.toMatchObject({
            code: status.FAILED_PRECONDITION,
            reason: 'NO_RUNNING_CONTAINER',
            message: 'pod default/web: app has not been created yet: the resize waits for its start',
          });
          await expect(request('app', false)).rejects.toMatchObject({
            reason: 'NO_RUNNING_CONTAINER',
            message: 'pod default/web: app has not been created yet',
          });
          expect(runtime.calls).not.toContain('UpdateContainerResources');
        },
      );

      test('a request that waits for a declared container reports the changes of that container', async () => {
        web.make(String(300 * MiB), [100 * MiB]);
        declareSpec();
        let changes: unknown;
        const onChanges = (reported: unknown): void => void (changes = reported);
        const memoryRequests = { containers: { app: mi(40) } };
        const target = desired({ app: { memory: mi(80) } }, { memoryRequests });
        await expect(web.resize(target, { waits: true, onChanges })).rejects.toMatchObject({
          reason: 'NO_RUNNING_CONTAINER',
        });
        expect(changes).toEqual([
          { value: 'container app memory', from: '', to: '80Mi' },
          { value: 'container app memory request', from: '', to: '40Mi' },
        ]);
        expect(runtime.node.outcomes.of(SANDBOX).desired.containers).toEqual(new Map());
      });

      test.each([
        ['the spec', 'spec', declareSpec],
        ["kubelet's state", 'kubelet-state', declareState],
      ])(
        'a request with a misspelled container name is rejected at once, even without containers, according to %s',
        async (_, source, declare) => {
          const unknown = {
            reason: 'UNKNOWN_CONTAINER',
            message: expect.stringMatching(/has no container ap.*it has (app|.*, app), .*web/) as string,
            context: { source },
          };
          declare();
          for (const containers of [[], [100 * MiB]]) {
            web.make(String(300 * MiB), containers);
            await expect(request('ap', true)).rejects.toMatchObject(unknown);
            const memoryRequests = { containers: { ap: mi(10) } };
            await expect(web.resize(desired({}, { memoryRequests }), { waits: true })).rejects.toMatchObject(unknown);
            const volumes = new Map([
              ['cache', { kind: 'container-share', container: 'ap', hundredths: 5000 } as const],
            ]);
            vi.spyOn(runtime.node.volumes, 'ofPod').mockReturnValue([
              { podUid: 'uid-1', name: 'cache', device: '0:1', mountPoint: '/none' },
            ]);
            vi.spyOn(runtime.node.volumes, 'measure').mockReturnValue({ size: mi(10), used: 0 } as never);
            await expect(web.resize(desired({}, { volumes }), { waits: true })).rejects.toMatchObject(unknown);
            vi.restoreAllMocks();
          }
        },
      );

      test('a request with a misspelled container name is rejected at once, even in a sandbox that has ended', async () => {
        web.make(String(300 * MiB), []);
        declareSpec();
        await runtime.node.registry.pod(SANDBOX);
        runtime.on('PodSandboxStatus', () => encode('PodSandboxStatusResponse', { status: { id: SANDBOX, state: 1 } }));
        await expect(request('ap', true)).rejects.toMatchObject({ reason: 'UNKNOWN_CONTAINER' });
        await expect(request('app', true)).rejects.toMatchObject({ reason: 'SANDBOX_ENDED' });
      });

      test('a request for an init container that is not created yet is rejected', async () => {
        web.make(String(300 * MiB), [100 * MiB]);
        declareSpec();
        await expect(request('setup', true)).rejects.toMatchObject({ reason: 'INIT_CONTAINER_NOT_RESIZABLE' });
      });
    });

    test('a request is applied although the runtime does not report afterwards whether its container still runs', async () => {
      web.make(String(300 * MiB), [100 * MiB]);
      runtime.wrapResponder('UpdateContainerResources', async (request, obey) => {
        const answer = await obey(request);
        runtime.on('ContainerStatus', () => {
          throw new RuntimeFailure(status.UNAVAILABLE, 'restarting');
        });
        return answer;
      });
      await web.resize(desired({ c0: { memory: mi(80) } }), { waits: true });
      expect(runtime.limitOf(0)).toBe(80 * MiB);
    });
  });
});

describe('hanging updates', () => {
  let lists: number;

  beforeEach(async () => {
    web = await ResizedPod.start();
    ({ runtime } = web);
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
    lists = 0;
    // containerd reads the status of every container of the node before it filters.
    runtime.on('ListContainers', () => {
      lists += 1;
      return new Promise(() => undefined);
    });
  });

  const complaints = (): unknown[] => runtime.warnings.filter(({ error }) => error !== undefined);

  describe('hanging update of another pod, which also blocks ListContainers', () => {
    test('an update of another pod that hangs in the runtime does not block UpdateContainerResources', async () => {
      await new ContainerUpdates(runtime).update(120 * MiB);
      expect([...web.limits(), runtime.read('memory.max')]).toEqual([120 * MiB, 200 * MiB, String(320 * MiB)]);
    });

    test('an update of another pod that hangs in the runtime does not block UpdatePodSandboxResources', async () => {
      const name = 'UpdatePodSandboxResourcesRequest';
      const resources = { memory_limit_in_bytes: BigInt(400 * MiB) };
      const request = decode(name, encode(name, { pod_sandbox_id: SANDBOX, resources }));
      await updatePod(runtime.node, request, () => Promise.resolve(Buffer.alloc(0)));
      expect(runtime.read('memory.max')).toBe(String(400 * MiB));
    });

    test('an update of another pod that hangs does not block ResizePod, and the next ResizePod does not wait for a list', async () => {
      await web.resize(desired({ c0: { memory: mi(120) } }));
      await web.resize(desired({ c0: { memory: mi(130) } }));
      expect([...web.limits(), lists]).toEqual([130 * MiB, 200 * MiB, 1]);
    });

    test('a hanging update does not block ResizePod of a container that was created without the shim: its cgroup has its id', async () => {
      runtime.node.registry.forgetContainer(containerId(1));
      await web.resize(desired({ c1: { memory: mi(220) } }));
      expect(web.limits()).toEqual([100 * MiB, 220 * MiB]);
    });

    test('an update of another pod that hangs in the runtime does not block the response of CreateContainer', async () => {
      const resources = { memory_limit_in_bytes: BigInt(150 * MiB), cpu_quota: 10_000n, cpu_period: 100_000n };
      const config = { metadata: { name: 'c0' }, linux: { resources } };
      const request = encode('CreateContainerRequest', { pod_sandbox_id: SANDBOX, config });
      const response = encode('CreateContainerResponse', { container_id: '9'.repeat(64) });
      const answered = learnContainer(runtime.node)(
        { path: '', request, response, backendMs: 0 },
        { fields: {}, backendMs: 0 },
      );
      expect(await answered).toBeUndefined();
      expect([runtime.failOpens, complaints()]).toEqual([[], []]);
    });

    test('an update of another pod that hangs in the runtime does not block the response of RunPodSandbox', async () => {
      const request = encode('RunPodSandboxRequest', { config: podConfig as never });
      const response = encode('RunPodSandboxResponse', { pod_sandbox_id: SANDBOX });
      const answered = learnPod(runtime.node)(
        { path: '', request, response, backendMs: 0 },
        { fields: {}, backendMs: 0 },
      );
      expect(await answered).toBeUndefined();
      expect([runtime.failOpens, complaints()]).toEqual([[], []]);
    });
  });

  test('a hanging update of another container of the pod, without a status, does not block UpdateContainerResources', async () => {
    runtime.wrapResponder('ContainerStatus', (request, before) =>
      decode('ContainerStatusRequest', request).container_id === containerId(1)
        ? Promise.reject(new RuntimeFailure(status.DEADLINE_EXCEEDED, 'context deadline exceeded'))
        : before(request),
    );
    await new ContainerUpdates(runtime).update(120 * MiB);
    expect([...web.limits(), runtime.read('memory.max')]).toEqual([120 * MiB, 200 * MiB, String(320 * MiB)]);
  });

  test("rejects a resize, with the container's name, if it needs the status of a container whose update hangs", async () => {
    runtime.wrapResponder('ContainerStatus', (request, before) =>
      decode('ContainerStatusRequest', request).container_id === containerId(1)
        ? Promise.reject(new RuntimeFailure(status.DEADLINE_EXCEEDED, 'context deadline exceeded'))
        : before(request),
    );
    await expect(web.resize(desired({ c1: { memory: mi(220) } }))).rejects.toThrow(
      /ContainerStatus of container c1 of pod default\/web .*an update of the container may hang in the runtime/,
    );
    expect(web.limits()).toEqual([100 * MiB, 200 * MiB]);
  });
});
