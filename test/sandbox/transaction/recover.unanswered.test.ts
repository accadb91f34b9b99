import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { steadyNow } from '../../../src/core/clock.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { runtimePath } from '../../../src/runtime/backend.ts';
import { FakeRuntime, RuntimeFailure, SANDBOX, containerId } from '../../support/fake-runtime.ts';
import { ContainerUpdates } from '../../support/resize/container-updates.ts';
import { eventually } from '../../support/fake-clock.ts';
import { interrupted } from '../../support/resize/interrupted.ts';
import { desired } from '../../support/resize/resized-pod.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

/**
 * Updates that the runtime has not answered may still arrive: a containerd that is killed leaves the runc that it has
 * started, and one that was stopped continues. The updates of one container arrive in order.
 */

const UPDATE = 'UpdateContainerResources';

let runtime: FakeRuntime;
/** An update that has not arrived yet. */
let onItsWay: (() => void) | undefined;
/** The runtime's answer to all calls, while it does not serve. */
let refusal: RuntimeFailure | undefined;
/** A container whose updates are not answered. */
let hangs: string | undefined;

function arrive(): void {
  onItsWay?.();
  onItsWay = undefined;
}

const noAnswer = new RuntimeFailure(status.UNAVAILABLE, 'the connection has ended');
const starting = new RuntimeFailure(status.UNKNOWN, 'server is not initialized yet');

beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  for (const index of [0, 1])
    runtime.node.registry.learnContainer({ containerId: containerId(index), sandboxId: SANDBOX, name: `c${index}` });
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
  runtime.applyUpdates();
  runtime.wrapResponder(UPDATE, (request, before) => {
    const { container_id } = runtime.decodeUpdate(request);
    if (container_id === hangs) return new Promise(() => undefined);
    if (container_id === containerId(0)) arrive();
    return before(request);
  });
  for (const method of ['ContainerStatus', 'ListContainers', 'PodSandboxStatus', UPDATE])
    runtime.wrapResponder(method, (request, before) => {
      if (refusal !== undefined) throw refusal;
      return before(request);
    });
  onItsWay = undefined;
  refusal = undefined;
  hangs = undefined;
  // Deadlines come when a test says so. Unlike expect.poll, `eventually` does not advance the fake time.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
  return runtime.close();
});
const { found, journal } = interrupted(() => runtime);

/** The first update of the first container to this limit reaches a runtime that ends with it. */
function goesAtUpdate(mebibytes: number): void {
  let isGone = false;
  runtime.wrapResponder(UPDATE, (request, before) => {
    const { container_id, linux } = runtime.decodeUpdate(request);
    if (isGone || linux?.memory_limit_in_bytes !== BigInt(mi(mebibytes))) return before(request);
    isGone = true;
    refusal = noAnswer;
    onItsWay = () => runtime.writeFile(`/kubepods/pod1/${container_id}`, 'memory.max', String(mi(mebibytes)));
    throw noAnswer;
  });
}

/** UpdateContainerResources of a CRI client. */
const update = (mebibytes: number, index = 0): Promise<Buffer> =>
  new ContainerUpdates(runtime).update(
    mi(mebibytes),
    () =>
      runtime.backend.call(
        runtimePath(UPDATE),
        encode(`${UPDATE}Request`, {
          container_id: containerId(index),
          linux: { memory_limit_in_bytes: BigInt(mi(mebibytes)) },
        }),
      ),
    containerId(index),
  );

const ways: readonly (readonly [string, () => Promise<unknown>])[] = [
  [UPDATE, () => update(220)],
  [
    'ResizePod',
    () => resizePod(runtime.node, SANDBOX, desired({ c0: { memory: mi(220) } }), { dryRun: false, deadline: Infinity }),
  ],
];

describe.each(ways)('%s without an answer', (_way, call) => {
  test.each([
    ['before the runtime is back', true],
    ['once the runtime is back', false],
  ])(
    'KEP-1287: the pod limit has room for an unanswered update that arrives %s, which is then rolled back',
    async (_when, isEarly) => {
      goesAtUpdate(220);
      await expect(call()).rejects.toThrow('the connection has ended');
      expect(found()).toEqual([420, 100, 200]);
      expect(journal()).toHaveLength(1);
      if (isEarly) arrive();
      refusal = undefined;
      expect(await recover(runtime.node)).toBe(true);
      arrive();
      expect(found()).toEqual([300, 100, 200]);
      expect(journal()).toEqual([]);
    },
  );

  test('the pod limit has room for an unanswered update until a starting runtime serves calls', async () => {
    goesAtUpdate(220);
    await expect(call()).rejects.toThrow('the connection has ended');
    refusal = starting;
    expect(await recover(runtime.node)).toBe(false);
    expect(found()).toEqual([420, 100, 200]);
    refusal = undefined;
    expect(await recover(runtime.node)).toBe(true);
    expect(found()).toEqual([300, 100, 200]);
  });
});

describe('an update without an answer', () => {
  beforeEach(async () => {
    goesAtUpdate(220);
    await expect(update(220)).rejects.toThrow('the connection has ended');
    refusal = undefined;
  });

  test('an unanswered update that the client repeats is not rolled back', async () => {
    await update(220);
    expect(found()).toEqual([420, 220, 200]);
    expect(journal()).toEqual([]);
    expect(await recover(runtime.node)).toBe(true);
    expect(found()).toEqual([420, 220, 200]);
  });

  test('KEP-1287: the pod limit has room for an unanswered update next to a later one of another container', async () => {
    await update(250, 1);
    expect(found()).toEqual([470, 100, 250]);
    expect(journal()).toHaveLength(1);
    arrive();
    expect(found()).toEqual([470, 220, 250]);
    expect(await recover(runtime.node)).toBe(true);
    expect(found()).toEqual([350, 100, 250]);
    expect(journal()).toEqual([]);
  });

  test('the pod limit has room for an unanswered update after a later update that needs no step of the pod', async () => {
    await update(200, 1);
    expect(found()).toEqual([420, 100, 200]);
    expect(journal()).toHaveLength(1);
    arrive();
    expect(await recover(runtime.node)).toBe(true);
    expect(found()).toEqual([300, 100, 200]);
    expect(journal()).toEqual([]);
  });

  test('the rollback of an unanswered update keeps the values of a later ResizePod', async () => {
    const target = desired({ c0: { memory: mi(120) }, c1: { memory: mi(250) } });
    await resizePod(runtime.node, SANDBOX, target, { dryRun: false, deadline: Infinity });
    expect(await recover(runtime.node)).toBe(true);
    expect(found()).toEqual([370, 120, 250]);
    expect(journal()).toEqual([]);
  });

  test('an unanswered update cannot arrive after the runtime has rejected another update of its container', async () => {
    runtime.wrapResponder(UPDATE, async (request, before) => {
      await before(request);
      throw new RuntimeFailure(status.INTERNAL, 'device or resource busy');
    });
    expect(await recover(runtime.node)).toBe(true);
    expect(found()).toEqual([300, 100, 200]);
    expect(journal()).toEqual([]);
  });

  test('an unanswered update is not reported as rolled back', () => {
    expect(runtime.node.history.ofPod(SANDBOX)[0]).toMatchObject({ state: 'Infeasible', isRolledBack: false });
  });
});

test('an unanswered ResizePod reports that a part of it is not rolled back', async () => {
  const left: string[] = [];
  const onLeftUnfinished = (): void => void left.push('unfinished');
  const options = { dryRun: false, deadline: Infinity, onLeftUnfinished };
  goesAtUpdate(220);
  await expect(resizePod(runtime.node, SANDBOX, desired({ c0: { memory: mi(220) } }), options)).rejects.toThrow();
  expect(left).toEqual(['unfinished']);
});

test('the pod limit has room for an unanswered update after a later update without a journal record', async () => {
  runtime.writeFile('/kubepods/pod1', 'memory.max', String(450 * MiB));
  goesAtUpdate(220);
  await expect(update(220)).rejects.toThrow('the connection has ended');
  expect(journal()).toHaveLength(1);
  refusal = undefined;
  await update(240, 1);
  expect(found()).toEqual([460, 100, 240]);
  arrive();
  expect(await recover(runtime.node)).toBe(true);
  expect(found()).toEqual([450, 100, 240]);
  expect(journal()).toEqual([]);
});

test('KEP-1287: a container with an unanswered update does not delay other updates of its pod, and delays a recovery by at most 2 s', async () => {
  hangs = containerId(0);
  let isDescribed = true;
  runtime.wrapResponder('ContainerStatus', (request, before) => {
    const isHanging = !isDescribed && decode('ContainerStatusRequest', request).container_id === hangs;
    // containerd locks the status of a container during an update.
    return isHanging ? new Promise(() => undefined) : before(request);
  });
  const call = (): Promise<unknown> =>
    new ContainerUpdates(runtime).update(mi(220), () =>
      runtime.backend.call(runtimePath(UPDATE), runtimeRequest(220), { deadline: performance.now() + 100 }),
    );
  // The call has to be sent before its deadline.
  const sent = runtime.calls.length;
  const unanswered = expect(call()).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED });
  await eventually(() => runtime.calls.slice(sent).includes(UPDATE));
  await vi.advanceTimersByTimeAsync(100);
  await unanswered;
  isDescribed = false;
  const recovery = recover(runtime.node);
  // No time passes meanwhile.
  await update(250, 1);
  await eventually(() => runtime.node.calls.isHeld(containerId(0)));
  await vi.advanceTimersByTimeAsync(2000);
  expect(await recovery).toBe(false);
  expect(found()).toEqual([470, 100, 250]);
  hangs = undefined;
  expect(await recover(runtime.node)).toBe(true);
  expect(found()).toEqual([350, 100, 250]);
});

test('the next recovery waits longer for a slow runtime than the first recovery', async () => {
  goesAtUpdate(220);
  await expect(update(220)).rejects.toThrow('the connection has ended');
  refusal = undefined;
  const slow: (() => void)[] = [];
  runtime.wrapResponder(UPDATE, async (request, before) => {
    const answer = await before(request);
    await new Promise<void>((resolve) => slow.push(resolve));
    return answer;
  });
  const recoverIn = async (ms: number): Promise<boolean> => {
    const asked = slow.length;
    const recovery = recover(runtime.node);
    await eventually(() => slow.length === asked + 1);
    await vi.advanceTimersByTimeAsync(ms);
    for (const answer of slow) answer();
    return recovery;
  };
  expect(await recoverIn(1800)).toBe(false);
  expect(found()).toEqual([420, 100, 200]);
  expect(await recoverIn(1800)).toBe(true);
  expect(found()).toEqual([300, 100, 200]);
  expect(journal()).toEqual([]);
});

test('a request waits until its deadline for a runtime that does not answer, and does not extend the wait of a recovery', async () => {
  goesAtUpdate(220);
  await expect(update(220)).rejects.toThrow('the connection has ended');
  refusal = undefined;
  hangs = containerId(0);
  const { unanswered } = runtime.node.journal;
  for (const ms of [100, 200]) {
    const isSettled = vi.fn();
    const resized = resizePod(runtime.node, SANDBOX, desired({ c1: { memory: mi(210) } }), {
      dryRun: false,
      deadline: steadyNow() + ms,
    });
    const rejected = expect(resized.finally(isSettled)).rejects.toThrow('could not be rolled back');
    await eventually(() => runtime.node.calls.isHeld(containerId(0)));
    await vi.advanceTimersByTimeAsync(ms - 1);
    expect(isSettled).not.toHaveBeenCalled();
    // A recovery would wait for 1.5 s.
    await vi.advanceTimersByTimeAsync(1);
    await rejected;
  }
  expect(unanswered.waitsFor(SANDBOX, containerId(0))).toBe(0);
  refusal = noAnswer;
  expect(await recover(runtime.node)).toBe(false);
  expect(unanswered.waitsFor(SANDBOX, containerId(0))).toBe(0);
});

const runtimeRequest = (mebibytes: number): Buffer =>
  encode(`${UPDATE}Request`, {
    container_id: containerId(0),
    linux: { memory_limit_in_bytes: BigInt(mi(mebibytes)) },
  });

test('KEP-1287: the journal record does not grow with each retry of an unanswered update', async () => {
  const sizes = new Set<number>();
  for (let attempt = 0; attempt < 4; attempt += 1) {
    goesAtUpdate(220);
    await expect(update(220)).rejects.toThrow('the connection has ended');
    refusal = undefined;
    const [name = ''] = journal();
    sizes.add(
      (JSON.parse(readFileSync(join(runtime.stateFolder, name), 'utf8')) as { transaction: { steps: object[] } })
        .transaction.steps.length,
    );
  }
  expect(sizes.size).toBe(1);
});
