import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import {
  FakeRuntime,
  RuntimeFailure,
  SANDBOX,
  containerId,
  containerUpdate,
  podConfig,
} from '../../support/fake-runtime.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { cpuShares } from '../../../src/core/quantities/numbers.ts';
import { desired } from '../../support/resize/resized-pod.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

const ANSWER = Buffer.from('the answer of the runtime');

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
});
afterEach(() => runtime.close());

const cpuset = (forward: () => Promise<Buffer>) =>
  updateContainer(runtime.node, containerUpdate(containerId(0), { cpuset_cpus: '0-1' }), forward);

describe('kubernetes 138732: cpuset updates during a resize', () => {
  test('KEP-1287: a cpuset-only update does not wait for a resize of its pod', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    let end = (): void => undefined;
    const resize = runtime.node.lock.run(podConfig.metadata.uid, () => new Promise<void>((resolve) => (end = resolve)));
    expect(await cpuset(() => Promise.resolve(ANSWER))).toBe(ANSWER);
    end();
    await resize;
  });

  test('a cpuset update waits for an update of the same container that the runtime is applying', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.applyUpdates();
    const events: string[] = [];
    const memory = { memory_limit_in_bytes: BigInt(150 * MiB) };
    let called = (): void => undefined;
    const atRuntime = new Promise<void>((resolve) => (called = resolve));
    const resize = updateContainer(runtime.node, containerUpdate(containerId(0), memory), async () => {
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

  test.each([
    ['a cpuset', { cpuset_cpus: '0-1' }],
    ['shares', { cpu_shares: 512n }],
  ])(
    '%s: an update is not forwarded when another update of the container takes longer than the deadline',
    async (_what, linux) => {
      runtime.makePod(String(100 * MiB), [100 * MiB]);
      const ended = Promise.withResolvers<undefined>();
      const other = runtime.node.calls.run(containerId(0), () => ended.promise);
      let isForwarded = false;
      const forward = (): Promise<Buffer> => {
        isForwarded = true;
        return Promise.resolve(ANSWER);
      };
      const request = containerUpdate(containerId(0), linux);
      const update = updateContainer(runtime.node, request, forward, { deadline: performance.now() + 200 });
      await expect(update).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED, reason: 'DEADLINE' });
      expect(runtime.node.lock.isHeld(podConfig.metadata.uid)).toBe(false);
      ended.resolve(undefined);
      await other;
      await runtime.node.calls.run(containerId(0), () => Promise.resolve());
      expect(isForwarded).toBe(false);
    },
  );

  test('KEP-1287: a cpuset-only update that writes old stored limits has no effect, because the kernel values are restored', async () => {
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

test('a cpuset update is not forwarded to a runtime that does not serve calls yet: it would write stored limits', async () => {
  runtime.makePod(String(100 * MiB), [100 * MiB]);
  await runtime.node.registry.pod(SANDBOX);
  runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
  runtime.on('ContainerStatus', () => {
    throw new RuntimeFailure(status.UNKNOWN, 'server is not initialized yet');
  });
  let isForwarded = false;
  const update = cpuset(() => {
    isForwarded = true;
    return Promise.resolve(ANSWER);
  });
  await expect(update).rejects.toThrow('server is not initialized yet');
  expect([isForwarded, runtime.failOpens]).toEqual([false, []]);
});

describe('updates of CPU shares only', () => {
  beforeEach(() => {
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    [0, 1].forEach((index) =>
      runtime.node.registry.learnContainer({
        containerId: containerId(index),
        sandboxId: SANDBOX,
        name: `c${index}`,
      }),
    );
  });

  const shares = (forward: () => Promise<Buffer>) =>
    updateContainer(runtime.node, containerUpdate(containerId(1), { cpu_shares: 2048n }), forward);

  test('an update of CPU shares supersedes an earlier request for these shares', async () => {
    const { newest } = runtime.node;
    const earlier = newest.arrival();
    await shares(() => Promise.resolve(ANSWER));
    const writer = newest.newerWriter(SANDBOX, 'container c1, requests.cpu', earlier);
    expect(writer?.text).toBe('an update of container c1');
    expect(newest.newerWriter(SANDBOX, 'container c1, limits.cpu', earlier)).toBeUndefined();
  });

  test('an update of CPU shares is applied after a ResizePod in progress that arrived before and sets them', async () => {
    const applied: string[] = [];
    let newer: Promise<Buffer> | undefined;
    runtime.applyUpdates();
    runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
      const { container_id, linux } = runtime.decodeUpdate(request);
      if (container_id === containerId(1)) applied.push(`resize: ${linux?.cpu_shares}`);
      newer ??= shares(() => {
        applied.push('update: 2048');
        return Promise.resolve(ANSWER);
      });
      return obey(request);
    });
    const target = desired({ c0: { memory: mi(50) }, c1: { shares: cpuShares(51) } });
    await resizePod(runtime.node, SANDBOX, target, { dryRun: false, deadline: Infinity });
    expect(await newer).toBe(ANSWER);
    expect(applied).toEqual(['resize: 51', 'update: 2048']);
  });
});
