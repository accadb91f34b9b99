import { expect, test } from 'vitest';
import { configurationExample } from '../../../src/core/config/documentation.ts';
import { withKey } from '../../../src/install/host/yaml-key.ts';

const off = (text: string): string | undefined => withKey(text, 'intercept', false);

test.each([
  ['# on\nintercept: true # since May\nlogLevel: warn\n', '# on\nintercept: false # since May\nlogLevel: warn\n'],
  ['logLevel: warn # loud\n', 'logLevel: warn # loud\nintercept: false\n'],
  ['logLevel: warn', 'logLevel: warn\nintercept: false\n'],
  ['', 'intercept: false\n'],
  ['# only a comment\n', '# only a comment\n\nintercept: false\n'],
  ['logLevel:   warn\r\nforesight: true\r\n', 'logLevel: warn\nforesight: true\nintercept: false\n'],
  ['"intercept" :   true\n', '"intercept": false\n'],
  ['{"logLevel": "warn"}\n', '{"logLevel":"warn","intercept":false}\n'],
  ['{logLevel: warn}\n', '{ logLevel: warn, intercept: false }\n'],
  ['{}', '{"intercept":false}'],
  ['{"a":9223372036854775807,"b":1.0}', '{"a":9223372036854775807,"b":1.0,"intercept":false}'],
  ['foresight: &on true\nintercept: *on\n', 'foresight: &on true\nintercept: false\n'],
])('one key of %j is set, and the other values stay', (text, expected) => {
  expect(off(text)).toBe(expected);
});

test('the installed configuration file, which has only comments, gets one more line', () => {
  const installed = configurationExample({ isCommentedOut: true });
  const changed = off(installed) ?? '';
  expect(changed.replace('\nintercept: false', '')).toBe(installed);
  expect(withKey(changed, 'intercept', true)).toBe(changed.replace('intercept: false', 'intercept: true'));
});

test.each(['intercept: &on true\nforesight: *on\n', '- a\n', 'a: 1\n---\nb: 2\n', 'a: [\n'])(
  'a file in which one key cannot be set alone is not changed: %j',
  (text) => {
    expect(off(text)).toBeUndefined();
  },
);

test('the comment above a removed key stays', () => {
  expect(withKey('# ours\nintercept: false\nlogLevel: warn\n', 'intercept', undefined)).toBe(
    '# ours\nlogLevel: warn\n',
  );
  expect(withKey('# ours\na: 1\n# off\nintercept: false\n# log\nlogLevel: warn\n', 'intercept', undefined)).toBe(
    '# ours\na: 1\n# off\n# log\nlogLevel: warn\n',
  );
});
