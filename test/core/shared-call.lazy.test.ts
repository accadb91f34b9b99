import { expect, test } from 'vitest';
import { Lazy } from '../../src/core/shared-call.ts';

/** A value whose loads end when the test says so. */
function lazy(): { value: Lazy<string>; loads: PromiseWithResolvers<string>[] } {
  const loads: PromiseWithResolvers<string>[] = [];
  const value = new Lazy(() => {
    const load = Promise.withResolvers<string>();
    loads.push(load);
    return load.promise;
  });
  return { value, loads };
}

test('concurrent and later uses of a lazy value share one load', async () => {
  const { value, loads } = lazy();
  expect(await value.ifUsed()).toBeUndefined();
  expect(loads).toHaveLength(0);
  const uses = [value.get(), value.get()];
  loads[0]?.resolve('a');
  expect(await Promise.all(uses)).toEqual(['a', 'a']);
  expect([await value.get(), await value.ifUsed(), loads.length]).toEqual(['a', 'a', 1]);
});

test('a failed load rejects its uses, and the next use loads again', async () => {
  const { value, loads } = lazy();
  const first = [value.get(), value.get()];
  const used = value.ifUsed();
  loads[0]?.reject(new Error('no memory'));
  // The first use that sees the failure starts the next load before the second one sees it.
  const next = first[0]!.catch(() => value.get());
  await expect(first[0]).rejects.toThrow('no memory');
  await expect(first[1]).rejects.toThrow('no memory');
  expect(await used).toBeUndefined();
  const last = value.get();
  expect(loads).toHaveLength(2);
  loads[1]?.resolve('b');
  expect(await Promise.all([next, last])).toEqual(['b', 'b']);
});
