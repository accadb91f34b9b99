import { status } from '@grpc/grpc-js';
import { Metadata } from '../../../src/core/grpc.ts';
import { expect, test } from 'vitest';
import { ResizeHistory } from '../../../src/sandbox/history/history.ts';
import { overviewOf } from '../../../src/sandbox/report/overview.ts';
import { podDirectory } from '../../../src/sandbox/report/pod-directory.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { MemoryVolumes } from '../../../src/tmpfs/memory-volumes.ts';

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
    container: () => undefined,
    refresh: () => Promise.resolve(new Map()),
    refreshPods: () => Promise.resolve(),
    refreshContainers: () => Promise.resolve(new Map()),
  };
  const described: string[] = [];
  const pods = podDirectory({
    registry,
    volumes: new MemoryVolumes({ kubeletRoot: '/nonexistent' }),
    isReady: () => Promise.resolve(true),
    readPodView: (sandboxId) => {
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

test('a backend that does not answer is called for one pod only, and all pods report the error', async () => {
  const details = 'no answer';
  const failure = Object.assign(new Error(details), { code: status.UNAVAILABLE, details, metadata: new Metadata() });
  const described: string[] = [];
  const pods = podDirectory({
    registry: {
      pods: [pod('a'), pod('b'), pod('c')],
      pod: () => Promise.resolve(undefined),
      container: () => undefined,
      refresh: () => Promise.resolve(new Map()),
      refreshPods: () => Promise.resolve(),
      refreshContainers: () => Promise.resolve(new Map()),
    },
    volumes: new MemoryVolumes({ kubeletRoot: '/nonexistent' }),
    isReady: () => Promise.resolve(true),
    readPodView: (sandboxId) => {
      described.push(sandboxId);
      return Promise.reject(failure);
    },
  });
  const { pods: seen } = await overviewOf({ history: new ResizeHistory() }, pods);
  expect(described).toEqual(['a']);
  expect(seen.map(({ pod: { name }, view }) => [name, 'reason' in view && view.reason])).toEqual(
    ['a', 'b', 'c'].map((name) => [name, 'BACKEND_UNAVAILABLE']),
  );
});

test('a pod is found by name while the status of another pod hangs in the runtime', async () => {
  const known = [pod('a')];
  const never = (): never => expect.fail('not asked');
  const pods = podDirectory({
    registry: {
      get pods() {
        return known;
      },
      pod: never,
      container: never,
      refresh: never,
      refreshContainers: never,
      refreshPods: () => {
        known.push(pod('b'));
        return new Promise(() => undefined);
      },
    },
    volumes: new MemoryVolumes({ kubeletRoot: '/nonexistent' }),
    isReady: () => Promise.resolve(true),
    readPodView: never,
  });
  expect(await pods.find({ by: 'name', namespace: 'default', name: 'b' })).toMatchObject({ sandboxId: 'b' });
});
