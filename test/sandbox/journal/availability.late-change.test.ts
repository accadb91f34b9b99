import { describe, expect, test } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { inTime, LateChange, LONGEST_CHANGE_MS, LONGEST_WAIT_MS } from '../../../src/sandbox/journal/availability.ts';
import { PodJournal } from '../../../src/sandbox/journal/pod-journal.ts';
import type { PodRecord } from '../../../src/sandbox/journal/record.ts';
import type { Journal } from '../../../src/sandbox/journal/store.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

describe('M5: the wait for a change', () => {
  const never = new Promise<void>(() => undefined);
  const noEnd = (): number => -Infinity;

  test('the wait for a change leaves no timer if the change is in time', async () => {
    const clock = new FakeClock();
    await inTime({ done: Promise.resolve(), startedAt: undefined }, noEnd, clock);
    expect(clock.next).toBeUndefined();
  });

  test('the wait for a change ends once the change has run for 5 s, even if the disk makes other changes', async () => {
    const clock = new FakeClock();
    const late = inTime({ done: never, startedAt: clock.now() }, () => clock.now(), clock);
    clock.pass(LONGEST_CHANGE_MS);
    await expect(late).rejects.toThrow(new LateChange());
  });

  test('the wait for a change that has not started ends once the disk has made no other change for 5 s', async () => {
    const clock = new FakeClock();
    let lastEnd = -Infinity;
    const late = inTime({ done: never, startedAt: undefined }, () => lastEnd, clock);
    clock.pass(LONGEST_CHANGE_MS - 1);
    lastEnd = clock.now();
    clock.pass(1);
    expect(clock.next).toBe(LONGEST_CHANGE_MS - 1);
    clock.pass(LONGEST_CHANGE_MS - 1);
    await expect(late).rejects.toThrow('the disk takes longer than 5000 ms');
  });

  test('the wait for a change that does not start ends after 30 s', async () => {
    const clock = new FakeClock();
    const late = inTime({ done: never, startedAt: undefined }, () => clock.now(), clock);
    for (let waited = 0; waited < LONGEST_WAIT_MS; waited += 1000) clock.pass(1000);
    await expect(late).rejects.toThrow('the disk takes longer than 30000 ms');
  });
});

test('M5: a transaction that could not begin in time is removed from the journal when the disk returns', async () => {
  const runtime = await FakeRuntime.start();
  runtime.makePod('300', [100, 200]);
  const pod = (await runtime.node.registry.pod(SANDBOX))!;
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
    onLate: () => undefined,
    refusal: () => undefined,
    write: () => (asked.push('write'), Promise.reject(late)),
    remove: () => (asked.push('remove'), Promise.resolve()),
  };
  const journal = new PodJournal(Promise.resolve(hanging as unknown as Journal));
  await expect(journal.begin(pod, [], { volumes: new Map() })).rejects.toBe(late);
  expect(journal.unfinished()).toEqual([]);
  // The removal follows the write that may still reach the disk.
  await expect.poll(() => asked, LONG_WAIT).toEqual(['write', 'remove']);
  await runtime.close();
});

describe('two concurrent changes of a pod with a failure of the first', () => {
  const unavailable = new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, 'the disk is full');
  const late = new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.JOURNAL_UNAVAILABLE,
    'late',
    {},
    { cause: new LateChange() },
  );

  test.each([
    ['at once', unavailable],
    ['after a time', late],
  ])(
    'after a first change that fails %s, memory and disk contain only the second change of the pod',
    async (_when, fault) => {
      const runtime = await FakeRuntime.start();
      runtime.makePod('300', [100, 200]);
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      const disk: (PodRecord | undefined)[] = [];
      let fail = (): void => undefined;
      const hanging = new Promise<void>((_, reject) => (fail = () => reject(fault)));
      let writes = 0;
      const folder = {
        load: () => Promise.resolve([]),
        onLate: () => undefined,
        refusal: () => undefined,
        write: async (record: PodRecord) => {
          writes += 1;
          if (writes === 1) await hanging;
          disk.push(record);
        },
        remove: () => (disk.push(undefined), Promise.resolve()),
      };
      const journal = new PodJournal(Promise.resolve(folder as unknown as Journal));
      const deferred = journal.setResizes(pod.metadata.uid, ['a request']);
      await expect.poll(() => writes, LONG_WAIT).toBe(1);
      const beginning = journal.begin(pod, [], { volumes: new Map() });
      await new Promise(setImmediate);
      fail();
      await expect(deferred).rejects.toBe(fault);
      const open = await beginning;
      expect([journal.transactionOf(pod) === undefined, journal.resizes().get(pod.metadata.uid)]).toEqual([false, []]);
      await open.lowersHigh('/kubepods/pod1', 'max');
      expect(disk.at(-1)).toMatchObject({ transaction: { highs: [{ cgroup: '/kubepods/pod1', memoryHigh: 'max' }] } });
      expect(disk.at(-1)).not.toHaveProperty('resizes');
      await runtime.close();
    },
  );
});
