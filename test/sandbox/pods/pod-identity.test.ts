import { expect, test } from 'vitest';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { isReplaced, newestSandbox } from '../../../src/sandbox/pods/pod-identity.ts';

const sandbox = (sandboxId: string, uid: string, attempt?: number): PodDescription =>
  ({ sandboxId, metadata: { uid, name: 'web', namespace: 'default', attempt } }) as PodDescription;

test('the newest sandbox of a pod is the one with the highest attempt, in any order of the list', () => {
  const pods = [sandbox('first', 'u'), sandbox('third', 'u', 10), sandbox('second', 'u', 9), sandbox('other', 'v', 11)];
  expect(newestSandbox({ pods }, 'u')?.sandboxId).toBe('third');
  expect(newestSandbox({ pods: pods.toReversed() }, 'u')?.sandboxId).toBe('third');
  expect(newestSandbox({ pods }, 'v')?.sandboxId).toBe('other');
  expect(newestSandbox({ pods }, 'w')).toBeUndefined();
});

test('two sandboxes without a pod uid do not belong to one pod', () => {
  expect(newestSandbox({ pods: [sandbox('one', ''), sandbox('other', '', 1)] }, '')).toBeUndefined();
});

test('a sandbox is replaced when a newer one of its pod is known', () => {
  const pods = [sandbox('first', 'u'), sandbox('second', 'u', 1), sandbox('other', 'v')];
  expect(pods.map((pod) => isReplaced({ pods }, pod))).toEqual([true, false, false]);
  // The sandbox is not known yet.
  expect(isReplaced({ pods }, sandbox('third', 'u', 2))).toBe(false);
});
