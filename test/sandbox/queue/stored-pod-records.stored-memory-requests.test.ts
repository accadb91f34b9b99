import { beforeEach, describe, expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { web } from '../../support/resize/fake-resizes.ts';
import { ResizeQueue } from '../../support/resize/resize-queue.ts';

const podExists = () => Promise.resolve(true);

let queue: ResizeQueue;
beforeEach(() => {
  queue = new ResizeQueue();
});

/** kubelet admits these memory requests, in MiB. */
const admits = (requests: Readonly<Record<string, number>>): void => {
  const containers = Object.entries(requests).map(([name, size]) => [name, { memory: bytes(size * MiB) }] as const);
  queue.kubelet.set(web.uid, { containers: new Map(containers), pod: undefined });
};

/** A resize sets the memory request of the container "app". */
async function request(size: string): Promise<void> {
  const answer = queue.resize('1Gi', { request: size });
  (await queue.core.next()).succeed();
  await answer;
}

const stored = () => queue.resizes.memoryRequestsOf(web.sandboxId);
const app = (size: number) => ({ containers: { app: size * MiB } });

describe('memory requests of resizes and of kubelet', () => {
  test('the memory request of a resize applies while kubelet has admitted no other one', async () => {
    admits({ app: 64 });
    await request('256Mi');
    expect(stored()).toEqual(app(256));
    admits({ app: 64, other: 32 });
    expect(stored()).toEqual(app(256));
  });

  test('the memory request of kubelet applies once it has changed after a resize', async () => {
    admits({ app: 64 });
    await request('256Mi');
    admits({ app: 128 });
    expect(stored()).toEqual({ containers: {} });
    void queue.resize('128Mi');
    const { desired } = await queue.core.next();
    expect(desired.earlierMemoryRequests).toBeUndefined();
  });

  test('the memory request of kubelet still applies after it has returned to the earlier value', async () => {
    admits({ app: 64 });
    await request('256Mi');
    admits({ app: 128 });
    stored();
    admits({ app: 64 });
    expect(stored()).toEqual({ containers: {} });
  });

  test('the memory request of a resize applies if it is newer than the change by kubelet', async () => {
    admits({ app: 64 });
    await request('256Mi');
    admits({ app: 128 });
    await request('192Mi');
    expect(stored()).toEqual(app(192));
  });

  test('the newer memory request applies after a restart of the shim', async () => {
    admits({ app: 64 });
    await request('256Mi');
    await queue.resizes.close();
    await queue.restart().restore(podExists);
    expect(stored()).toEqual(app(256));
    admits({ app: 128 });
    expect(stored()).toEqual({ containers: {} });
  });
});

test('the stored memory request applies while the request of kubelet is unknown', async () => {
  admits({ app: 64 });
  await request('256Mi');
  queue.kubelet.clear();
  expect(stored()).toEqual(app(256));
  await request('128Mi');
  admits({ app: 64 });
  expect(stored()).toEqual(app(128));
});

test('a stored memory request applies if its record lacks the request that kubelet had admitted', async () => {
  const record = { version: 1, kind: 'memory-requests', pod: web, memory: app(256) };
  queue.store.records.set(web.uid, JSON.stringify([record]));
  admits({ app: 64 });
  await queue.resizes.restore(podExists);
  expect(stored()).toEqual(app(256));
});
