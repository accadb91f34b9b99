import { expect, test } from 'vitest';
import { Counter, Histogram, Reading } from '../../src/core/observe/family.ts';
import { expositionOf } from '../../src/monitoring/metrics.ts';

const described = <const Labels extends readonly string[]>(
  type: 'counter' | 'gauge' | 'histogram',
  name: string,
  labels: Labels,
) => ({ type, name, labels, help: `What ${name} is.` });

test('each series of a counter or gauge is one line with escaped labels', () => {
  const counter = new Counter(described('counter', 'a_total', ['one', 'two']));
  counter.add(['x', 'y']);
  counter.add(['x', 'y'], 2);
  counter.add(['back\\slash', 'quote " and\nline']);
  const reading = new Reading(described('gauge', 'b', []), () => [[[], 1.5]]);
  expect(expositionOf([counter, reading])).toBe(`# HELP a_total What a_total is.
# TYPE a_total counter
a_total{one="x",two="y"} 3
a_total{one="back\\\\slash",two="quote \\" and\\nline"} 1
# HELP b What b is.
# TYPE b gauge
b 1.5
`);
});

test('the buckets of a histogram are cumulative, and +Inf counts all observations', () => {
  const histogram = new Histogram(described('histogram', 'c_seconds', ['kind']));
  for (const seconds of [0.0001, 0.00011, 0.3, 29, 31]) histogram.observe(['x'], seconds);
  const lines = expositionOf([histogram]).split('\n');
  expect(lines.slice(2)).toEqual([
    ...[
      ['0.0001', 1],
      ['0.0005', 2],
      ['0.001', 2],
      ['0.005', 2],
      ['0.01', 2],
      ['0.05', 2],
      ['0.1', 2],
      ['0.5', 3],
      ['1', 3],
      ['5', 3],
      ['30', 4],
      ['+Inf', 5],
    ].map(([bound, count]) => `c_seconds_bucket{kind="x",le="${bound}"} ${count}`),
    'c_seconds_sum{kind="x"} 60.30021',
    'c_seconds_count{kind="x"} 5',
    '',
  ]);
});

test('a family without labels starts at 0; one with labels has no series until the first event', () => {
  const one = new Counter(described('counter', 'a_total', []));
  const other = new Counter(described('counter', 'b_total', ['label']));
  expect(expositionOf([one, other]).match(/^[^#].*/gm)).toEqual(['a_total 0']);
});
