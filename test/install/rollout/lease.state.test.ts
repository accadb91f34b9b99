import { describe, expect, test } from 'vitest';
import {
  FAILED,
  HALTED,
  halted,
  haltOf,
  isRemoval,
  type Lease,
  releasedBy,
  revisionOf,
  takenBy,
  turnsOf,
  VOUCHED,
  vouchedFor,
  vouchedOf,
} from '../../../src/install/rollout/lease.ts';

const TURNS = 'cri-resize-shim.io/turns';
const AT = Date.parse('2026-01-01T00:00:00Z');
const free: Lease = { metadata: { resourceVersion: '7' }, spec: { leaseTransitions: 3 } };
const taken = (lease: Lease, ...nodes: readonly string[]): Lease =>
  nodes.reduce(
    (before, node, index) =>
      takenBy(before, node, { durationMs: 300_000, work: 'install', revision: '' }, AT + index * 1000),
    lease,
  );

describe('turns in the Lease', () => {
  test('the Lease names all nodes with a turn as its holder, for kubectl, and the time of each renewal', () => {
    const lease = taken(free, 'a', 'b');
    expect(lease.spec).toEqual({
      ...{ holderIdentity: 'a,b', leaseDurationSeconds: 300, leaseTransitions: 5 },
      ...{ acquireTime: '2026-01-01T00:00:01.000000Z', renewTime: '2026-01-01T00:00:01.000000Z' },
    });
    expect(turnsOf(lease)).toEqual({ a: '2026-01-01T00:00:00.000000Z', b: '2026-01-01T00:00:01.000000Z' });
    expect(lease.metadata.resourceVersion).toBe('7');
  });

  test('turns are renewed without a transition of the Lease, and end one by one', () => {
    const renewed = takenBy(
      taken(free, 'a', 'b'),
      'a',
      { durationMs: 300_000, work: 'install', revision: '' },
      AT + 60_000,
    );
    expect(renewed.spec?.leaseTransitions).toBe(5);
    expect(turnsOf(renewed)).toMatchObject({ a: '2026-01-01T00:01:00.000000Z' });
    const last = releasedBy(renewed, 'a', AT);
    expect(Object.keys(turnsOf(last))).toEqual(['b']);
    const none = releasedBy(last, 'b', AT);
    expect([turnsOf(none), none.spec?.holderIdentity, none.metadata.annotations]).toEqual([{}, undefined, {}]);
  });

  test('the Lease marks turns that are removals', () => {
    const turns = takenBy(taken(free, 'a'), 'b', { durationMs: 300_000, work: 'uninstall', revision: '' }, AT);
    expect(turnsOf(turns)).toEqual({ a: '2026-01-01T00:00:00.000000Z', b: '2026-01-01T00:00:00.000000Z removal' });
    expect(Object.values(turnsOf(turns)).map(isRemoval)).toEqual([false, true]);
  });

  test.each([
    ['install', '', '', undefined],
    ['install', 'r1', ' revision=r1', 'r1'],
    ['uninstall', 'r1', ' revision=r1 removal', 'r1'],
    ['install', 'two words', ' revision=two words', 'two words'],
    ['install', 'removal', ' revision=removal', 'removal'],
  ] as const)('a turn for the work %s has the revision "%s" of the pod', (work, revision, text, read) => {
    const { a = '' } = turnsOf(takenBy(free, 'a', { durationMs: 300_000, work, revision }, AT));
    expect(a).toBe(`2026-01-01T00:00:00.000000Z${text}`);
    expect([revisionOf(a), isRemoval(a)]).toEqual([read, work === 'uninstall']);
  });

  test('a turn of a removal by an older installer has no revision', () => {
    expect(['2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z removal', ''].map(revisionOf)).toEqual([
      ...[undefined, undefined, undefined],
    ]);
  });

  test.each([
    ['its holder alone, as an older installer writes it', undefined],
    ['an older annotation, after an older installer has written the holder', '{"x":"2026-01-01T00:00:00Z"}'],
  ])('the turns of a Lease are read from %s', (_, text) => {
    const annotations = text === undefined ? {} : { [TURNS]: text };
    const lease = { metadata: { annotations }, spec: { holderIdentity: 'old', renewTime: 't' } };
    expect(turnsOf(lease)).toEqual({ old: 't' });
  });

  test.each(['', '{', '[]', '{"a":1}'])(
    'turns that are not valid (%j) cause an error that names the annotation',
    (text) => {
      const lease = { metadata: { annotations: { [TURNS]: text } }, spec: { holderIdentity: 'a' } };
      expect(() => turnsOf(lease)).toThrow(`annotation ${TURNS} of the Lease is not valid`);
    },
  );
});

describe('a halt', () => {
  const of = (lease: Lease, ...revisions: readonly string[]): unknown[] =>
    revisions.map((revision) => haltOf(lease, revision));

  test('a halt binds its revision, and installers that do not know their revision', () => {
    expect(of(halted(free, 'a: x', 'r2'), 'r2', 'r1', '')).toEqual(['a: x', undefined, 'a: x']);
  });

  test('a halt of one revision does not end the halt of another revision or of an operator', () => {
    const both = halted(halted(free, 'a: x', 'r2'), 'b: y', 'r1');
    expect(of(both, 'r2', 'r1', 'r3', '')).toEqual(['a: x', 'b: y', undefined, 'b: y']);
    const stopped = { metadata: { annotations: { [HALTED]: 'by hand' } } };
    for (const lease of [halted(stopped, 'b: y', 'r1'), halted(stopped, 'b: y', '')])
      expect(of(lease, 'r1', 'r5', '')).toEqual(['by hand', 'by hand', 'by hand']);
  });

  test('a halt without a revision binds all revisions', () => {
    const lease = halted(halted(free, 'a: x', 'r2'), 'b: y', '');
    expect(of(lease, 'r2', 'r1', '')).toEqual(['b: y', 'b: y', 'b: y']);
  });

  test('halts are stored for the five revisions that failed last, with at most 1,000 characters each', () => {
    let lease = free;
    for (const revision of ['r1', 'r2', 'r3', 'r4', 'r5', 'r1', 'r6'])
      lease = halted(lease, 'x'.repeat(2000), revision);
    const failed = JSON.parse(lease.metadata.annotations?.[FAILED] ?? '') as Record<string, string>;
    expect(Object.keys(failed)).toEqual(['r3', 'r4', 'r5', 'r1', 'r6']);
    expect(new Set(Object.values(failed).map(({ length }) => length))).toEqual(new Set([1000]));
  });

  test('a halt that is not valid causes an error that names the annotation', () => {
    const lease = { metadata: { annotations: { [FAILED]: 'r1' } } };
    expect(() => haltOf(lease, 'r2')).toThrow(`annotation ${FAILED} of the Lease is not valid`);
  });
});

describe('canaries', () => {
  test('canaries vouch for a revision once each, and the last five revisions are stored', () => {
    let lease = vouchedFor(vouchedFor(vouchedFor(free, 'r0', 'a', 3), 'r0', 'b', 3), 'r0', 'a', 3);
    expect(vouchedOf(lease, 'r0')).toEqual(['a', 'b']);
    for (const revision of ['r1', 'r2', 'r3', 'r4', 'r5']) lease = vouchedFor(lease, revision, 'a', 3);
    expect(Object.keys(JSON.parse(lease.metadata.annotations?.[VOUCHED] ?? '') as object)).toEqual([
      ...['r1', 'r2', 'r3', 'r4', 'r5'],
    ]);
    expect(vouchedOf(lease, 'r0')).toEqual([]);
  });

  test('canaries are recorded until enough of them vouch, even if a thousand pass concurrently', () => {
    let lease = free;
    for (let index = 0; index < 1000; index += 1) lease = vouchedFor(lease, 'r1', `node-${index}`, 2);
    expect(vouchedOf(lease, 'r1')).toEqual(['node-0', 'node-1']);
  });

  test('canaries that are not valid cause an error that names the annotation', () => {
    const lease = { metadata: { annotations: { [VOUCHED]: '{"r1":"a"}' } } };
    expect(() => vouchedOf(lease, 'r1')).toThrow(`annotation ${VOUCHED} of the Lease is not valid`);
  });
});
