import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { configurationExample } from '../../../src/core/config/documentation.ts';
import { ConfigError } from '../../../src/core/config/errors.ts';
import { effectiveSettings, loadConfig, passThroughConfig } from '../../../src/core/config/load.ts';
import type { Config } from '../../../src/core/config/schema.ts';
import { version } from '../../../src/core/config/version.ts';

let folder: string;

beforeAll(() => (folder = mkdtempSync(join(tmpdir(), 'config-'))));

afterAll(() => rmSync(folder, { recursive: true }));

const file = (text: string): string => {
  const path = join(folder, 'config.yaml');
  writeFileSync(path, text);
  return path;
};

async function load(...argv: string[]): Promise<Config> {
  const invocation = await loadConfig(argv);
  if (invocation.ask !== 'run') throw new Error(`printed ${invocation.text}`);
  return invocation.config;
}
const loadFile = (text: string, ...argv: string[]): Promise<Config> => load('--config', file(text), ...argv);

async function problems(loading: Promise<unknown>): Promise<{ source: string; lines: string[] }> {
  const error: unknown = await loading.catch((reason: unknown) => reason);
  if (!(error instanceof ConfigError)) throw new Error(`no ConfigError: ${String(error)}`);
  return { source: error.source, lines: error.problems.map((line) => line.replaceAll(folder, '')) };
}

const defaults: Config = {
  listen: '/run/cri-resize-shim/cri-resize-shim.sock',
  containerRuntimeEndpoint: '/run/containerd/containerd.sock',
  kubeletRoot: '/var/lib/kubelet',
  mountsOfPid: undefined,
  cgroupRoot: '/sys/fs/cgroup',
  cgroupDriver: 'auto',
  stateFolder: '/var/lib/cri-resize-shim',
  intercept: true,
  resizeListen: '/run/cri-resize-shim/resize.sock',
  resizeSocketMode: 0o600,
  metricsBind: { kind: 'none' },
  metricsTokenFile: '',
  kubeconfig: '',
  nodeName: '',
  foresight: true,
  volumesFollow: 'auto',
  logLevel: 'info',
  logPassedCalls: false,
  reclaimTimeout: 30_000,
  shutdownTimeout: 30_000,
};

/** Each setting: key, flag, a value as a user writes it, and the parsed value. */
const settings: [keyof Config, string, string, unknown][] = [
  ['listen', '--listen', 'unix:///run/a.sock', '/run/a.sock'],
  ['listen', '--listen', '/run/bare.sock', '/run/bare.sock'],
  ['listen', '--listen', 'unix:/run/one-slash.sock', '/run/one-slash.sock'],
  ['containerRuntimeEndpoint', '--container-runtime-endpoint', '/run/k3s//containerd.sock', '/run/k3s/containerd.sock'],
  ['kubeletRoot', '--kubelet-root', '/data/kubelet/', '/data/kubelet'],
  ['mountsOfPid', '--mounts-of-pid', '1', 1],
  ['mountsOfPid', '--mounts-of-pid', '4194304', 4_194_304],
  ['cgroupDriver', '--cgroup-driver', 'systemd', 'systemd'],
  ['cgroupDriver', '--cgroup-driver', 'cgroupfs', 'cgroupfs'],
  ['metricsBind', '--metrics-bind', '127.0.0.1:9467', { kind: 'tcp', host: '127.0.0.1', port: 9467 }],
  ['metricsBind', '--metrics-bind', '127.3.2.1:0', { kind: 'tcp', host: '127.3.2.1', port: 0 }],
  ['metricsBind', '--metrics-bind', 'localhost:80', { kind: 'tcp', host: '127.0.0.1', port: 80 }],
  ['metricsBind', '--metrics-bind', 'unix:///run/a//m.sock', { kind: 'unix', path: '/run/a/m.sock' }],
  ['metricsTokenFile', '--metrics-token-file', '/etc/cri-resize-shim//token', '/etc/cri-resize-shim/token'],
  ['kubeconfig', '--kubeconfig', '/etc//kubernetes/shim.conf', '/etc/kubernetes/shim.conf'],
  ['kubeconfig', '--kubeconfig', 'in-cluster', 'in-cluster'],
  ['nodeName', '--node-name', 'node-1.example.org', 'node-1.example.org'],
  ['nodeName', '--node-name', 'b', 'b'],
  ['cgroupRoot', '--cgroup-root', '/', '/'],
  ['cgroupRoot', '--cgroup-root', '/var/lib/../tmp/x', '/var/tmp/x'],
  ['stateFolder', '--state-folder', '/data/shim/', '/data/shim'],
  ['intercept', '--intercept', 'false', false],
  ['resizeListen', '--resize-listen', 'unix:///run/r.sock', '/run/r.sock'],
  ['foresight', '--foresight', 'false', false],
  ['volumesFollow', '--volumes-follow', 'never', 'never'],
  ['logLevel', '--log-level', 'trace', 'trace'],
  ['logPassedCalls', '--log-passed-calls', 'true', true],
  ['reclaimTimeout', '--reclaim-timeout', '10s', 10_000],
  ['reclaimTimeout', '--reclaim-timeout', '1m', 60_000],
  ['shutdownTimeout', '--shutdown-timeout', '1m30s', 90_000],
  ['shutdownTimeout', '--shutdown-timeout', '500ms', 500],
  ['shutdownTimeout', '--shutdown-timeout', '0s', 0],
];

describe('settings', () => {
  test('settings have defaults', async () => {
    expect(await load()).toEqual(defaults);
    expect(await loadFile('')).toEqual(defaults);
    expect(await loadFile('apiVersion: cri-resize-shim.io/v1alpha1\nkind: ShimConfiguration\n')).toEqual(defaults);
  });

  test.each(settings)('%s is set by %s=%s', async (key, flag, text, value) => {
    expect(await load(`${flag}=${text}`)).toEqual({ ...defaults, [key]: value });
    expect(await load(flag, text)).toEqual({ ...defaults, [key]: value });
  });

  test.each(settings)('%s is set in the file, and %s=%s overrides it', async (key, flag, text, value) => {
    expect(await loadFile(`${key}: ${text}\n`)).toEqual({ ...defaults, [key]: value });
    const other = settings.find(([, name, otherText]) => name === flag && otherText !== text);
    const fallback =
      other?.[2] ??
      { '--intercept': 'true', '--foresight': 'true', '--log-passed-calls': 'false', '--log-level': 'error' }[flag] ??
      { '--volumes-follow': 'auto' }[flag];
    const written = `${key}: ${fallback ?? '/other'}\n`;
    expect((await loadFile(written))[key]).not.toEqual(value);
    expect((await loadFile(written, `${flag}=${text}`))[key]).toEqual(value);
  });

  test('the resize API can be disabled', async () => {
    expect((await load('--resize-listen=')).resizeListen).toBe('');
    expect((await load('--resize-listen', '')).resizeListen).toBe('');
    expect((await loadFile('resizeListen: ""')).resizeListen).toBe('');
  });

  test('an empty flag overrides kubeconfig and nodeName of the file', async () => {
    expect((await loadFile('kubeconfig: /a', '--kubeconfig=')).kubeconfig).toBe('');
    expect((await loadFile('nodeName: a', '--node-name=')).nodeName).toBe('');
  });

  test.each([
    ['0660', 0o660],
    ['600', 0o600],
    ['0777', 0o777],
  ])('the mode %s of the resize socket is read as octal', async (text, mode) => {
    expect((await load(`--resize-socket-mode=${text}`)).resizeSocketMode).toBe(mode);
    expect((await loadFile(`resizeSocketMode: "${text}"`)).resizeSocketMode).toBe(mode);
  });

  test('metrics can be served on ::1, and an empty flag disables them', async () => {
    const bound = { kind: 'tcp', host: '::1', port: 65_535 };
    expect((await load('--metrics-bind=[::1]:65535')).metricsBind).toEqual(bound);
    expect((await loadFile('metricsBind: "[::1]:65535"')).metricsBind).toEqual(bound);
    expect((await loadFile('metricsBind: 127.0.0.1:1', '--metrics-bind=')).metricsBind).toEqual({ kind: 'none' });
  });

  test('a boolean flag without value is true, and overrides the file', async () => {
    expect((await loadFile('intercept: false', '--intercept', '--log-level', 'warn')).intercept).toBe(true);
    expect((await load('--log-passed-calls')).logPassedCalls).toBe(true);
  });

  test('the defaults apply if the file consists of comments, as the installed one does', async () => {
    expect(await loadFile(configurationExample({ isCommentedOut: true }))).toEqual(defaults);
  });

  test('a configuration file may be JSON, and may have comments and anchors', async () => {
    expect((await loadFile('{"intercept": false, "logLevel": "warn"}')).logLevel).toBe('warn');
    expect((await loadFile('# out\ncgroupRoot: &dir /x # here\nkubeletRoot: *dir\n')).kubeletRoot).toBe('/x');
  });
});

describe('an invalid command line', () => {
  test.each([
    [['--log-level', 'loud'], '--log-level: "loud" must be one of trace, debug, info, warn, error'],
    [['--intercept=no'], '--intercept: "no" must be true or false'],
    [['--kubeconfig', 'kube/config'], /^--kubeconfig: "kube\/config" must be an absolute path, in-cluster/],
    [['--node-name', 'Node,spec.x=y'], /^--node-name: "Node,spec.x=y" must be a node name/],
    [['--mounts-of-pid', '0'], '--mounts-of-pid: "0" must be a process ID, such as 1, or empty for none'],
    [['--mounts-of-pid', '4194305'], /^--mounts-of-pid: "4194305" must be a process ID/],
    [['--mounts-of-pid', '1/root'], /^--mounts-of-pid: "1\/root" must be a process ID/],
    [['--kubelet-root', 'var/lib'], '--kubelet-root: "var/lib" must be an absolute path'],
    [['--listen', 'tcp://0.0.0.0:1'], /^--listen: "tcp:\/\/0.0.0.0:1" must be a unix:\/\/ address/],
    [['--listen', 'unix://run/x.sock'], /^--listen: "unix:\/\/run\/x.sock" must be a unix:/],
    [['--listen', `/${'x'.repeat(107)}`], /^--listen: .* is 108 bytes long; a socket path has at most 107 bytes$/],
    [['--shutdown-timeout', '30'], /^--shutdown-timeout: "30" must be a duration such as 500ms/],
    [['--shutdown-timeout', '597h'], /^--shutdown-timeout: "597h" must be .* at most 596h$/],
    [['--shutdown-timeout=-1s'], /^--shutdown-timeout: "-1s" must be/],
    [
      ['--resize-socket-mode=0680'],
      '--resize-socket-mode: "0680" must be an octal mode as a string, such as "0600" or "0660"',
    ],
    [['--resize-socket-mode=rw'], /^--resize-socket-mode: "rw" must be an octal mode/],
    [['--resize-listen', 'resize.sock'], /^--resize-listen: "resize.sock" must be a unix:\/\/ address/],
    [
      ['--resize-listen=/run/x.sock', '--listen=/run/x.sock'],
      /^--resize-listen and --listen are both \/run\/x.sock; use different paths$/,
    ],
    [
      ['--resize-listen=/run/containerd/containerd.sock'],
      /^--resize-listen and --container-runtime-endpoint are both .*; use different paths$/,
    ],
    [
      ['--metrics-bind', '0.0.0.0:9467'],
      /^--metrics-bind: "0.0.0.0:9467" is not a loopback address, and access is not authenticated/,
    ],
    [['--metrics-bind', '[::]:9467'], /^--metrics-bind: .* is not a loopback address/],
    [['--metrics-bind', '10.1.2.3:9467'], /^--metrics-bind: .* is not a loopback address/],
    [['--metrics-bind', '127.0.0.1.example.org:9467'], /^--metrics-bind: .* is not a loopback address/],
    [['--metrics-bind', '[::ffff:8.8.8.8]:9467'], /^--metrics-bind: .* is not a loopback address/],
    [['--metrics-bind', ':9467'], /^--metrics-bind: .* is not a loopback address/],
    [['--metrics-bind', '127.0.0.1'], /^--metrics-bind: "127.0.0.1" must be a loopback address with a port/],
    [['--metrics-bind', '127.0.0.1:65536'], /^--metrics-bind: .* must be a loopback address with a port/],
    [['--metrics-bind', 'http://127.0.0.1:1/'], /^--metrics-bind: .* must be a loopback address with a port/],
    [['--metrics-bind', 'unix://m.sock'], /^--metrics-bind: .* must be a unix:\/\/ address/],
    [
      ['--metrics-bind=/run/cri-resize-shim/resize.sock'],
      '--metrics-bind and --resize-listen are both /run/cri-resize-shim/resize.sock; use different paths',
    ],
    [['--intercpt'], "unknown option '--intercpt' (Did you mean --intercept?)"],
    [['--log-level'], /option '--log-level <LEVEL>' argument missing/],
    [['serve'], /too many arguments/],
    [
      ['--listen=/run/containerd/containerd.sock'],
      /^--listen and --container-runtime-endpoint are both .*, so the shim would call itself; use different paths$/,
    ],
  ])('rejects the command line %j', async (argv, text) => {
    const { source, lines } = await problems(load(...argv));
    expect(source).toBe('usage');
    expect(lines).toEqual([typeof text === 'string' ? text : expect.stringMatching(text)]);
  });

  test('rejects a command line with every problem', async () => {
    expect((await problems(load('--log-level=x', '--intercept=y'))).lines).toHaveLength(2);
  });
});

describe('an invalid configuration file', () => {
  test.each([
    ['logLevel: loud', '/config.yaml:1:1: logLevel: "loud" must be one of trace, debug, info, warn, error'],
    ['# x\n\nintercept: no', '/config.yaml:3:1: intercept: "no" must be true or false'],
    ['intercept: "true"', '/config.yaml:1:1: intercept: "true" must be true or false'],
    ['shutdownTimeout: 30', /^\/config.yaml:1:1: shutdownTimeout: 30 must be a duration such as 500ms/],
    ['resizeSocketMode: 0600', /^\/config.yaml:1:1: resizeSocketMode: 600 must be an octal mode as a string/],
    ['resizeListen:', /^\/config.yaml:1:1: resizeListen: an empty value must be a unix:/],
    ['listen:', /^\/config.yaml:1:1: listen: an empty value must be a unix:/],
    ['cgroupRoot: [/a]', '/config.yaml:1:1: cgroupRoot: ["/a"] must be an absolute path'],
    [
      'kubletRoot: /x',
      /^\/config.yaml:1:1: kubletRoot: unknown key \(did you mean kubeletRoot\?\); allowed keys: .*cgroupRoot/,
    ],
    ['logLevl: debug', /^\/config.yaml:1:1: logLevl: unknown key \(did you mean logLevel\?\)/],
    ['logLevel: inf', /^\/config.yaml:1:1: logLevel: "inf" must be one of .*error \(did you mean info\?\)$/],
    ['log: debug', /^\/config.yaml:1:1: log: unknown key \(did you mean logLevel\?\)/],
    ['mode: x', /^\/config.yaml:1:1: mode: unknown key; allowed keys:/],
    [
      'listen: /run/a.sock\ncontainerRuntimeEndpoint: /run/a.sock',
      '/config.yaml:1: listen and containerRuntimeEndpoint are both /run/a.sock, so the shim would call itself; use different paths',
    ],
    ['log-level: debug', /^\/config.yaml:1:1: log-level: unknown key \(did you mean logLevel\?\)/],
    ['zzz: 1', /^\/config.yaml:1:1: zzz: unknown key; allowed keys:/],
    ['__proto__: {intercept: false}', /^\/config.yaml:1:1: __proto__: unknown key/],
    ['kind: Pod', '/config.yaml:1:1: kind: "Pod" must be ShimConfiguration'],
    ['apiVersion: v2', '/config.yaml:1:1: apiVersion: "v2" must be cri-resize-shim.io/v1alpha1'],
    ['- listen', '/config.yaml: ["listen"] must be a mapping of settings'],
    ['just text', '/config.yaml: "just text" must be a mapping of settings'],
    ['intercept: true\nlogLevel: [a', /^\/config.yaml:2:\d+: not valid YAML: /],
    ['intercept: true\nintercept: false', '/config.yaml:2:1: not valid YAML: Map keys must be unique'],
    ['intercept: !wild true', /^\/config.yaml:1:12: not valid YAML: Unresolved tag/],
    ['a: 1\n---\nb: 2', /^\/config.yaml:\d+:1: not valid YAML: /],
  ])('rejects the configuration file %j', async (text, expected) => {
    const { source, lines } = await problems(loadFile(text));
    expect(source).toBe('file');
    expect(lines).toEqual([typeof expected === 'string' ? expected : expect.stringMatching(expected)]);
  });

  test('rejects a configuration file with every problem, in the order of the file', async () => {
    const { lines } = await problems(loadFile('zzz: 1\nlogLevel: x\nintercept: 3\n'));
    expect(lines.map((line) => line.split(': ')[0])).toEqual([1, 2, 3].map((line) => `/config.yaml:${line}:1`));
  });

  test('reports the right line of a configuration file after comments of any form', async () => {
    const text = '# one\n#two: 2\n\nlisten: unix:///run/a.sock # three\n  # four\n#five\nlisten2: 6\n';
    expect(await problems(loadFile(text))).toMatchObject({
      lines: [expect.stringMatching(/^\/config.yaml:7:1: listen2/)],
    });
  });

  test('rejects a configuration file if a string continues in the first column like a comment', async () => {
    for (const text of ['listen: "unix:///run/a\n#b"\n', 'listen: |-\n#b\n  unix:///run/a\n']) {
      const { lines } = await problems(loadFile(text));
      expect(lines[0]).toMatch(/^\/config.yaml:/);
    }
  });

  test('rejects an invalid value in the file even if a flag overrides it', async () => {
    expect((await problems(loadFile('logLevel: loud', '--log-level=info'))).source).toBe('file');
  });

  test('reports a configuration file that does not exist, is a folder, or is a FIFO that would not open', async () => {
    expect((await problems(load('--config=/none/x.yaml'))).lines).toEqual([
      '/none/x.yaml: no such file; --config expects an existing YAML file',
    ]);
    expect((await problems(load('--config', folder))).lines[0]).toMatch(/is a folder/);
    const fifo = join(folder, 'fifo');
    execFileSync('mkfifo', [fifo]);
    expect((await problems(load('--config', fifo))).lines).toEqual([
      `/fifo: is a FIFO; --config expects an existing YAML file`,
    ]);
  });

  test('rejects a configuration file with aliases that expand without bound', async () => {
    const levels = Array.from(
      { length: 12 },
      (_, level) => `l${level + 1}: &l${level + 1} [*l${level}, *l${level}, *l${level}]`,
    );
    const { lines } = await problems(loadFile(`l0: &l0 x\n${levels.join('\n')}`));
    expect(lines[0]).toMatch(/Excessive alias count|unknown key/);
  });
});

describe('--help and --version', () => {
  test('--version prints the version, and --help prints the flags', async () => {
    expect(await loadConfig(['--version'])).toEqual({ ask: 'print', text: `${version}\n` });
    expect(version).toMatch(/^\d+\.\d+\.\d+/);
    const help = await loadConfig(['--help']);
    const text = help.ask === 'print' ? help.text : '';
    for (const [, flag] of settings) expect(text).toContain(flag);
    expect(text).toContain('--config <FILE>');
  });
});

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
