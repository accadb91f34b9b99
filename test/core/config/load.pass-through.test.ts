import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Config } from '../../../src/core/config/schema.ts';
import { ConfigError } from '../../../src/core/config/errors.ts';
import { effectiveSettings, loadConfig, passThroughConfig } from '../../../src/core/config/load.ts';

let folder: string;
beforeAll(() => (folder = mkdtempSync(join(tmpdir(), 'config-'))));
afterAll(() => rmSync(folder, { recursive: true }));

const fileWith = (text: string): string => {
  const path = join(folder, 'config.yaml');
  writeFileSync(path, text);
  return path;
};

async function errorOf(argv: readonly string[]): Promise<ConfigError> {
  const error: unknown = await loadConfig(argv).catch((reason: unknown) => reason);
  if (!(error instanceof ConfigError)) throw new Error(`no ConfigError: ${String(error)}`);
  return error;
}

async function passThrough(text: string, flags: readonly string[] = [], last?: string): Promise<Config> {
  const argv = ['--config', fileWith(text), ...flags];
  return passThroughConfig(argv, await errorOf(argv), last);
}

test('with an invalid file, its valid settings and the flags apply, and no call is intercepted', async () => {
  const text = 'logLevl: warn\nlisten: /run/a.sock\ncontainerRuntimeEndpoint: /run/k3s.sock\nintercept: true\n';
  expect(await passThrough(text, ['--log-level=debug', '--intercept'], '/run/last.sock')).toMatchObject({
    intercept: false,
    listen: '/run/a.sock',
    containerRuntimeEndpoint: '/run/k3s.sock',
    logLevel: 'debug',
  });
});

test.each([
  'containerRuntimeEndpoint: k3s.sock\n',
  'containerRuntimeEndpont: /run/k3s.sock\n',
  'a: [\n',
  '- a list\n',
  'listen: /run/b.sock\ncontainerRuntimeEndpoint: /run/b.sock\nlogLevl: warn\n',
])('the last socket of containerd applies if the file has no usable one: %j', async (text) => {
  expect((await passThrough(text, [], '/run/last.sock')).containerRuntimeEndpoint).toBe('/run/last.sock');
  expect((await passThrough(text)).containerRuntimeEndpoint).toBe('/run/containerd/containerd.sock');
  const flag = '--container-runtime-endpoint=/run/flag.sock';
  expect((await passThrough(text, [flag], '/run/last.sock')).containerRuntimeEndpoint).toBe('/run/flag.sock');
});

test('metrics are not served without the token that an invalid file may require', async () => {
  const bind = 'metricsBind: 127.0.0.1:9467\n';
  const served = { kind: 'tcp', host: '127.0.0.1', port: 9467 };
  for (const text of ['metricsTokenFil: /etc/token\n', 'metricsTokenFile: token\n'])
    expect((await passThrough(bind + text)).metricsBind, text).toEqual({ kind: 'none' });
  expect((await passThrough(`${bind}logLevel: loud\n`)).metricsBind).toEqual(served);
  const withToken = await passThrough(`${bind}metricsTokenFile: /etc/token\nlogLevl: warn\n`);
  expect(withToken).toMatchObject({ metricsBind: served, metricsTokenFile: '/etc/token' });
});

test('metrics that a flag enables are not served without the token of an invalid file', async () => {
  const flag = '--metrics-bind=127.0.0.1:9467';
  for (const text of ['a: [\n', 'metricsTokenFile: token\n', 'listen: /run/b.sock\nresizeListen: /run/b.sock\n']) {
    const argv = ['--config', fileWith(text), flag];
    expect(passThroughConfig(argv, await errorOf(argv)).metricsBind, text).toEqual({ kind: 'none' });
    const withToken = [...argv, '--metrics-token-file=/etc/token'];
    const { metricsTokenFile } = passThroughConfig(withToken, await errorOf(withToken));
    expect(metricsTokenFile, text).toBe('/etc/token');
  }
});

test('an invalid command line is an error, also with an invalid file', async () => {
  const argv = ['--config', fileWith('logLevl: warn\n'), '--log-level=loud'];
  const error = await errorOf(argv);
  expect(error.source).toBe('usage');
  expect(() => passThroughConfig(argv, error)).toThrow(error);
});

test('effective settings name their source: the default, the line of the file or the flag', async () => {
  const path = fileWith('# comment\n\nlogLevel: warn\nintercept: false\n');
  const { configFile, settings } = await effectiveSettings(['--config', path, '--intercept', '--metrics-bind=']);
  expect(configFile).toBe(path);
  const of = (key: string): unknown => settings.find((setting) => setting.key === key);
  expect(of('logLevel')).toEqual({ key: 'logLevel', value: 'warn', from: 'file', line: 3 });
  expect(of('intercept')).toEqual({ key: 'intercept', value: true, from: 'flag', line: undefined });
  expect(of('metricsBind')).toEqual({ key: 'metricsBind', value: '', from: 'flag', line: undefined });
  expect(of('foresight')).toEqual({ key: 'foresight', value: true, from: 'default', line: undefined });
  expect(of('reclaimTimeout')).toMatchObject({ value: '30s', from: 'default' });
  await expect(effectiveSettings(['--config', fileWith('zzz: 1\n')])).rejects.toThrow('config.yaml:1:1: zzz');
});
