import { describe, expect, test } from 'vitest';
import { type Held, roomFor } from '../../../src/server/unary/connection-room.ts';

const held = (peer: number | undefined, activeStreams: number, lastUsed = 0, calls = 0): Held => ({
  peer,
  activeStreams,
  lastUsed,
  calls,
});
const times = (count: number, one: Held): Held[] => Array.from({ length: count }, () => ({ ...one }));

describe('room for a new connection', () => {
  const busy = times(6, held(7, 1));
  test.each<[string, number | undefined, Held[], number | undefined, number | undefined]>([
    [
      'the least recently used, if processes are unknown',
      undefined,
      [...times(6, held(undefined, 1)), held(undefined, 0, 5), held(undefined, 0, 3)],
      7,
      undefined,
    ],
    [
      'one that is hardly used, not the one of kubelet that was used before it, if many are and processes are unknown',
      undefined,
      [held(undefined, 0, 1, 5000), ...times(5, held(undefined, 1)), held(undefined, 0, 8), held(undefined, 0, 7, 9)],
      7,
      undefined,
    ],
    [
      'the least recently used, not the one that has just opened, if few are hardly used',
      undefined,
      [...times(7, held(undefined, 0, 5, 10)), held(undefined, 0, 9)],
      0,
      undefined,
    ],
    ['none, if processes are unknown and all have calls', 1, times(8, held(undefined, 1)), undefined, undefined],
    [
      'none, if each process has one with a call',
      9,
      [1, 2, 3, 4, 5, 6, 7, 8].map((peer) => held(peer, 1)),
      undefined,
      undefined,
    ],
    ['the oldest of the process with the most, if all have calls', 1, [held(1, 1), held(2, 1), ...busy], 2, 7],
    ['an unused one of the process with the most, not of others', 1, [held(1, 0), ...busy, held(7, 0, 9)], 7, 7],
    ['none, if the process itself has the most, all with calls', 7, [held(1, 0), held(2, 0), ...busy], undefined, 7],
    ['an unused one of its own', 7, [held(1, 0), ...busy, held(7, 0, 9)], 7, 7],
    ['none for a process with many, though another has more', 3, [held(3, 1), held(3, 1), ...busy], undefined, 7],
  ])('of eight open connections, a new one ends %s', (_, peer, all, index, pid) => {
    const { crowd, ends } = roomFor(peer, all);
    expect([ends === undefined ? undefined : all.indexOf(ends), crowd?.pid]).toEqual([index, pid]);
  });
});
