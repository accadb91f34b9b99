import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { decode, decodeList, encode } from '../../src/runtime/codec.ts';

const listOf = (count: number): Buffer =>
  encode('ListContainersResponse', {
    containers: Array.from({ length: count }, (_, index) => ({
      id: `container-${index}`,
      pod_sandbox_id: `sandbox-${index % 7}`,
      metadata: { name: 'web' },
      created_at: BigInt(index),
      labels: { 'io.kubernetes.pod.namespace': 'default', 'io.kubernetes.container.name': 'web' },
    })),
  });

/** Returns the number of turns of the event loop that the decoding takes. */
async function turnsOf(list: Buffer): Promise<number> {
  let turns = 0;
  const decoding = decodeList('ListContainersResponse', list);
  const ended = decoding.then(() => true);
  while (!(await Promise.race([ended, nextTurn(false)]))) turns += 1;
  expect(await decoding).toEqual(decode('ListContainersResponse', list));
  return turns;
}

test('a list is decoded like any message, and a long one takes several turns of the event loop', async () => {
  expect(await turnsOf(listOf(0))).toBeLessThan(3);
  expect(await turnsOf(listOf(100))).toBeLessThan(3);
  const long = listOf(2000);
  expect(long.length).toBeGreaterThan(200 * 1024);
  expect(await turnsOf(long)).toBeGreaterThan(5);
  // The message also contains an unknown field.
  expect(await turnsOf(Buffer.concat([long, Buffer.from([0x78, 0x05])]))).toBeGreaterThan(5);
});

test.each([
  ['is truncated', listOf(2000).subarray(0, 100_000 + 1)],
  ['contains an invalid item', Buffer.concat([listOf(2000), Buffer.from([0x0a, 0x02, 0x0a, 0x05])])],
])('a long list that %s is rejected', async (_, bytes) => {
  expect(() => decode('ListContainersResponse', bytes)).toThrow(RangeError);
  await expect(decodeList('ListContainersResponse', bytes)).rejects.toThrow(RangeError);
});
