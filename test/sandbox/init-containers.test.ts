import { expect, test } from 'vitest';
import { type ContainerDescription, ContainerState } from '../../src/runtime/index.ts';
import { isCompletedInitContainer } from '../../src/sandbox/init-containers.ts';

const { EXITED, RUNNING } = ContainerState;

/** A container with the times of its creation and its end; 0 means that it runs. */
const container = (name: string, createdAt: number, finishedAt: number, exitCode = 0): ContainerDescription => ({
  ...{ containerId: `${name} ${createdAt}`, sandboxId: 'pod', name, pid: 0, resources: undefined, exitCode },
  ...{ createdAt: BigInt(createdAt), finishedAt: BigInt(finishedAt), state: finishedAt === 0 ? RUNNING : EXITED },
});

const first = container('first', 10, 20);

test.each([
  ['one that ended before the next container was created', first, [container('web', 30, 0)], true],
  ['one next to an older sidecar', first, [container('sidecar', 5, 0), container('web', 30, 0)], true],
  ['the second of two init containers', container('second', 22, 25), [first, container('web', 30, 0)], true],
  ['one that failed', container('first', 10, 20, 1), [container('web', 30, 0)], false],
  ['a running container', container('first', 10, 0), [container('web', 30, 0)], false],
  ['one that ended after the next container was created', first, [container('web', 15, 0)], false],
  ['the newest container', first, [container('sidecar', 5, 0)], false],
  ['the only container', first, [], false],
  ['one that was created again with the same name', first, [container('first', 30, 0)], false],
])('isCompletedInitContainer: %s', (_name, one, others, expected) => {
  expect(isCompletedInitContainer(one, [...others, one])).toBe(expected);
});
