import { expect, test } from 'vitest';
import { MiB, bytes } from '../../../src/core/quantities/index.ts';
import { decode, encode } from '../../../src/runtime/index.ts';
import { FakeRuntime, SANDBOX, containerId } from '../../support/fake-runtime.ts';

test.each(['before', 'after'])(
  'of two sandboxes of a pod the newest counts, also where a recovery has found it %s the ended one',
  async (order) => {
    const runtime = await FakeRuntime.start();
    runtime.makePod(String(200 * MiB), [200 * MiB]);
    const { registry, decreaseReclaimer } = runtime.context;
    const found = (await registry.pod(SANDBOX))!;
    registry.forgetPod(SANDBOX);
    // kubelet counts the sandboxes of a pod.
    const newest = { ...found, metadata: { ...found.metadata, attempt: 1 } };
    const ended = { ...found, sandboxId: 'ended', metadata: { ...found.metadata, attempt: 0 } };
    for (const pod of order === 'before' ? [newest, ended] : [ended, newest]) registry.learnPod(pod);
    registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
    const asked: string[] = [];
    runtime.on('ListContainers', (request) => {
      asked.push(decode('ListContainersRequest', request).filter?.pod_sandbox_id ?? '');
      return encode('ListContainersResponse', { containers: [] });
    });
    const entry = (limit: number) => ({
      containers: new Map([['c0', { memory: bytes(limit * MiB) }]]),
      pod: undefined,
      isComplete: true,
    });
    runtime.allocated.set(found.metadata.uid, entry(50));
    runtime.actuated.set(found.metadata.uid, entry(200));
    decreaseReclaimer.check();
    await expect.poll(() => asked.length).toBeGreaterThan(0);
    expect(new Set(asked)).toEqual(new Set([SANDBOX]));
    await decreaseReclaimer.close();
    await runtime.close();
  },
);
