import { beforeEach, expect, test } from 'vitest';
import { SharedCall } from '../../src/core/shared-call.ts';

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
