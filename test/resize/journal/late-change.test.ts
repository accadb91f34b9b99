import { expect, test } from 'vitest';
import { LONGEST_CHANGE_MS, LateChange, inTime } from '../../../src/resize/journal/late-change.ts';
import { PodJournal } from '../../../src/resize/journal/pod-journal.ts';
import type { Journal } from '../../../src/resize/journal/store.ts';
import { Code, Reason, ShimError } from '../../../src/core/errors/index.ts';
import { FakeClock } from '../../support/resize/fake-resizes.ts';
import { SANDBOX, FakeRuntime } from '../../support/fake-runtime.ts';

test('M5: a change is waited for at most the limit, and leaves no timer if it is in time', async () => {
  const clock = new FakeClock();
  await inTime(Promise.resolve(), clock);
  expect(clock.next).toBeUndefined();
  const late = inTime(new Promise(() => undefined), clock);
  clock.pass(LONGEST_CHANGE_MS);
  await expect(late).rejects.toThrow(LateChange);
});

test('M5: a transaction that could not begin in time does not stay in the journal when the disk returns', async () => {
  const runtime = await FakeRuntime.start();
  runtime.makePod('300', [100, 200]);
  const pod = (await runtime.context.registry.pod(SANDBOX))!;
  const asked: string[] = [];
  const late = new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.JOURNAL_UNAVAILABLE,
    'late',
    {},
    { cause: new LateChange() },
  );
  const hanging = {
    load: () => Promise.resolve([]),
    write: () => (asked.push('write'), Promise.reject(late)),
    remove: () => (asked.push('remove'), Promise.resolve()),
  };
  const journal = new PodJournal(Promise.resolve(hanging as unknown as Journal));
  await expect(journal.begin(pod, [], { volumes: new Map() })).rejects.toBe(late);
  expect(journal.unfinished()).toEqual([]);
  // Behind the write that may still reach the disk.
  await expect.poll(() => asked).toEqual(['write', 'remove']);
  await runtime.close();
});
