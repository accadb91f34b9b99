import { once } from 'node:events';
import { expect, test } from 'vitest';
import { NODE } from '../cluster.ts';
import { ReadyWatch } from './ready-watch.ts';

/** Tests that the watch of operator.test.ts detects an interruption. */

const node = (status: string, name = NODE): object => ({
  metadata: { name },
  status: { conditions: [{ type: 'Ready', status }] },
});
const lease = { metadata: { name: NODE }, spec: {} };

/** Watches objects that arrive at these times, and stops when all have. */
async function watched(
  nodes: readonly (readonly [at: number, object: object])[],
  leases: readonly number[],
  end: number,
): Promise<ReadyWatch> {
  let now = 0;
  let isOver = false;
  async function* watch(path: string, signal: AbortSignal): AsyncGenerator<{ type: 'MODIFIED'; object: object }, void> {
    const all = path.includes('leases') ? leases.map((at) => [at, lease] as const) : nodes;
    for (const [at, object] of all) {
      now = at;
      yield { type: 'MODIFIED', object };
    }
    if (path.includes('leases')) isOver = true;
    if (!signal.aborted) await once(signal, 'abort');
    // Behaves like a request that is aborted.
    throw signal.reason;
  }
  const found = new ReadyWatch({ api: { watch: watch as never } }, () => now);
  await expect.poll(() => isOver).toBe(true);
  now = end;
  await found.stop();
  return found;
}

test('a node that is Ready, and whose kubelet renews its Lease, has no break', async () => {
  const { breaks, seen } = await watched([[0, node('True')]], [10_000, 55_000], 60_000);
  expect([breaks, seen]).toEqual([[], 3]);
});

test.each(['False', 'Unknown'])('a moment with Ready=%s is a break, but not one of another node', async (status) => {
  const { breaks } = await watched(
    [
      [0, node('True')],
      [1, node(status)],
      [2, node('True')],
      [3, node(status, 'x')],
    ],
    [],
    3,
  );
  expect(breaks).toEqual([`1970-01-01T00:00:00.001Z: {"type":"Ready","status":"${status}"}`]);
});

test('a kubelet that is silent for longer than the grace period is a break, also at the end', async () => {
  expect((await watched([], [60_000], 60_000)).breaks).toEqual([
    '1970-01-01T00:01:00.000Z: kubelet was silent for 60 s',
  ]);
  expect((await watched([], [0], 51_000)).breaks).toEqual(['1970-01-01T00:00:51.000Z: kubelet was silent for 51 s']);
});

test('a watch that ends is a break, because later changes are not seen', async () => {
  const ended = new ReadyWatch({ api: { watch: async function* () {} as never } });
  await expect.poll(() => ended.breaks).toEqual(['the API server has ended a watch']);
});
