import { beforeEach, describe, expect, test } from 'vitest';
import { Lazy, SharedCall } from '../../src/core/shared-call.ts';

describe('SharedCall', () => {
  interface Made {
    readonly signal: AbortSignal;
    readonly resolve: (text: string) => void;
    readonly reject: (error: Error) => void;
  }

  let made: Made[];
  let shared: SharedCall<string>;

  beforeEach(() => {
    made = [];
    shared = new SharedCall((signal) => {
      const { promise, resolve, reject } = Promise.withResolvers<string>();
      made.push({ signal, resolve, reject });
      return promise;
    });
  });

  test('concurrent callers share one call, and later callers start another', async () => {
    const both = [shared.run(), shared.run(new AbortController().signal)];
    made[0]!.resolve('a');
    expect(await Promise.all(both)).toEqual(['a', 'a']);
    const failed = shared.run();
    made[1]!.reject(new Error('broken'));
    await expect(failed).rejects.toThrow('broken');
    expect(made).toHaveLength(2);
  });

  test('a caller that leaves does not wait, and the others get the result', async () => {
    const leaving = new AbortController();
    const gone = shared.run(leaving.signal);
    const stays = shared.run();
    leaving.abort(new Error('gone'));
    await expect(gone).rejects.toThrow('gone');
    expect(made[0]!.signal.aborted).toBe(false);
    made[0]!.resolve('a');
    expect(await stays).toBe('a');
  });

  test('a shared call ends when the last caller leaves, and the next caller starts another', async () => {
    const callers = [new AbortController(), new AbortController()];
    const waiting = callers.map(({ signal }) => shared.run(signal));
    for (const caller of callers) caller.abort(new Error('gone'));
    await Promise.all(waiting.map((one) => expect(one).rejects.toThrow('gone')));
    expect(made[0]!.signal.aborted).toBe(true);
    const next = shared.run();
    // The end of the first call does not end the second one.
    made[0]!.reject(new Error('ended'));
    await expect(shared.run(AbortSignal.abort(new Error('never began')))).rejects.toThrow('never began');
    made[1]!.resolve('b');
    expect(await next).toBe('b');
    expect(made).toHaveLength(2);
  });
});

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
  // The first caller that sees the failure starts the next load before the second caller sees it.
  const next = first[0]!.catch(() => value.get());
  await expect(first[0]).rejects.toThrow('no memory');
  await expect(first[1]).rejects.toThrow('no memory');
  expect(await used).toBeUndefined();
  const last = value.get();
  expect(loads).toHaveLength(2);
  loads[1]?.resolve('b');
  expect(await Promise.all([next, last])).toEqual(['b', 'b']);
});
