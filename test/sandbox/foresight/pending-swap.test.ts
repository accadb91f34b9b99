import { expect, test } from 'vitest';
import { CgroupVanished } from '../../../src/cgroups/file.ts';
import { Reason } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { type Bytes, bytes, type Limit } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { pendingSwapOf } from '../../../src/sandbox/foresight/pending-swap.ts';

type Amounts = Readonly<Record<string, readonly [request: number | undefined, limit: number | undefined]>>;

/** kubelet's entry, in MiB. A request of undefined is not known. */
function entry(amounts: Amounts): PodEntry {
  const memory = (size: number | undefined) => (size === undefined || size === 0 ? {} : { memory: bytes(size * MiB) });
  const known = Object.entries(amounts).filter(([, [request]]) => request !== undefined);
  return {
    containers: new Map(Object.entries(amounts).map(([name, [, limit]]) => [name, memory(limit)])),
    requests: { containers: new Map(known.map(([name, [request]]) => [name, memory(request)])), pod: undefined },
    pod: undefined,
    isComplete: true,
  };
}

function swapOf(
  allocated: Amounts,
  actuated: Amounts | undefined,
  present: Readonly<Record<string, number | 'max' | undefined>>,
): Readonly<Record<string, number>> {
  const tree = {
    readSwapMax: (cgroup: string): Limit<Bytes> | undefined => {
      const size = present[cgroup];
      return size === undefined || size === 'max' ? size : bytes(size * MiB);
    },
  };
  const places = new Map(Object.keys(present).map((name) => [name, name]));
  const entries = { allocated: entry(allocated), actuated: actuated && entry(actuated) };
  const limits = pendingSwapOf(tree, places, entries);
  return Object.fromEntries([...limits].map(([cgroup, limit]) => [cgroup, Number(limit) / MiB]));
}

test.each<[string, Parameters<typeof swapOf>, Readonly<Record<string, number>>]>([
  ['a container whose request stays keeps its swap', [{ a: [40, 80] }, { a: [40, 200] }, { a: 64 }], {}],
  ['a lower request takes a part', [{ a: [20, 80] }, { a: [40, 200] }, { a: 64 }], { a: 32 }],
  ['a higher request takes nothing', [{ a: [60, 80] }, { a: [40, 200] }, { a: 64 }], {}],
  ['a limit equal to the request takes all', [{ a: [80, 80] }, { a: [80, 200] }, { a: 64 }], { a: 0 }],
  ['a lower request alone takes a part', [{ a: [20, 200] }, { a: [40, 200] }, { a: 64 }], { a: 32 }],
  ['an unknown request may take all', [{ a: [undefined, 80] }, { a: [40, 200] }, { a: 64 }], { a: 0 }],
  ['a container that kubelet has not actuated may lose all', [{ a: [40, 80] }, undefined, { a: 64 }], { a: 0 }],
  ["unlimited swap is not kubelet's", [{ a: [40, 80] }, { a: [40, 200] }, { a: 'max' }], { a: 0 }],
  [
    'only the containers that change count',
    [
      { a: [40, 40], b: [9, 9] },
      { a: [40, 80], b: [9, 9] },
      { a: 64, b: 7 },
    ],
    { a: 0 },
  ],
  ['a container without swap has none to lose', [{ a: [80, 80] }, { a: [80, 200] }, { a: 0 }], {}],
  ['a container without swap accounting has none to lose', [{ a: [80, 80] }, { a: [80, 200] }, { a: undefined }], {}],
  ['a container without an entry is not updated', [{ b: [80, 80] }, { b: [80, 200] }, { a: 64 }], {}],
])('pendingSwapOf computes the swap after a resize: %s', (_, given, expected) => {
  expect(swapOf(...given)).toEqual(expected);
});

test('an entry with unknown requests may take all swap, unless its limit stays', () => {
  const without = (limit: number): PodEntry => {
    const { containers, pod, isComplete } = entry({ a: [40, limit] });
    return { containers, pod, isComplete };
  };
  const tree = { readSwapMax: () => bytes(64 * MiB) };
  const places = new Map([['a', 'a']]);
  expect(pendingSwapOf(tree, places, { allocated: without(80), actuated: without(200) })).toEqual(new Map([['a', 0]]));
  expect(pendingSwapOf(tree, places, { allocated: without(80), actuated: without(80) })).toEqual(new Map());
});

test('pendingSwapOf ignores a container that ends concurrently, and throws other errors', () => {
  const failing = (error: Error) => () =>
    pendingSwapOf(
      {
        readSwapMax: () => {
          throw error;
        },
      },
      new Map([['a', 'a']]),
      { allocated: entry({ a: [80, 80] }), actuated: entry({ a: [80, 200] }) },
    );
  const gone = new CgroupVanished(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, 'gone', { errno: 'ENODEV' });
  expect(failing(gone)()).toEqual(new Map());
  expect(failing(new Error('EIO'))).toThrow('EIO');
});
