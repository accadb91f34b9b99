import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';

const NEXT = 'b'.repeat(64);

let runtime: FakeRuntime;
let pod: PodDescription;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  pod = (await runtime.node.registry.pod(SANDBOX))!;
});
afterEach(() => runtime.close());

/** Returns sandbox and deferred requests of each record on the disk. */
const records = (): unknown[] =>
  readdirSync(runtime.stateFolder)
    .filter((name) => name.endsWith('.json'))
    .map((name) => JSON.parse(readFileSync(join(runtime.stateFolder, name), 'utf8')) as Record<string, unknown>)
    .map(({ sandboxId, resizes }) => [sandboxId, resizes]);

/** Stores a deferred request, and completes a transaction meanwhile, which puts the sandbox into the record. */
async function deferAndResize({ sandboxId, metadata }: PodDescription): Promise<void> {
  const { journal } = runtime.node;
  await journal.setResizes(metadata.uid === '' ? sandboxId : metadata.uid, ['a request']);
  const described = { ...pod, sandboxId, metadata };
  const step = { kind: 'pod-memory', from: bytes(300 * MiB), to: bytes(400 * MiB) } as const;
  await (await journal.begin(described, [step], { volumes: new Map() })).end('done', new Map());
}

test('the record of a pod stays when kubelet removes a replaced sandbox, and is removed with the last sandbox', async () => {
  const { registry } = runtime.node;
  await deferAndResize(pod);
  registry.learnPod({ ...pod, sandboxId: NEXT, metadata: { ...pod.metadata, attempt: 1 } });
  registry.forgetPod(SANDBOX);
  await expect.poll(records, LONG_WAIT).toEqual([[NEXT, ['a request']]]);
  registry.forgetPod(NEXT);
  await expect.poll(records, LONG_WAIT).toEqual([]);
});

test('the record of a pod without a uid is removed with its sandbox, although other pods have no uid either', async () => {
  const { registry } = runtime.node;
  const metadata = { ...pod.metadata, uid: '' };
  for (const sandboxId of ['c'.repeat(64), 'd'.repeat(64)]) registry.learnPod({ ...pod, sandboxId, metadata });
  await deferAndResize({ ...pod, sandboxId: 'c'.repeat(64), metadata });
  expect(records()).toHaveLength(1);
  registry.forgetPod('c'.repeat(64));
  await expect.poll(records, LONG_WAIT).toEqual([]);
});

test('a new pod without memory-backed volumes costs no read of its limits', () => {
  const { registry, tree } = runtime.node;
  const reads = [vi.spyOn(tree, 'readLimitsNow'), vi.spyOn(tree, 'readMemoryMax')];
  registry.learnPod({ ...pod, sandboxId: NEXT });
  for (const read of reads) expect(read).not.toHaveBeenCalled();
});
