import { describe, expect, test } from 'vitest';
import type { Lease } from '../../../../src/install/rollout/turns/lease.ts';
import {
  HALTED,
  REVISION,
  VOUCHED,
  haltOf,
  halted,
  releasedBy,
  resumed,
  takenBy,
  turnsOf,
  vouchedFor,
  vouchedOf,
} from '../../../../src/install/rollout/turns/state.ts';

const TURNS = 'cri-resize-shim.io/turns';
const AT = Date.parse('2026-01-01T00:00:00Z');
const free: Lease = { metadata: { resourceVersion: '7' }, spec: { leaseTransitions: 3 } };
const taken = (lease: Lease, ...nodes: readonly string[]): Lease =>
  nodes.reduce((before, node, index) => takenBy(before, node, 300_000, AT + index * 1000), lease);

describe('turns in the Lease', () => {
  test('name all nodes as its holder, for kubectl, and the time of each renewal', () => {
    const lease = taken(free, 'a', 'b');
    expect(lease.spec).toEqual({
      ...{ holderIdentity: 'a,b', leaseDurationSeconds: 300, leaseTransitions: 5 },
      ...{ acquireTime: '2026-01-01T00:00:01.000000Z', renewTime: '2026-01-01T00:00:01.000000Z' },
    });
    expect(turnsOf(lease)).toEqual({ a: '2026-01-01T00:00:00.000000Z', b: '2026-01-01T00:00:01.000000Z' });
    expect(lease.metadata.resourceVersion).toBe('7');
  });

  test('are renewed without a transition, and end one by one', () => {
    const renewed = takenBy(taken(free, 'a', 'b'), 'a', 300_000, AT + 60_000);
    expect(renewed.spec?.leaseTransitions).toBe(5);
    expect(turnsOf(renewed)).toMatchObject({ a: '2026-01-01T00:01:00.000000Z' });
    const last = releasedBy(renewed, 'a', AT);
    expect(Object.keys(turnsOf(last))).toEqual(['b']);
    const none = releasedBy(last, 'b', AT);
    expect([turnsOf(none), none.spec?.holderIdentity, none.metadata.annotations]).toEqual([{}, undefined, {}]);
  });

  test.each([
    ['its holder alone, as an older installer writes it', undefined],
    ['an older annotation, after an older installer has written the holder', '{"x":"2026-01-01T00:00:00Z"}'],
  ])('are read from %s', (_, text) => {
    const annotations = text === undefined ? {} : { [TURNS]: text };
    const lease = { metadata: { annotations }, spec: { holderIdentity: 'old', renewTime: 't' } };
    expect(turnsOf(lease)).toEqual({ old: 't' });
  });

  test.each(['', '{', '[]', '{"a":1}'])('that are not valid (%j) are an error that names the annotation', (text) => {
    const lease = { metadata: { annotations: { [TURNS]: text } }, spec: { holderIdentity: 'a' } };
    expect(() => turnsOf(lease)).toThrow(`annotation ${TURNS} of the Lease is not valid`);
  });
});

describe('a halt', () => {
  test('binds its revision, and those who do not know theirs', () => {
    const lease = halted(free, 'a: x', 'r2');
    expect(['r2', 'r1', ''].map((revision) => haltOf(lease, revision))).toEqual(['a: x', undefined, 'a: x']);
    expect(resumed(lease).metadata.annotations).toEqual({});
  });

  test('without a revision binds all of them', () => {
    const lease = halted(halted(free, 'a: x', 'r2'), 'by hand', '');
    expect(lease.metadata.annotations).toEqual({ [HALTED]: 'by hand' });
    expect(['r2', 'r1', ''].map((revision) => haltOf(lease, revision))).toEqual(['by hand', 'by hand', 'by hand']);
    expect(lease.metadata.annotations?.[REVISION]).toBeUndefined();
  });
});

describe('canaries', () => {
  test('vouch for a revision once each, and the last five revisions are remembered', () => {
    let lease = vouchedFor(vouchedFor(vouchedFor(free, 'r0', 'a'), 'r0', 'b'), 'r0', 'a');
    expect(vouchedOf(lease, 'r0')).toEqual(['b', 'a']);
    for (const revision of ['r1', 'r2', 'r3', 'r4', 'r5']) lease = vouchedFor(lease, revision, 'a');
    expect(Object.keys(JSON.parse(lease.metadata.annotations?.[VOUCHED] ?? '') as object)).toEqual([
      ...['r1', 'r2', 'r3', 'r4', 'r5'],
    ]);
    expect(vouchedOf(lease, 'r0')).toEqual([]);
  });

  test('that are not valid are an error that names the annotation', () => {
    const lease = { metadata: { annotations: { [VOUCHED]: '{"r1":"a"}' } } };
    expect(() => vouchedOf(lease, 'r1')).toThrow(`annotation ${VOUCHED} of the Lease is not valid`);
  });
});
