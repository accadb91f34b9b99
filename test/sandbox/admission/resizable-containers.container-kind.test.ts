import { describe, expect, test } from 'vitest';
import { assertResizable } from '../../../src/sandbox/admission/resizable-containers.ts';
import { NO_CPU_LIMIT } from '../../../src/sandbox/pods/read-pod.ts';
import type { DeclaredContainer } from '../../../src/sandbox/pods/declared-pod.ts';
import { NO_OVERHEAD } from '../../support/resize/pods.ts';
import { SANDBOX } from '../../support/fake-runtime.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';

const pod = { sandboxId: SANDBOX, metadata: { uid: 'uid-1', namespace: 'default', name: 'web' } } as PodDescription;
const never = { cpu: 'NotRequired', memory: 'NotRequired' } as const;

/** Returns the reason and the message of the rejection of a resize of this container; undefined if there is none. */
function rejection(container: Partial<DeclaredContainer> | undefined): { reason: string; message: string } | undefined {
  const one: DeclaredContainer = { name: 'setup', kind: 'init', state: 'running', id: 'id', ...container };
  const declared = { source: 'spec', containers: container === undefined ? [] : [one], volumes: new Map() } as const;
  const cpu = NO_CPU_LIMIT;
  const state = { memory: 'max', cpu, weight: undefined, overhead: NO_OVERHEAD, containers: [], volumes: [] } as const;
  try {
    assertResizable(pod, { ...state, declared }, 'setup');
    return undefined;
  } catch (error) {
    return error as { reason: string; message: string };
  }
}

test.each(['app', 'sidecar', 'unknown'] as const)('a container of kind %s can be resized in every state', (kind) => {
  for (const state of ['declared', 'created', 'running', 'ended'] as const)
    expect(rejection({ kind, state, resizePolicy: { cpu: 'RestartContainer', memory: 'RestartContainer' } })).toBe(
      undefined,
    );
});

test('a container without a declaration can be resized', () => {
  expect(rejection(undefined)).toBeUndefined();
});

test('KEP-1287: a resize of an ephemeral container is rejected', () => {
  expect(rejection({ kind: 'ephemeral' })).toMatchObject({
    reason: 'EPHEMERAL_CONTAINER_NOT_RESIZABLE',
    message: 'container setup of pod default/web is an ephemeral container: it cannot be resized',
  });
});

describe('an ordinary init container', () => {
  test.each(['created', 'running'] as const)('KEP-1287: an init container is resized while it is %s', (state) => {
    expect(rejection({ state, resizePolicy: never })).toBeUndefined();
    expect(rejection({ state })).toBeUndefined();
  });

  test('KEP-1287: a resize of an init container that has ended is rejected with that reason alone', () => {
    expect(rejection({ state: 'ended', isFixed: true })).toMatchObject({
      reason: 'INIT_CONTAINER_ENDED',
      message: 'container setup of pod default/web is an init container that has ended: it cannot be resized',
    });
  });

  test.each([
    ['kubelet up to 1.35 does not list', { isFixed: true }, 'this kubelet does not resize init containers'],
    [
      'restarts for CPU',
      { resizePolicy: { ...never, cpu: 'RestartContainer' } },
      'its resizePolicy is RestartContainer',
    ],
    [
      'restarts for memory',
      { resizePolicy: { ...never, memory: 'RestartContainer' } },
      'its resizePolicy is RestartContainer',
    ],
    ['has not been created', { state: 'declared' }, 'it has not been created'],
  ] as const)('KEP-1287: a resize of an init container that %s is rejected', (_what, container, why) => {
    const found = rejection(container);
    expect(found?.reason).toBe('INIT_CONTAINER_NOT_RESIZABLE');
    expect(found?.message).toContain(`is an init container, and ${why}`);
  });
});
