import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import type { DeclaredVolume } from '../../../src/sandbox/pods/declared-pod.ts';
import type { SpecContainer } from '../../../src/sandbox/pods/pod-spec.ts';
import { raisePodForRestart } from '../../../src/sandbox/operations/raise-pod-limit.ts';
import { FakeRuntime, SANDBOX, containerUpdate } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

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

let runtime: FakeRuntime;
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
afterEach(() => runtime.close());

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
