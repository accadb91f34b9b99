import { beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
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

describe('the newer memory request counts', () => {
  test('that of a resize, as long as kubelet has the one from before', async () => {
    admits({ app: 64 });
    await request('256Mi');
    expect(stored()).toEqual(app(256));
    admits({ app: 64, other: 32 });
    expect(stored()).toEqual(app(256));
  });

  test('that of kubelet, once it has changed', async () => {
    admits({ app: 64 });
    await request('256Mi');
    admits({ app: 128 });
    expect(stored()).toEqual({ containers: {} });
    void queue.resize('128Mi');
    const { desired } = await queue.core.next();
    expect(desired.earlierMemoryRequests).toBeUndefined();
  });

  test('that of kubelet also after it has gone back to the one from before', async () => {
    admits({ app: 64 });
    await request('256Mi');
    admits({ app: 128 });
    stored();
    admits({ app: 64 });
    expect(stored()).toEqual({ containers: {} });
  });

  test('that of a resize that follows kubelet', async () => {
    admits({ app: 64 });
    await request('256Mi');
    admits({ app: 128 });
    await request('192Mi');
    expect(stored()).toEqual(app(192));
  });

  test('after a restart of the shim', async () => {
    admits({ app: 64 });
    await request('256Mi');
    await queue.resizes.close();
    await queue.restart().restore(podExists);
    expect(stored()).toEqual(app(256));
    admits({ app: 128 });
    expect(stored()).toEqual({ containers: {} });
  });
});

test('while kubelet is not known, the stored request counts', async () => {
  admits({ app: 64 });
  await request('256Mi');
  queue.kubelet.clear();
  expect(stored()).toEqual(app(256));
  await request('128Mi');
  admits({ app: 64 });
  expect(stored()).toEqual(app(128));
});

test('a record without what kubelet had admitted counts', async () => {
  const record = { version: 1, kind: 'memory-requests', pod: web, memory: app(256) };
  queue.store.records.set(web.uid, JSON.stringify([record]));
  admits({ app: 64 });
  await queue.resizes.restore(podExists);
  expect(stored()).toEqual(app(256));
});
