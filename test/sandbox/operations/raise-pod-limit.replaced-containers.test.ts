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

describe('a container of a replaced sandbox starts with higher limits than a resize has left', () => {
  test('the pod limit is raised for the only container', async () => {
    await replaced(100, { web: 100 });
    expect(await start('web', 200)).toEqual([200, 200]);
    expect(runtime.node.history.ofPod(NEXT)).toMatchObject([{ requester: { kind: 'shim' }, state: 'Completed' }]);
  });

  test('the pod limit is raised for each container as kubelet creates it', async () => {
    await replaced(200, { web: 100, proxy: 100 });
    expect(await start('web', 200)).toEqual([300, 300]);
    expect(await start('proxy', 200)).toEqual([400, 400]);
  });

  test('the limit that kubelet itself has set fits, and stays', async () => {
    await replaced(300, { web: 200, proxy: 100 });
    expect(await start('web', 200)).toEqual([300, 300]);
    expect(await start('proxy', 100)).toEqual([300, 300]);
  });

  test('a pod limit below the sum was set on purpose, and stays', async () => {
    await replaced(150, { web: 100, proxy: 100 });
    expect(await start('web', 200)).toEqual([150, 150]);
    expect(await start('proxy', 200)).toEqual([150, 150]);
  });

  test('an init container that ended well before counts as a maximum, if the pod limit shows that', async () => {
    await replaced(100, { init: 100, web: 100 }, [0]);
    expect(await start('init', 100)).toEqual([100, 100]);
    add('init', NEXT, 100, 2);
    runtime.removeCgroup(`${POD}/${idOf('init', NEXT)}`);
    expect(await start('web', 200)).toEqual([200, 200]);
  });
});

describe('the spec declares the pod', () => {
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

  test('the pod limit is raised for all its containers at once', async () => {
    declare(app('web', 200), app('proxy', 200));
    await replaced(200, { web: 100, proxy: 100 });
    expect(await start('web', 200)).toEqual([400, 400]);
    expect(await start('proxy', 200)).toEqual([400, 400]);
  });

  test('without a trace of the earlier containers, the first one raises the pod limit to what is declared', async () => {
    declare(app('web', 200), app('proxy', 200));
    await replaced(200, {});
    expect(await start('web', 200)).toEqual([400, 400]);
  });
});

test('without a trace of the earlier containers and a spec, the pod limit stays', async () => {
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
