import { expect, test } from 'vitest';
import { decodeUpdate } from '../../../src/server/handlers/decode.ts';
import { withEntries } from '../../e2e/resize/bad-input/bytes.ts';
import { FakeRuntime } from '../../support/fake-runtime.ts';

const MOST = 512 * 1024;
const name = 'UpdateContainerResourcesRequest';

test('rejects an update that is too long without decoding it, and leaves an undecodable one to the runtime', async () => {
  const runtime = await FakeRuntime.start();
  const { context, failOpens } = runtime;
  // No message at all: it is not looked at.
  expect(() => decodeUpdate(context, name, Buffer.alloc(MOST + 1, 0xff))).toThrow(
    `${name}: ${MOST + 1} bytes: an update has at most ${MOST} bytes`,
  );
  expect(failOpens).toEqual([]);
  expect(decodeUpdate(context, name, Buffer.alloc(MOST, 0xff))).toBeUndefined();
  expect(failOpens).toEqual(['undecodable']);
  await runtime.close();
});

test('decodes the longest accepted update, only map keys, in less than a second', async () => {
  const runtime = await FakeRuntime.start();
  const longest = withEntries(44_000, 'id', [2, 9]);
  expect(longest.length).toBeGreaterThan(MOST * 0.9);
  const start = performance.now();
  const keys = Object.keys(decodeUpdate(runtime.context, name, longest)?.linux?.unified ?? {});
  expect(performance.now() - start).toBeLessThan(1000);
  expect(keys).toHaveLength(44_000);
  await runtime.close();
});
