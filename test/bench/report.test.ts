import { expect, test } from 'vitest';
import { json, table } from '../../bench/report.ts';
import { measurement, results, side, work } from './results.ts';

const run = results({
  measurements: [measurement('Version', 1, side(150, 6600)), measurement('Version', 16, side(160, 7000), 'frames')],
  workResults: [
    { ...work('ResizePod of 3 containers', 3.25), p99: 12.5 },
    work('  of all, in fsync', 1),
    work('Packaged daemon, first answer', 99.5, 'ms', 'Node 26.10.0'),
  ],
});

test('table prints aligned columns, and each limit with its figure', () => {
  const text = table(run);
  const lines = text.split('\n');
  expect(lines[1]).toMatch(/^Version +grpc-go +1 +direct +100 +200 +10000 +31\.3$/);
  expect(lines[3]).toMatch(/^ +shim +150 +300 +6600 +31\.3 +1\.50 +0\.66$/);
  expect(lines[6]?.indexOf('7000')).toBe(lines[3]?.indexOf('6600'));
  expect(text).toMatch(/^ResizePod of 3 containers +3\.25 +12\.50 +ms$/m);
  expect(text).toMatch(/^ {2}of all, in fsync +1\.00 +ms$/m);
  expect(text).toMatch(/^Packaged daemon, first answer \(Node 26\.10\.0\) +99\.50 +ms$/m);
  expect(text).toMatch(
    /^Version, 1 in flight: time that the shim adds +at most 1\.5 +2\.50 +times the relay's +NOT MET$/m,
  );
  expect(text).toMatch(/^Packaged daemon, first answer +at most 100 +99\.50 +ms +met$/m);
});

test('json prints everything in one object, with the limits', () => {
  expect(JSON.parse(json(run))).toMatchObject({
    versions: { Node: '26.10.0' },
    calls: run.measurements,
    works: run.workResults,
    limits: [{ figure: 2.5 }, { figure: 0.875 }, { figure: 3.25 }, { figure: 99.5 }],
  });
});
