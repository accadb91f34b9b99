import { expect, test } from 'vitest';
import { suggestion } from '../../../src/core/errors/index.ts';

test.each([
  ['ap', ['app', 'sidecar'], ': did you mean app?'],
  ['side', ['app', 'sidecar'], ': did you mean sidecar?'],
  ['cahce', ['cache', 'data'], ': did you mean cache?'],
  ['folow', ['follow', 'fixed'], ': did you mean follow?'],
  ['database', ['app', 'sidecar'], ''],
  ['x', ['abc'], ''],
  ['app', [], ''],
  ['a'.repeat(100_000), ['a'.repeat(64)], ''],
])('%.10s among %j', (given, names, expected) => {
  expect(suggestion(given, names)).toBe(expected);
});
