import { expect, test } from 'vitest';
import { decodeUpdate } from '../../../src/server/handlers/update-resources.ts';
import { withEntries } from '../../e2e/resize/bad-input/bytes.ts';
import { FakeRuntime } from '../../support/fake-runtime.ts';

const LONGEST = 512 * 1024;
const NAME = 'UpdateContainerResourcesRequest';

test('rejects an update above 512 KiB without decoding it, and forwards one that cannot be decoded', async () => {
  const runtime = await FakeRuntime.start();
  const { node, failOpens } = runtime;
  // These bytes are no message. The length is checked before they are decoded.
  expect(() => decodeUpdate(node.failOpen, NAME, Buffer.alloc(LONGEST + 1, 0xff))).toThrow(
    `${NAME}: ${LONGEST + 1} bytes: an update has at most ${LONGEST} bytes`,
  );
  expect(failOpens).toEqual([]);
  expect(decodeUpdate(node.failOpen, NAME, Buffer.alloc(LONGEST, 0xff))).toBeUndefined();
  expect(failOpens).toEqual(['undecodable']);
  await runtime.close();
});

// decode.speed.test.ts measures how long that takes.
test('decodes an update of almost the largest size that consists of map keys', async () => {
  const runtime = await FakeRuntime.start();
  const longest = withEntries(44_000, 'id', [2, 9]);
  expect(longest.length).toBeGreaterThan(LONGEST * 0.9);
  expect(Object.keys(decodeUpdate(runtime.node.failOpen, NAME, longest)?.linux?.unified ?? {})).toHaveLength(44_000);
  await runtime.close();
});
