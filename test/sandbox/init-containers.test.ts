import { expect, test } from 'vitest';
import { type ContainerDescription, ContainerState } from '../../src/runtime/index.ts';
import { isCompletedInitContainer } from '../../src/sandbox/init-containers.ts';

const { EXITED, RUNNING } = ContainerState;

/** A container by when it was made and when it ended; 0: it runs. */
const container = (name: string, createdAt: number, finishedAt: number, exitCode = 0): ContainerDescription => ({
  ...{ containerId: `${name} ${createdAt}`, sandboxId: 'pod', name, pid: 0, resources: undefined, exitCode },
  ...{ createdAt: BigInt(createdAt), finishedAt: BigInt(finishedAt), state: finishedAt === 0 ? RUNNING : EXITED },
});

const first = container('first', 10, 20);

test.each([
  ['one that has ended before the next was made', first, [container('web', 30, 0)], true],
  ['beside a sidecar made before', first, [container('sidecar', 5, 0), container('web', 30, 0)], true],
  ['the second of two', container('second', 22, 25), [first, container('web', 30, 0)], true],
  ['one that has failed', container('first', 10, 20, 1), [container('web', 30, 0)], false],
  ['one that runs', container('first', 10, 0), [container('web', 30, 0)], false],
  ['one beside which another was made', first, [container('web', 15, 0)], false],
  ['the last of all, which has ended', first, [container('sidecar', 5, 0)], false],
  ['the only one', first, [], false],
  ['one that was made again', first, [container('first', 30, 0)], false],
])('%s', (_name, one, others, is) => {
  expect(isCompletedInitContainer(one, [...others, one])).toBe(is);
});
