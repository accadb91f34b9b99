import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { CgroupTree } from '../../../src/cgroups/tree.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { raisePodForRestart } from '../../../src/sandbox/operations/raise-pod-limit.ts';
import type { DeclaredVolume } from '../../../src/sandbox/pods/declared-pod.ts';
import type { SpecContainer } from '../../../src/sandbox/pods/pod-spec.ts';
import { containerId, containerUpdate, FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

let runtime: FakeRuntime;

afterEach(() => runtime.close());

describe('kubernetes 138760: restart of a container with larger limits than fit into the pod limit', () => {
  const FORMER = containerId(0);
  const NEW = 'f'.repeat(64);

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
  });

  const stored = (memory: number) => ({
    memory_limit_in_bytes: BigInt(memory),
    cpu_quota: 10_000n,
    cpu_period: 100_000n,
  });

  /** Ends the former container, and adds another one with its name, after others of that name. */
  function restart(
    former: number,
    podLimit: string,
    others: readonly number[] = [],
    between: readonly string[] = [],
    exitCode = 1,
  ): void {
    runtime.makePod(podLimit, [former, ...others]);
    runtime.on('ContainerStatus', () =>
      encode('ContainerStatusResponse', {
        status: {
          ...{ id: FORMER, metadata: { name: 'web' }, state: 2, exit_code: exitCode },
          resources: { linux: stored(former) },
        },
        info: { info: JSON.stringify({ sandboxID: SANDBOX, pid: 0 }) },
      }),
    );
    runtime.removeCgroup(`/kubepods/pod1/${FORMER}`);
    for (const containerId of [FORMER, ...between, NEW])
      runtime.node.registry.learnContainer({ containerId, sandboxId: SANDBOX, name: 'web' });
  }

  const made = (memory: number) =>
    raisePodForRestart(runtime.node, SANDBOX, NEW, 'web', containerUpdate(NEW, stored(memory)).linux);

  test('KEP-1287: a tight pod limit is raised by the difference when a container restarts with larger limits', async () => {
    restart(100 * MiB, String(300 * MiB), [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
    expect(runtime.node.history.ofPod(SANDBOX)).toMatchObject([
      {
        requester: { kind: 'shim' },
        state: 'Completed',
        changes: [{ value: 'pod memory', from: '300Mi', to: '350Mi' }],
      },
    ]);
  });

  test('a failure to raise the pod limit is recorded in the history, and the container starts', async () => {
    restart(100 * MiB, String(300 * MiB), [200 * MiB]);
    const file = vi.spyOn(CgroupTree.prototype, 'write').mockRejectedValue(new Error('EROFS'));
    await made(150 * MiB);
    file.mockRestore();
    expect(runtime.node.history.ofPod(SANDBOX)).toMatchObject([
      { requester: { kind: 'shim' }, state: 'Infeasible', message: expect.stringContaining('EROFS') as string },
    ]);
  });

  test('a restarted container raises a loose pod limit only as far as the sum exceeds it', async () => {
    restart(100 * MiB, String(400 * MiB), [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(400 * MiB));
    await made(250 * MiB);
    expect(runtime.read('memory.max')).toBe(String(450 * MiB));
  });

  test('a restarted container does not change a pod limit below the sum or an unlimited pod', async () => {
    restart(100 * MiB, String(200 * MiB), [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(200 * MiB));
    restart(100 * MiB, 'max', [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe('max');
  });

  test('raises the pod limit for a restarted container that had ended with 0 if another one was raised into its share', async () => {
    restart(100 * MiB, String(200 * MiB), [180 * MiB], [], 0);
    await made(100 * MiB);
    expect(runtime.read('memory.max')).toBe(String(280 * MiB));
  });

  test('does not change the pod limit for a restarted container that had ended with 0 and fits', async () => {
    restart(100 * MiB, String(300 * MiB), [180 * MiB], [], 0);
    await made(100 * MiB);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('does not remove the pod limit for a restarted container without limits that had ended with 0', async () => {
    restart(-1, String(200 * MiB), [180 * MiB], [], 0);
    await made(-1);
    expect(runtime.read('memory.max')).toBe(String(200 * MiB));
  });

  test.each([
    ['stays where kubelet has written it for the restart', 200],
    ['is raised where kubelet has not', 96],
  ])('A9: with an ended init container, the pod limit for a restarted container %s', async (_, podLimit) => {
    restart(96 * MiB, String(podLimit * MiB));
    const setup = { id: 'e'.repeat(64), metadata: { name: 'setup' }, state: 2, created_at: 1n };
    const web = { metadata: { name: 'web' } };
    runtime.describeContainer(setup.id, { ...setup, exit_code: 0, resources: { linux: stored(64 * MiB) } });
    const former = { ...web, id: FORMER, state: 2, created_at: 2n };
    const containers = [setup, former, { ...web, id: NEW, state: 0, created_at: 3n }];
    runtime.on('ListContainers', () => encode('ListContainersResponse', { containers }));
    const entry = (limit: number): PodEntry => {
      const limits = new Map([
        ['setup', { memory: mi(64) }],
        ['web', { memory: mi(limit) }],
      ]);
      return { containers: limits, pod: undefined, isComplete: true };
    };
    runtime.allocated.set('uid-1', entry(200));
    runtime.actuated.set('uid-1', entry(96));
    await made(200 * MiB);
    expect(runtime.read('memory.max')).toBe(String(200 * MiB));
  });

  test('the limits are not compared with those of a container that was created and never started', async () => {
    const forgotten = 'e'.repeat(64);
    restart(100 * MiB, String(300 * MiB), [200 * MiB], [forgotten]);
    runtime.describeContainer(forgotten, {
      metadata: { name: 'web' },
      state: 0,
      resources: { linux: stored(150 * MiB) },
    });
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
  });

  test('the pod limit is not lowered when the container restarts with smaller limits', async () => {
    restart(100 * MiB, String(300 * MiB), [200 * MiB]);
    await made(50 * MiB);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    expect(runtime.node.history.ofPod(SANDBOX)).toEqual([]);
  });
});

describe('containers of a replaced sandbox', () => {
  const NEXT = 'b'.repeat(64);
  const POD = '/kubepods/pod1';
  /** Containers of the earlier sandbox and of the next one have ids that end with 0 and 1. */
  const idOf = (name: string, sandbox: string): string =>
    `${Buffer.from(name).toString('hex')}${sandbox === NEXT ? 1 : 0}`.padStart(64, 'e');
  const linux = (mebibytes: number) => ({
    memory_limit_in_bytes: BigInt(mebibytes * MiB),
    cpu_quota: BigInt(mebibytes * 100),
    cpu_period: 100_000n,
  });

  interface Listed {
    readonly name: string;
    readonly sandboxId: string;
    readonly state: number;
  }
  let listed: Listed[];

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    listed = [];
    runtime.on('ListContainers', (request) => {
      const { filter } = decode('ListContainersRequest', request);
      const all = listed.map(({ name, sandboxId, state }, at) => ({
        ...{ id: idOf(name, sandboxId), metadata: { name }, state, created_at: BigInt(at), pod_sandbox_id: sandboxId },
      }));
      const containers = all.filter(({ pod_sandbox_id: id }) => id === filter?.pod_sandbox_id);
      return encode('ListContainersResponse', { containers });
    });
  });

  /** Adds a container with these limits, in MiB and in thousandths of a CPU, which the runtime stores. */
  function add(name: string, sandboxId: string, mebibytes: number, state: number, exitCode = 0): void {
    listed = [...listed.filter((one) => one.name !== name || one.sandboxId !== sandboxId), { name, sandboxId, state }];
    const id = idOf(name, sandboxId);
    const status = { metadata: { name }, state, exit_code: exitCode, resources: { linux: linux(mebibytes) } };
    runtime.describeContainer(id, status);
    runtime.node.registry.learnContainer({ containerId: id, sandboxId, name });
  }

  /** A pod whose first sandbox has ended with these containers. kubelet has created the next one. */
  async function replaced(
    podLimit: number,
    containers: Readonly<Record<string, number>>,
    exitCodes: readonly number[] = [],
  ) {
    runtime.makePod(String(podLimit * MiB), []);
    runtime.writeFile(POD, 'cpu.max', `${podLimit * 100} 100000`);
    const { registry } = runtime.node;
    const pod = (await registry.pod(SANDBOX))!;
    for (const [at, [name, limit]] of Object.entries(containers).entries())
      add(name, SANDBOX, limit, 2, exitCodes[at] ?? 137);
    registry.learnPod({ ...pod, sandboxId: NEXT, metadata: { ...pod.metadata, attempt: 1 } });
  }

  /** kubelet creates and starts a container in the next sandbox. Returns its pod limits in MiB and thousandths. */
  async function start(name: string, limit: number): Promise<number[]> {
    add(name, NEXT, limit, 0);
    await raisePodForRestart(
      runtime.node,
      NEXT,
      idOf(name, NEXT),
      name,
      containerUpdate(idOf(name, NEXT), linux(limit)).linux,
    );
    const limits = { 'memory.max': String(limit * MiB), 'cpu.max': `${limit * 100} 100000`, 'cpu.weight': '4' };
    runtime.writeCgroup(`${POD}/${idOf(name, NEXT)}`, limits);
    add(name, NEXT, limit, 1);
    return [Number(runtime.read('memory.max')) / MiB, Number(runtime.read('cpu.max').split(' ')[0]) / 100];
  }

  const app = (name: string, limit: number): SpecContainer => ({
    name,
    kind: 'app',
    limits: { memory: mi(limit), milliCpu: limit },
    requests: {},
    resizePolicy: { cpu: 'NotRequired', memory: 'NotRequired' },
  });

  describe('containers of a replaced sandbox that start with higher limits', () => {
    test('raises the pod limit for the only container when it starts with a higher limit in the next sandbox', async () => {
      await replaced(100, { web: 100 });
      expect(await start('web', 200)).toEqual([200, 200]);
      expect(runtime.node.history.ofPod(NEXT)).toMatchObject([{ requester: { kind: 'shim' }, state: 'Completed' }]);
    });

    test('raises the pod limit for each container as kubelet creates it in the next sandbox', async () => {
      await replaced(200, { web: 100, proxy: 100 });
      expect(await start('web', 200)).toEqual([300, 300]);
      expect(await start('proxy', 200)).toEqual([400, 400]);
    });

    test('keeps a pod limit that kubelet itself has set for the next sandbox', async () => {
      await replaced(300, { web: 200, proxy: 100 });
      expect(await start('web', 200)).toEqual([300, 300]);
      expect(await start('proxy', 100)).toEqual([300, 300]);
    });

    test('keeps a pod limit below the sum, which was set on purpose', async () => {
      await replaced(150, { web: 100, proxy: 100 });
      expect(await start('web', 200)).toEqual([150, 150]);
      expect(await start('proxy', 200)).toEqual([150, 150]);
    });

    test('counts an init container that ended with 0 as a maximum if the pod limit shows that it is one', async () => {
      await replaced(100, { init: 100, web: 100 }, [0]);
      expect(await start('init', 100)).toEqual([100, 100]);
      add('init', NEXT, 100, 2);
      runtime.removeCgroup(`${POD}/${idOf('init', NEXT)}`);
      expect(await start('web', 200)).toEqual([200, 200]);
    });
  });

  describe('containers declared by the spec', () => {
    const declare = (...containers: readonly SpecContainer[]): void => {
      const pod = {
        limits: {},
        requests: {},
        qosClass: undefined,
        priority: 0,
        volumes: new Map<string, DeclaredVolume>(),
      };
      runtime.specs.set('uid-1', { ...pod, containers });
    };

    test('raises the pod limit once for all containers that the spec declares', async () => {
      declare(app('web', 200), app('proxy', 200));
      await replaced(200, { web: 100, proxy: 100 });
      expect(await start('web', 200)).toEqual([400, 400]);
      expect(await start('proxy', 200)).toEqual([400, 400]);
    });

    test('the first container raises the pod limit to the declared sum if the earlier containers are unknown', async () => {
      declare(app('web', 200), app('proxy', 200));
      await replaced(200, {});
      expect(await start('web', 200)).toEqual([400, 400]);
    });
  });

  test('keeps the pod limit if neither the earlier containers nor a spec are known', async () => {
    await replaced(100, {});
    expect(await start('web', 200)).toEqual([100, 100]);
  });

  test('the first container of a pod does not wait for a resize of the pod', async () => {
    await replaced(100, {});
    const { registry, lock } = runtime.node;
    const pod = (await registry.pod(SANDBOX))!;
    registry.forgetPod(NEXT);
    registry.learnPod({ ...pod, sandboxId: NEXT, metadata: { ...pod.metadata, uid: 'uid-2' } });
    const release = Promise.withResolvers<undefined>();
    const held = lock.run('uid-2', () => release.promise);
    expect(await start('web', 200)).toEqual([100, 100]);
    release.resolve(undefined);
    await held;
  });
});
