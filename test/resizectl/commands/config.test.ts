import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { parse } from 'yaml';
import type { Output } from '../../../src/resizectl/command-texts.ts';
import { checkConfig, showConfig } from '../../../src/resizectl/commands/config.ts';

let folder: string;
let printed: string;
let errors: string[];
beforeAll(() => (folder = mkdtempSync(join(tmpdir(), 'config-'))));
afterAll(() => rmSync(folder, { recursive: true }));
beforeEach(() => {
  printed = '';
  errors = [];
});

const context = (output: Output) => ({
  output,
  print: (text: string) => void (printed += text),
  printError: (error: unknown) => void errors.push((error as Error).message),
});

function file(text: string): string {
  const path = join(folder, 'config.yaml');
  writeFileSync(path, text);
  return path;
}

test('config check names file, line, key and value of each problem', async () => {
  const path = file('# ours\nlogLevl: debug\nintercept: nope\n');
  expect(await checkConfig(context('table'), path)).toBe(1);
  expect(printed.split('\n')).toEqual([
    expect.stringMatching(/config\.yaml:2:1: logLevl: unknown key \(did you mean logLevel\?\); allowed keys: /),
    `${path}:3:1: intercept: "nope" must be true or false`,
    '',
  ]);
});

test('config check prints its result as an object, and accepts a valid file', async () => {
  const path = file('logLevel: loud\n');
  expect(await checkConfig(context('json'), path)).toBe(1);
  expect(JSON.parse(printed)).toEqual({
    ...{ file: path, valid: false },
    problems: [`${path}:1:1: logLevel: "loud" must be one of trace, debug, info, warn, error`],
  });
  printed = '';
  expect(await checkConfig(context('yaml'), file('logLevel: warn\n'))).toBe(0);
  expect(parse(printed)).toEqual({ file: path, valid: true, problems: [] });
  printed = '';
  expect(await checkConfig(context('table'), path)).toBe(0);
  expect(printed).toBe(`${path}: valid\n`);
});

test('config show prints every setting and where it comes from', async () => {
  const path = file('# ours\nlogLevel: warn\n');
  expect(await showConfig(context('table'), path)).toBe(0);
  expect(printed).toMatch(new RegExp(`^logLevel +warn +${path}:2$`, 'm'));
  expect(printed).toMatch(/^metricsBind +"" +default$/m);
  printed = '';
  expect(await showConfig(context('json'), path)).toBe(0);
  const { settings } = JSON.parse(printed) as { settings: { key: string }[] };
  expect(settings.find(({ key }) => key === 'logLevel')).toEqual({
    ...{ key: 'logLevel', value: 'warn', from: 'file', file: path, line: 2 },
  });
  expect(settings.find(({ key }) => key === 'intercept')).toEqual({ key: 'intercept', value: true, from: 'default' });
});

test('config show reports the problems of an invalid file', async () => {
  expect(await showConfig(context('table'), file('zzz: 1\n'))).toBe(1);
  expect([printed, errors]).toEqual(['', [expect.stringMatching(/config\.yaml:1:1: zzz: unknown key/)]]);
});

test('config check and show without a file read the file that an installation would use', async () => {
  const places = { flagsFile: join(folder, 'no-flags'), configFile: file('logLevel: loud\n') };
  const problem = `${places.configFile}:1:1: logLevel: "loud" must be one of trace, debug, info, warn, error`;
  expect(await checkConfig(context('table'), undefined, places)).toBe(1);
  expect(printed).toBe(`${problem}\n`);
  expect(await showConfig(context('table'), undefined, places)).toBe(1);
  expect(errors).toEqual([problem]);
  printed = '';
  expect(await checkConfig(context('table'), undefined, { ...places, configFile: join(folder, 'no-file') })).toBe(0);
  expect(printed).toBe('no configuration file: the defaults and the flags apply\n');
});
