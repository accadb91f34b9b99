import { Metadata, status } from '@grpc/grpc-js';
import { expect, test } from 'vitest';
import { ResizeHistory, overviewOf, podDirectory } from '../../../src/resize/index.ts';
import type { PodDescription } from '../../../src/runtime/index.ts';

const pod = (sandboxId: string): PodDescription => ({
  sandboxId,
  metadata: { uid: `uid-${sandboxId}`, name: sandboxId, namespace: 'default' },
  cgroupParent: '/kubepods/pod',
  annotations: {},
  cpuShares: undefined,
  overhead: { memoryBytes: 0, cpuQuotaMicroseconds: 0, cpuPeriodMicroseconds: 0 },
});

test('a pod whose containers the runtime does not describe does not hide the others', async () => {
  const details = 'no such container';
  const failure = Object.assign(new Error(details), { code: status.NOT_FOUND, details, metadata: new Metadata() });
  const registry = {
    pods: [pod('a'), pod('b')],
    pod: () => Promise.resolve(undefined),
    containersOf: () => [],
    refresh: () => Promise.resolve(),
  };
  const described: string[] = [];
  const pods = podDirectory({
    registry,
    isReady: () => Promise.resolve(true),
    describePod: (sandboxId) => {
      described.push(sandboxId);
      return Promise.reject(failure);
    },
  });
  const { pods: seen } = await overviewOf({ history: new ResizeHistory() }, pods);
  expect(described).toEqual(['a', 'b']);
  expect(seen.map(({ view }) => view)).toEqual(
    described.map(() => ({ reason: 'BACKEND_FAILED', message: 'the backend: NOT_FOUND: no such container' })),
  );
});
