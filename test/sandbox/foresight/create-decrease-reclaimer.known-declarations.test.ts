import { afterEach, beforeEach, expect, test } from 'vitest';
import { KnownDeclarations } from '../../../src/sandbox/foresight/create-decrease-reclaimer.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import type { PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { FakeRuntime, SANDBOX, containerId } from '../../support/fake-runtime.ts';

let runtime: FakeRuntime;
let declarations: KnownDeclarations;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  for (const index of [0, 1])
    runtime.node.registry.learnContainer({ containerId: containerId(index), sandboxId: SANDBOX, name: `c${index}` });
  declarations = new KnownDeclarations();
});
afterEach(() => runtime.close());

const entry = (): PodEntry => ({
  containers: new Map([0, 1].map((index) => [`c${index}`, { memory: bytes(100 * MiB) }])),
  pod: undefined,
  isComplete: true,
});

async function kindsWith(allocated: PodEntry): Promise<readonly string[] | undefined> {
  for (const file of [runtime.allocated, runtime.actuated]) file.set('uid-1', allocated);
  const pod = (await runtime.node.registry.pod(SANDBOX))!;
  const { declared } = await declarations.readPod(runtime.node, pod, allocated);
  return declared?.containers.map(({ name, kind, state: phase }) => `${name} ${kind} ${phase}`);
}
const listed = (): number => runtime.calls.filter((call) => call === 'ListContainers').length;

test('the containers of a pod are listed once for an entry, and again when other containers run', async () => {
  const allocated = entry();
  expect(await kindsWith(allocated)).toEqual(['c0 app running', 'c1 app running']);
  const before = listed();
  await kindsWith(allocated);
  expect(listed()).toBe(before);
  runtime.removeCgroup(`/kubepods/pod1/${containerId(1)}`);
  expect(await kindsWith(allocated)).toEqual(['c0 app running', 'c1 unknown ended']);
  await kindsWith(entry());
  expect(listed()).toBe(before + 2);
});

test('KEP-1287: the declaration of a pod is the last known one while the backend fails, and unknown for a new entry', async () => {
  const allocated = entry();
  await kindsWith(allocated);
  runtime.on('ListContainers');
  runtime.removeCgroup(`/kubepods/pod1/${containerId(1)}`);
  expect(await kindsWith(allocated)).toEqual(['c0 app running', 'c1 app running']);
  expect(await kindsWith(entry())).toBeUndefined();
});
