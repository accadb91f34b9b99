import { describe, expect, test } from 'vitest';
import { faultsOf } from './compare.ts';
import { configurationsOf } from './configurations.ts';
import type { Observation, Row } from './row.ts';

const row = (more: Partial<Row> = {}): Row => ({
  title: 'a row',
  pod: { containers: [] },
  steps: [],
  expected: { 'up: pod memory.max': '2' },
  ...more,
});
const up = (more: Observation = {}): Observation => ({ 'up: reached': 'yes', 'up: pod memory.max': '2', ...more });

describe('a row of the table', () => {
  test('a row has no fault if all fields are equal and as expected', () => {
    expect(faultsOf(row(), up(), up())).toEqual([]);
  });

  test('KEP-1287: a comparison of kubelet with and without the shim fails if a field differs or is on one side only', () => {
    expect(faultsOf(row(), up({ 'up: app cpu.weight': '4' }), up({ 'up: app restarts': '1' }))).toEqual([
      'up: app cpu.weight: 4 direct, (absent) through the shim',
      'up: app restarts: (absent) direct, 1 through the shim',
    ]);
  });

  test('KEP-1287: a comparison of kubelet with and without the shim fails if both sides are equal but not as expected', () => {
    const wrong = up({ 'up: pod memory.max': '1' });
    expect(faultsOf(row(), wrong, wrong)).toEqual([
      'up: pod memory.max: 1 direct, expected 2',
      'up: pod memory.max: 1 through the shim, expected 2',
    ]);
  });

  test('a row accepts each value that a side may have by timing, and fails with another value', () => {
    const wanted = [{ field: 'up: app ready', direct: ['false', 'true'], shim: 'true', reason: 'healed' }];
    const ready = up({ 'up: app ready': 'true' });
    expect(faultsOf(row({ wanted }), ready, ready)).toEqual([]);
    expect(faultsOf(row({ wanted }), up(), ready)).toEqual([
      'up: app ready: (absent) direct, expected false or true (healed)',
    ]);
  });

  test('a row accepts an absent field that is expected to be absent, and fails if the field exists', () => {
    const wanted = [{ field: 'up: answer', direct: undefined, shim: 'REASON', reason: 'only the shim has the call' }];
    const answered = up({ 'up: answer': 'REASON' });
    expect(faultsOf(row({ wanted }), up(), answered)).toEqual([]);
    expect(faultsOf(row({ wanted }), answered, answered)).toEqual([
      'up: answer: REASON direct, expected (absent) (only the shim has the call)',
    ]);
  });

  test('KEP-1287: a comparison of kubelet with and without the shim fails if both sides have timed out', () => {
    const waited = up({ 'up: reached': 'timed out' });
    expect(faultsOf(row(), waited, waited)).toEqual(['up: reached: timed out on both sides']);
  });

  test('a row fails if one side has timed out, and ignores later fields of the other side', () => {
    const waited: Observation = { 'up: reached': 'timed out', 'up: pod memory.max': '2' };
    const faults = faultsOf(row(), up({ 'down: reached': 'yes', 'down: pod memory.max': '1' }), waited);
    expect(faults).toEqual(['up: reached: yes direct, timed out through the shim']);
  });

  test('KEP-1287: a comparison of kubelet with and without the shim fails if a side lacks its value of an expected difference', () => {
    const wanted = [{ field: 'up: volume', direct: '1Mi', shim: '2Mi', reason: 'it grows' }];
    expect(faultsOf(row({ wanted }), up({ 'up: volume': '1Mi' }), up({ 'up: volume': '2Mi' }))).toEqual([]);
    expect(faultsOf(row({ wanted }), up({ 'up: volume': '2Mi' }), up())).toEqual([
      'up: volume: 2Mi direct, expected 1Mi (it grows)',
      'up: volume: (absent) through the shim, expected 2Mi (it grows)',
    ]);
  });

  test('a row does not compare ignored fields', () => {
    const ignored = { 'up: app restarts': 'a matter of time' };
    expect(faultsOf(row({ ignored }), up({ 'up: app restarts': '1' }), up())).toEqual([]);
    const all = { 'up: app *': 'a matter of time' };
    expect(faultsOf(row({ ignored: all }), up({ 'up: app restarts': '1' }), up())).toEqual([]);
    expect(faultsOf(row({ ignored: all }), up({ 'up: apple restarts': '1' }), up())).toHaveLength(1);
  });

  test('a row fails if a side has an error instead of an observation', () => {
    const lost = { error: 'the node has left no observation' };
    expect(faultsOf(row(), up(), lost)).toEqual(['through the shim: the node has left no observation']);
    expect(faultsOf(row(), lost, lost)).toHaveLength(2);
  });
});

test('each row has a unique title and states values that both sides have to reach', () => {
  const all = (['pods', 'volumes'] as const).flatMap((table) => configurationsOf('1.37', 'uml', table));
  for (const { name, rows } of all) {
    expect(new Set(rows.map(({ title }) => title)).size, name).toBe(rows.length);
    for (const { title, steps, expected, wanted = [], ignored = {} } of rows) {
      expect(Object.keys(expected), title).not.toEqual([]);
      // The observation after a wait reports whether it timed out.
      expect(steps.at(-1)?.kind, title).toMatch(/^observe/);
      const labels = steps.flatMap((step) => ('label' in step ? [step.label] : []));
      const fields = [expected, ignored].flatMap(Object.keys).concat(wanted.map(({ field }) => field));
      for (const field of fields) expect(labels, `${title}: ${field}`).toContain(field.split(':', 1)[0]);
    }
  }
});

test('a row is only compared between both sides for a release that it is not written for', () => {
  const late = { 'up: reached': 'no: timed out', 'up: pod memory.max': '1' };
  expect(faultsOf(row(), late, late)).toHaveLength(3);
  expect(faultsOf(row(), late, late, false)).toEqual([]);
  expect(faultsOf(row(), { ...late, 'up: pod memory.max': '3' }, late, false)).toEqual([
    'up: pod memory.max: 3 direct, 1 through the shim',
  ]);
});

test('a configuration that a release of kubelet does not have is not run', () => {
  const names = (kubernetes: '1.35' | '1.36'): readonly string[] =>
    configurationsOf(kubernetes, 'uml').map(({ name }) => name);
  expect(names('1.36')).toContain('MemoryQoS with TieredReservation');
  expect(names('1.35')).not.toContain('MemoryQoS with TieredReservation');
});
