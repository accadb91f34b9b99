import { expect, test } from 'vitest';
import { nearest, suggestion } from '../../src/core/errors.ts';

test.each([
  ['ap', ['app', 'sidecar'], ': did you mean app?'],
  ['side', ['app', 'sidecar'], ': did you mean sidecar?'],
  ['cahce', ['cache', 'data'], ': did you mean cache?'],
  ['folow', ['follow', 'fixed'], ': did you mean follow?'],
  ['database', ['app', 'sidecar'], ''],
  ['x', ['abc'], ''],
  ['app', [], ''],
  ['a'.repeat(100_000), ['a'.repeat(64)], ''],
])('suggests the nearest name to %.10s among %j', (given, names, expected) => {
  expect(suggestion(given, names)).toBe(expected);
});

test('names are compared in simplified form, and returned unchanged', () => {
  const simplify = (name: string): string => name.toLowerCase().replace(/[-_]/g, '');
  expect(nearest('KUBELET-ROOT', ['kubeletRoot', 'cgroupRoot'], simplify)).toBe('kubeletRoot');
  expect(nearest('KUBELET-ROOT', ['kubeletRoot', 'cgroupRoot'])).toBeUndefined();
});
