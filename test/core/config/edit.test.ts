import { expect, test } from 'vitest';
import { configurationExample } from '../../../src/core/config/documentation.ts';
import { withSwitch } from '../../../src/core/config/edit.ts';

const to = (text: string, value: boolean): Promise<string | undefined> =>
  withSwitch(text, 'intercept', value, 'config.yaml');

test.each([
  ['# on\nintercept: true # since May\nlogLevel: warn\n', '# on\nintercept: false # since May\nlogLevel: warn\n'],
  ['logLevel: warn # loud\n', 'logLevel: warn # loud\nintercept: false\n'],
  ['logLevel: warn', 'logLevel: warn\nintercept: false\n'],
  ['', 'intercept: false\n'],
  ['# only a comment\n', '# only a comment\nintercept: false\n'],
  ['logLevel:   warn\r\nforesight: true\r\n', 'logLevel:   warn\r\nforesight: true\r\nintercept: false\r\n'],
  ['"intercept" :   true\n', '"intercept" :   false\n'],
  ['{"logLevel": "warn"}\n', '{"intercept": false, "logLevel": "warn"}\n'],
  ['{}', '{"intercept": false}'],
])('switches off by the value alone: %j', async (text, expected) => {
  expect(await to(text, false)).toBe(expected);
});

test('switches back on by the value alone, and leaves a file that has the value as it is', async () => {
  const text = '# a\nintercept: false # b\n';
  expect(await to(text, true)).toBe('# a\nintercept: true # b\n');
  expect(await to(text, false)).toBe(text);
  expect(await to('# a\n', true)).toBe('# a\n');
});

test('the setting of the installed file appears below its description, and the rest stays', async () => {
  const installed = configurationExample({ isCommentedOut: true });
  const off = await to(installed, false);
  expect(off).toContain('\n#intercept: true\nintercept: false\n');
  expect(off?.replace('\nintercept: false', '')).toBe(installed);
  expect(await to(off!, true)).toBe(off!.replace('intercept: false', 'intercept: true'));
});

test('a layout in which one value cannot be changed alone is left to the user', async () => {
  expect(await to('foresight: &on true\nintercept: *on\n', false)).toBeUndefined();
  expect(await to('intercept: &on true\nforesight: *on\n', false)).toBeUndefined();
  expect(await to('logLevel: warn\n...\n', false)).toBeUndefined();
});

test('an invalid file is not edited', async () => {
  await expect(to('logLevl: warn\n', false)).rejects.toThrow('config.yaml:1:1: logLevl: unknown key');
});
