import { describe, expect, test } from 'vitest';
import { countersFields, createCounters } from '../../src/observe/counters.ts';
import { createLog } from '../../src/observe/log.ts';
import { oncePerKey } from '../../src/observe/once.ts';

describe('the log', () => {
  const lines: string[] = [];
  const write = (level: 'debug' | 'warn'): Record<string, unknown>[] => {
    lines.length = 0;
    const log = createLog({ level, destination: { write: (line) => void lines.push(line) } });
    log.debug({ a: 1 }, 'one');
    log.info({ b: 'x', list: ['p', 'q'], none: undefined }, 'two');
    log.warn({}, 'three');
    log.error({ ok: false }, 'four');
    return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  };

  test('is one JSON object a line, with level by name and time in ISO 8601', () => {
    const [first, second] = write('debug');
    expect(first).toEqual({ level: 'debug', time: first?.['time'], a: 1, msg: 'one' });
    expect(second).toEqual({ level: 'info', time: second?.['time'], b: 'x', list: ['p', 'q'], msg: 'two' });
    expect(new Date(String(first?.['time'])).toISOString()).toBe(first?.['time']);
    expect(lines.every((line) => line.endsWith('\n') && line.indexOf('\n') === line.length - 1)).toBe(true);
  });

  test('leaves out what is below its level', () => {
    expect(write('warn').map(({ msg }) => msg)).toEqual(['three', 'four']);
  });
});

describe('counters', () => {
  test('count by label', () => {
    const counters = createCounters();
    counters.failOpen('unknown_pod');
    counters.failOpen('unknown_pod');
    counters.failOpen('undecodable');
    counters.interceptedCall('/a/B', 0, 1.5);
    counters.interceptedCall('/a/B', 0, 2);
    counters.interceptedCall('/a/B', 9, 1);
    counters.protocolError('PROTOCOL_ERROR');
    counters.journalFault('unavailable');
    counters.journalFault('unavailable');
    counters.journalFault('bad_record');
    counters.passedCall('/a/C', 'answered');
    counters.resize('Completed', 'up');
    counters.resize('Deferred', 'down');
    counters.resize('Completed', 'up');
    counters.remount('grow', 'done');
    counters.remount('shrink', 'refused');
    counters.remount('grow', 'done');
    counters.foresight('stuck');
    counters.foresight('stuck');
    counters.foresight('unstuck');
    counters.foresightReclaimed(4096);
    counters.foresightReclaimed(8192);
    expect(counters.snapshot()).toEqual({
      failOpen: { unknown_pod: 2, undecodable: 1 },
      interceptedCalls: [
        { method: '/a/B', code: 'OK', count: 2, milliseconds: 3.5 },
        { method: '/a/B', code: 'FAILED_PRECONDITION', count: 1, milliseconds: 1 },
      ],
      passedCalls: 1,
      protocolErrors: { PROTOCOL_ERROR: 1 },
      journalFaults: { unavailable: 2, bad_record: 1 },
      resizes: { 'Completed up': 2, 'Deferred down': 1 },
      remounts: { 'grow done': 2, 'shrink refused': 1 },
      foresight: { stuck: 2, unstuck: 1 },
      foresightReclaimedBytes: 12288,
    });
    expect(countersFields(counters.snapshot())).toEqual({
      failOpen: ['unknown_pod 2', 'undecodable 1'],
      interceptedCalls: ['/a/B code OK: 2, 4 ms', '/a/B code FAILED_PRECONDITION: 1, 1 ms'],
      protocolErrors: ['PROTOCOL_ERROR 1'],
      journalFaults: ['bad_record 1', 'unavailable 2'],
      resizes: ['Completed up 2', 'Deferred down 1'],
      foresight: ['stuck 2', 'unstuck 1'],
      foresightReclaimedBytes: 12288,
      passedCalls: 1,
      remounts: ['grow done 2', 'shrink refused 1'],
    });
  });

  test('start at 0 for what alerts use, so that the first event is an increase', () => {
    const begun = createCounters().families.flatMap((family) =>
      [...family.series()].map(({ labels }) =>
        [family.description.name.replace('cri_resize_shim_', ''), ...labels].join(' '),
      ),
    );
    expect(begun.filter((series) => series.includes(' '))).toEqual([
      ...['unknown_pod', 'unreadable_state', 'undecodable', 'amend_failed'].map(
        (reason) => `fail_open_total ${reason}`,
      ),
      ...['undone', 'failed'].map((outcome) => `undos_total ${outcome}`),
      ...['finished', 'undone', 'gone', 'failed'].map((outcome) => `recoveries_total ${outcome}`),
      ...['bad_record', 'unavailable'].map((fault) => `journal_faults_total ${fault}`),
      ...['unreadable', 'stuck', 'unstuck', 'deferred', 'given_up'].map((event) => `foresight_events_total ${event}`),
    ]);
    const { failOpen, journalFaults, foresight } = createCounters().snapshot();
    expect([failOpen, journalFaults, foresight]).toEqual([{}, {}, {}]);
  });

  test('stay small when labels do not', () => {
    const counters = createCounters();
    for (let index = 0; index < 10_000; index += 1) {
      counters.protocolError(`E${index}`);
      counters.interceptedCall(`/m/${index}`, index % 17, 1);
    }
    const { protocolErrors, interceptedCalls } = counters.snapshot();
    expect(Object.keys(protocolErrors)).toHaveLength(257);
    expect(interceptedCalls.length).toBeLessThan(256 + 18);
    expect(Object.values(protocolErrors).reduce((sum, count) => sum + count)).toBe(10_000);
    expect(interceptedCalls.reduce((sum, { count }) => sum + count, 0)).toBe(10_000);
  });
});

describe('once per key', () => {
  test('is true the first time', () => {
    const first = oncePerKey();
    expect(['a', 'b', 'a', 'b', 'c'].map((key) => first(key))).toEqual([true, true, false, false, true]);
  });

  test('remembers the keys met last', () => {
    const first = oncePerKey(2);
    expect(['a', 'b', 'a', 'c', 'a', 'b'].map((key) => first(key))).toEqual([true, true, false, true, false, true]);
  });
});
