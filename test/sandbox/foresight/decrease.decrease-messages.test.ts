import { expect, test } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import {
  type Blocked,
  climbedMessage,
  expiredMessage,
  failedMessage,
  lostMessage,
  stalledMessage,
  stuckMessage,
} from '../../../src/sandbox/foresight/decrease.ts';

/** A decrease from 192 MiB to a size, with some memory in use and some of it unreclaimable, in bytes. */
const blocked = (to: number, current: number, unreclaimable: number): Blocked => ({
  text: 'container a',
  cgroup: '/a',
  from: bytes(192 * MiB),
  to: bytes(to),
  use: {
    current: bytes(current),
    unreclaimable: bytes(unreclaimable),
    anon: bytes(unreclaimable),
    shmem: bytes(0),
    unevictable: bytes(0),
    file: bytes(current),
    swappable: bytes(0),
    swapExcess: bytes(0),
    kernelUnreclaimable: bytes(0),
    oomKills: 0,
  },
});

const timeout = new ShimError(Code.DEADLINE_EXCEEDED, Reason.RECLAIM_TIMEOUT, 'out of time');
const messages = [
  ...[stuckMessage, stalledMessage, climbedMessage, lostMessage],
  (each: Blocked) => expiredMessage(each, 60_000),
  (each: Blocked) => failedMessage(each, timeout),
];

test('KEP-1287: messages of a blocked decrease have no negative figures, also with small limits and high usage', () => {
  for (const to of [4096, MiB, 2 * MiB, 64 * MiB])
    for (const [current, unreclaimable] of [
      [0, 0],
      [MiB, 2 * MiB],
      [100 * MiB, 90 * MiB],
    ] as const)
      for (const message of messages) expect(message(blocked(to, current, unreclaimable))).not.toMatch(/-\d/);
});

test('the message for a limit that is too small to hold usage below it has no target figure', () => {
  expect(stuckMessage(blocked(2 * MiB, 3 * MiB, MiB))).toMatch(/: usage cannot be held below so small a limit$/);
  expect(stuckMessage(blocked(2 * MiB + 1, 3 * MiB, MiB))).toMatch(/: expected less than 1$/);
});

test('each message of a blocked decrease contains the old and the new limit', () => {
  for (const message of messages)
    expect(message(blocked(64 * MiB, 100 * MiB, MiB))).toMatch(
      /^container a: kubelet is to lower memory.max from 201326592 to 67108864, but /,
    );
});

test('the message of a hold that ended early contains its duration', () => {
  expect(expiredMessage(blocked(64 * MiB, 60 * MiB, MiB), 7000)).toContain('while usage was held below it for 7 s: ');
});
