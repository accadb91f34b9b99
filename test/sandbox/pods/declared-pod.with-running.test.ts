import { expect, test } from 'vitest';
import { type DeclaredContainer, withRunning } from '../../../src/sandbox/pods/declared-pod.ts';

test('a container that runs again counts, with its new id, and the others stay as they are', () => {
  const ended: DeclaredContainer = { name: 'a', kind: 'unknown', state: 'ended', id: 'old', isUncounted: true };
  const other: DeclaredContainer = { name: 'b', kind: 'unknown', state: 'ended', id: 'b', isUncounted: true };
  const pod = { source: 'inference', containers: [ended, other], volumes: new Map() } as const;
  expect(withRunning(pod, { containerId: 'new', name: 'a' }).containers).toEqual([
    { name: 'a', kind: 'unknown', state: 'running', id: 'new', isUncounted: false },
    other,
  ]);
});
