import { expect, test } from 'vitest';
import { decodeUpdate } from '../../../src/server/handlers/update-resources.ts';
import { withEntries } from '../../e2e/resize/bad-input/case.ts';
import { FakeRuntime } from '../../support/fake-runtime.ts';

const LONGEST = 512 * 1024;
const NAME = 'UpdateContainerResourcesRequest';

test('decodes an update of almost the largest size that consists of map keys in less than a second', async () => {
  const runtime = await FakeRuntime.start();
  const longest = withEntries(44_000, 'id', [2, 9]);
  expect(longest.length).toBeGreaterThan(LONGEST * 0.9);
  const start = performance.now();
  const keys = Object.keys(decodeUpdate(runtime.node.failOpen, NAME, longest)?.linux?.unified ?? {});
  expect(performance.now() - start).toBeLessThan(1000);
  expect(keys).toHaveLength(44_000);
  await runtime.close();
});
