import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { encode } from '../../../src/runtime/index.ts';
import { bytes, microseconds } from '../../../src/core/quantities/index.ts';
import { FakeRuntime, RuntimeFailure, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import { raisePodForRestart } from '../../../src/resize/operations/raise-pod-limit.ts';
import { resizePod } from '../../../src/resize/operations/resize-pod.ts';
import { updateContainer } from '../../../src/resize/operations/update-container.ts';

const MiB = 1024 * 1024;
const ANSWER = Buffer.from('the answer of the runtime');
const FORMER = containerId(0);
const NEW = 'f'.repeat(64);

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
});
afterEach(() => runtime.close());

const cpuset = (forward: () => Promise<Buffer>) =>
  updateContainer(runtime.context, containerUpdate(containerId(0), { cpuset_cpus: '0-1' }), forward);

describe('kubernetes 138732: updates of cpusets beside a resize', () => {
  test('do not wait for the resize of their pod', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    let end = (): void => undefined;
    const resize = runtime.context.lock.run(SANDBOX, () => new Promise<void>((resolve) => (end = resolve)));
    expect(await cpuset(() => Promise.resolve(ANSWER))).toBe(ANSWER);
    end();
    await resize;
  });

  test('wait for an update of the same container that the runtime is at', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.applyUpdates();
    const events: string[] = [];
    const memory = { memory_limit_in_bytes: BigInt(150 * MiB) };
    let called = (): void => undefined;
    const atRuntime = new Promise<void>((resolve) => (called = resolve));
    const resize = updateContainer(runtime.context, containerUpdate(containerId(0), memory), async () => {
      events.push('resize begins');
      called();
      for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(150 * MiB));
      events.push('resize ends');
      return ANSWER;
    });
    await atRuntime;
    await cpuset(() => {
      events.push('cpuset');
      return Promise.resolve(ANSWER);
    });
    await resize;
    expect(events).toEqual(['resize begins', 'resize ends', 'cpuset']);
    expect(runtime.limitOf(0)).toBe(150 * MiB);
  });

  test('that carry old limits with them: what the kernel had is put back', async () => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.applyUpdates();
    const stale = () => {
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(30 * MiB));
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'cpu.max', '5000 100000');
      return Promise.resolve(ANSWER);
    };
    expect(await cpuset(stale)).toBe(ANSWER);
    expect(runtime.limitOf(0)).toBe(100 * MiB);
    expect(runtime.read(`${containerId(0)}/cpu.max`)).toBe('10000 100000');
    expect(runtime.warnings).toMatchObject([{ container: containerId(0), found: `${30 * MiB}, 5000 100000` }]);
  });
});

describe("the runtime's half-applied update after a deadline", () => {
  const late = () => new RuntimeFailure(status.DEADLINE_EXCEEDED, 'context deadline exceeded');
  const container = `/kubepods/pod1/${containerId(0)}`;

  beforeEach(() => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.applyUpdates();
  });

  test('is read back and undone: what it has written, and what the pod was given for it', async () => {
    const both = { memory_limit_in_bytes: BigInt(150 * MiB), cpu_quota: 30_000n, cpu_period: 100_000n };
    const update = updateContainer(runtime.context, containerUpdate(containerId(0), both), () => {
      runtime.writeFile(container, 'memory.max', String(150 * MiB));
      return Promise.reject(late());
    });
    await expect(update).rejects.toMatchObject({ code: 4 });
    expect([runtime.limitOf(0), runtime.read('memory.max')]).toEqual([100 * MiB, String(300 * MiB)]);
    expect(runtime.read('cpu.max')).toBe('20000 100000');
    expect(runtime.warnings).toMatchObject([{ container: containerId(0), found: String(150 * MiB) }]);
  });

  test('in a resize of the whole pod too, also of the containers before it', async () => {
    for (const index of [0, 1])
      runtime.context.registry.learnContainer({
        containerId: containerId(index),
        sandboxId: SANDBOX,
        name: `c${index}`,
      });
    runtime.applyUpdates();
    let failed = false;
    runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
      const { container_id, linux } = runtime.decodeUpdate(request);
      if (container_id !== containerId(1) || failed) return obey(request);
      failed = true;
      runtime.writeFile(`/kubepods/pod1/${container_id}`, 'memory.max', String(linux?.memory_limit_in_bytes));
      throw late();
    });
    const limits = { memory: bytes(250 * MiB), cpu: { quota: microseconds(30_000), period: microseconds(100_000) } };
    const wanted = {
      pod: {},
      containers: new Map([
        ['c0', limits],
        ['c1', limits],
      ]),
      volumes: new Map(),
    };
    const options = { dryRun: false, deadline: Date.now() + 60_000 };
    await expect(resizePod(runtime.context, SANDBOX, wanted, options)).rejects.toMatchObject({ code: 4 });
    expect([runtime.limitOf(0), runtime.limitOf(1)]).toEqual([100 * MiB, 200 * MiB]);
    expect([runtime.read('memory.max'), runtime.read('cpu.max')]).toEqual([String(300 * MiB), '20000 100000']);
  });
});

describe('kubernetes 138760: a container that restarts with more than its pod has room for', () => {
  const stored = (memory: number) => ({
    memory_limit_in_bytes: BigInt(memory),
    cpu_quota: 10_000n,
    cpu_period: 100_000n,
  });

  /** The former container has ended; another one of its name has been made. */
  function restart(former: number, podLimit: string, others: readonly number[] = []): void {
    runtime.makePod(podLimit, [former, ...others]);
    runtime.on('ContainerStatus', () =>
      encode('ContainerStatusResponse', {
        status: { id: FORMER, metadata: { name: 'web' }, state: 2, resources: { linux: stored(former) } },
        info: { info: JSON.stringify({ sandboxID: SANDBOX, pid: 0 }) },
      }),
    );
    runtime.removeCgroup(`/kubepods/pod1/${FORMER}`);
    for (const containerId of [FORMER, NEW])
      runtime.context.registry.learnContainer({ containerId, sandboxId: SANDBOX, name: 'web' });
  }

  const made = (memory: number) =>
    raisePodForRestart(runtime.context, SANDBOX, NEW, 'web', containerUpdate(NEW, stored(memory)).linux);

  test('a tight limit is raised by what it has more', async () => {
    restart(100 * MiB, String(300 * MiB), [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
  });

  test('a loose limit is raised only when it does not suffice', async () => {
    restart(100 * MiB, String(400 * MiB), [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(400 * MiB));
    await made(250 * MiB);
    expect(runtime.read('memory.max')).toBe(String(450 * MiB));
  });

  test('a limit under the sum was set on purpose, and stays; so does one that has room, and no limit', async () => {
    restart(100 * MiB, String(200 * MiB), [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(200 * MiB));
    restart(100 * MiB, 'max', [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe('max');
  });

  test('one that was made and never started is not what it is compared with', async () => {
    restart(100 * MiB, String(300 * MiB), [200 * MiB]);
    const forgotten = 'e'.repeat(64);
    runtime.context.registry.learnContainer({ containerId: forgotten, sandboxId: SANDBOX, name: 'web' });
    runtime.describeContainer(forgotten, {
      metadata: { name: 'web' },
      state: 0,
      resources: { linux: stored(150 * MiB) },
    });
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
  });

  test('with less than before nothing changes', async () => {
    restart(100 * MiB, String(300 * MiB), [200 * MiB]);
    await made(50 * MiB);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });
});
