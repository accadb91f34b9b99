import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { recover } from '../../../src/resize/execute/recover.ts';
import { resizePod } from '../../../src/resize/operations/resize-pod.ts';
import { encode, runtimePath } from '../../../src/runtime/index.ts';
import { FakeRuntime, RuntimeFailure, SANDBOX, containerId } from '../../support/fake-runtime.ts';
import { ContainerUpdates } from '../../support/resize/container-updates.ts';
import { interrupted } from '../../support/resize/interrupted.ts';
import { MiB } from '../../support/resize/pods.ts';
import { desired, mi } from '../../support/resize/resized-pod.ts';

/**
 * Updates that the runtime has not answered may still arrive: a containerd that is killed leaves the runc that it has started, and one
 * that was stopped continues. The updates of one container arrive in order.
 */

const UPDATE = 'UpdateContainerResources';

let runtime: FakeRuntime;
/** An update that has not arrived yet. */
let onItsWay: (() => void) | undefined;
let isGone: boolean;

function arrive(): void {
  onItsWay?.();
  onItsWay = undefined;
}

const noAnswer = (): Error => new RuntimeFailure(status.UNAVAILABLE, 'the connection has ended');

beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  for (const index of [0, 1])
    runtime.context.registry.learnContainer({ containerId: containerId(index), sandboxId: SANDBOX, name: `c${index}` });
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
  runtime.applyUpdates();
  runtime.wrapResponder(UPDATE, (request, before) => {
    if (isGone) throw noAnswer();
    arrive();
    return before(request);
  });
  for (const method of ['ContainerStatus', 'ListContainers', 'PodSandboxStatus'])
    runtime.wrapResponder(method, (request, before) => {
      if (isGone) throw noAnswer();
      return before(request);
    });
  onItsWay = undefined;
  isGone = false;
});
afterEach(() => runtime.close());
const { found, journal } = interrupted(() => runtime);

/** The first update of the first container that is called reaches a runtime that ends with it. */
function goesAtUpdate(mebibytes: number): void {
  runtime.wrapResponder(UPDATE, (request, before) => {
    const { container_id, linux } = runtime.decodeUpdate(request);
    if (isGone || onItsWay !== undefined || linux?.memory_limit_in_bytes !== BigInt(mi(mebibytes)))
      return before(request);
    isGone = true;
    onItsWay = () => runtime.writeFile(`/kubepods/pod1/${container_id}`, 'memory.max', String(mi(mebibytes)));
    throw noAnswer();
  });
}

const ways: readonly (readonly [string, () => Promise<unknown>])[] = [
  [
    'UpdateContainerResources',
    () =>
      new ContainerUpdates(runtime).update(mi(220), () =>
        runtime.backend.call(
          runtimePath(UPDATE),
          encode(`${UPDATE}Request`, {
            container_id: containerId(0),
            linux: { memory_limit_in_bytes: BigInt(mi(220)) },
          }),
        ),
      ),
  ],
  [
    'ResizePod',
    () =>
      resizePod(runtime.context, SANDBOX, desired({ c0: { memory: mi(220) } }), { dryRun: false, deadline: Infinity }),
  ],
];

describe.each(ways)('%s without an answer', (_way, call) => {
  test.each([
    ['before the runtime is back', true],
    ['once the runtime is back', false],
  ])('has room when it arrives %s, and is undone then', async (_when, isEarly) => {
    goesAtUpdate(220);
    await expect(call()).rejects.toThrow('the connection has ended');
    expect(found()).toEqual([420, 100, 200]);
    expect(journal()).toHaveLength(1);
    if (isEarly) arrive();
    isGone = false;
    expect(await recover(runtime.context)).toBe(true);
    arrive();
    expect(found()).toEqual([300, 100, 200]);
    expect(journal()).toEqual([]);
  });
});
