import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { recordFile } from '../../../src/sandbox/journal/file-names.ts';
import { podUid } from '../../support/journal/numbered.ts';

describe('the journal file of a pod', () => {
  test('the journal file of a pod is named after a valid uid', () => {
    expect(recordFile(podUid)).toBe(`${podUid}.json`);
    expect(recordFile('0123456789ABCDEF0123456789abcdef')).toBe('0123456789ABCDEF0123456789abcdef.json');
  });

  test('the journal file of a pod is in the state folder and differs between pods, for any uid', () => {
    const hostile = ['../../etc/x', '', '.', '..', '/', 'a\0b', '........', 'x'.repeat(300), '\ud800', '\ud801'];
    const names = hostile.map(recordFile);
    for (const name of names) expect(name).toMatch(/^sha256-[0-9a-f]{64}\.json$/);
    expect(new Set(names).size).toBe(hostile.length);
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }), (a, b) => {
        expect(recordFile(a)).toMatch(/^[0-9a-z-]{8,71}\.json$/i);
        expect(recordFile(a) === recordFile(b)).toBe(a === b);
      }),
    );
  });
});
