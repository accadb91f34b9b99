import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { countersFields, createCounters } from '../../../src/core/observe/counters.ts';

describe('counters', () => {
  test('KEP-6030: remounts of volumes are counted by direction and result, and other events by their labels', () => {
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

  test('counters of series that alerts use start at 0, so that the first event is an increase', () => {
    const initial = createCounters().families.flatMap((family) =>
      [...family.series()].map(({ labels }) =>
        [family.description.name.replace('cri_resize_shim_', ''), ...labels].join(' '),
      ),
    );
    expect(initial.filter((series) => series.includes(' '))).toEqual([
      ...['unknown_pod', 'unreadable_state', 'undecodable', 'amend_failed'].map(
        (reason) => `fail_open_total ${reason}`,
      ),
      ...[
        'PROTOCOL_ERROR',
        'INTERNAL_ERROR',
        'FLOW_CONTROL_ERROR',
        'STREAM_CLOSED',
        'FRAME_SIZE_ERROR',
        'COMPRESSION_ERROR',
        'ENHANCE_YOUR_CALM',
        'UNKNOWN',
      ].map((code) => `protocol_errors_total ${code}`),
      ...['undone', 'failed'].map((outcome) => `undos_total ${outcome}`),
      ...['finished', 'undone', 'gone', 'failed'].map((outcome) => `recoveries_total ${outcome}`),
      ...['done', 'not_reclaimable', 'timeout', 'failed'].map((outcome) => `reclaim_duration_seconds ${outcome}`),
      ...['bad_record', 'newer_record', 'unread_record', 'unavailable'].map((fault) => `journal_faults_total ${fault}`),
      ...['unreadable', 'stuck', 'held', 'unstuck', 'deferred', 'given_up'].map(
        (event) => `foresight_events_total ${event}`,
      ),
      ...['slow_reader', 'rate'].map((reason) => `log_lines_dropped_total ${reason}`),
      ...['other_pod', 'not_static', 'duplicate_uid', 'too_large'].map(
        (reason) => `pod_objects_ignored_total ${reason}`,
      ),
      ...[
        'connections',
        'handshake',
        'streams',
        'handled_calls',
        'requests',
        'decompressed',
        'lingering',
        'page_streams',
        'page_updates',
      ].map((budget) => `refused_total ${budget}`),
    ]);
    const { failOpen, journalFaults, foresight } = createCounters().snapshot();
    expect([failOpen, journalFaults, foresight]).toEqual([{}, {}, {}]);
  });

  test('each series whose increase an alert of deploy/alerts.yaml compares starts at 0', () => {
    const { groups } = parse(readFileSync('deploy/alerts.yaml', 'utf8')) as { groups: { rules: { expr: string }[] }[] };
    const rules = groups.flatMap((group) => group.rules.map(({ expr }) => expr)).join('\n');
    const compared = [...rules.matchAll(/increase\((\w+?)(?:_count)?(?:\{(\w+)="(\w+)"\})?\[/g)];
    expect(compared.length).toBe(rules.split('increase(').length - 1);
    const { families } = createCounters();
    for (const [, name, label = '', value] of compared) {
      const family = families.find(({ description }) => description.name === name);
      const at = family?.description.labels.indexOf(label) ?? -1;
      const initial = [...(family?.series() ?? [])].filter(({ labels }) => value === undefined || labels[at] === value);
      expect(initial, `${name} ${value ?? ''}`).not.toEqual([]);
    }
  });

  test('counters have a bounded number of labels', () => {
    const counters = createCounters();
    for (let index = 0; index < 10_000; index += 1) {
      counters.protocolError(`E${index}`);
      counters.interceptedCall(`/m/${index}`, index % 17, 1);
    }
    const { protocolErrors, interceptedCalls } = counters.snapshot();
    expect(Object.keys(protocolErrors)).toHaveLength(257 - 8);
    expect(interceptedCalls.length).toBeLessThan(256 + 18);
    expect(Object.values(protocolErrors).reduce((sum, count) => sum + count)).toBe(10_000);
    expect(interceptedCalls.reduce((sum, { count }) => sum + count, 0)).toBe(10_000);
  });
});
