import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { runPlugin } from '../../../src/resizectl/plugin/plugin.ts';

/**
 * A kubectl that answers from a file, which maps arguments, joined by blanks, to exit code, stdout and stderr. Each
 * call adds its arguments to a log, as one JSON list.
 */
const KUBECTL = `#!${process.execPath}
const { appendFileSync, readFileSync } = require('node:fs');
const args = process.argv.slice(2);
appendFileSync(__dirname + '/log', JSON.stringify(args) + '\\n');
const answers = JSON.parse(readFileSync(__dirname + '/answers', 'utf8'));
const [code, out, err] = answers[args.join(' ')] ?? [1, '', 'Error from server (Forbidden): ' + args.join(' ')];
process.stdout.write(out);
process.stderr.write(err ?? '');
process.exitCode = code;
`;

let folder: string;
let answers: Record<string, readonly [code: number, out: string, err?: string]>;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'plugin-'));
  writeFileSync(join(folder, 'kubectl'), KUBECTL);
  chmodSync(join(folder, 'kubectl'), 0o755);
  writeFileSync(join(folder, 'log'), '');
  vi.stubEnv('PATH', `${folder}:${process.env['PATH'] ?? ''}`);
  answers = {};
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

async function plugin(...argv: string[]): Promise<{ code: number; out: string; err: string }> {
  writeFileSync(join(folder, 'answers'), JSON.stringify(answers));
  let [out, err] = ['', ''];
  const code = await runPlugin(argv, { out: (text) => void (out += text), err: (text) => void (err += text) });
  return { code, out, err };
}

const calls = (): readonly (readonly string[])[] =>
  readFileSync(join(folder, 'log'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as string[]);

const END = '--output=json --request-timeout=30s';

const installer = (node: string, more: object = {}): object => ({
  metadata: { name: `installer-${node}`, namespace: 'cri-resize-shim' },
  spec: { nodeName: node, containers: [{ name: 'installer' }] },
  status: { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] },
  ...more,
});

const hasInstallers = (...items: object[]): void => {
  answers[`get pods --namespace=cri-resize-shim ${END}`] = [0, JSON.stringify({ items })];
};
const hasPod = (flags: string, namespace = 'default'): void => {
  const pod = { metadata: { name: 'web', namespace }, spec: { nodeName: 'n2' } };
  answers[`get pod web ${flags}${END}`] = [0, JSON.stringify(pod)];
};
const onNode = (node: string, words: string): string =>
  `exec --namespace=cri-resize-shim installer-${node} --container=installer -- nsenter --target 1 --mount -- /usr/bin/env PATH=/usr/local/bin:/usr/bin:/bin:/opt/bin resizectl ${words}`;

describe('status and plan', () => {
  beforeEach(() => hasInstallers(installer('n1'), installer('n2')));

  test('status and plan run resizectl on the node of the pod, and return its output and exit code', async () => {
    hasPod('');
    answers[onNode('n2', 'describe pod -- default/web')] = [0, 'Name: web\n'];
    expect(await plugin('status', 'web')).toEqual({ code: 0, out: 'Name: web\n', err: '' });
    hasPod('--namespace=team ', 'team');
    answers[onNode('n2', 'plan --output=json -- team/web app.memory=1Gi volume.c=50%')] = [
      3,
      '',
      'resizectl: NODE_FULL\n',
    ];
    expect(await plugin('plan', '-n', 'team', 'web', 'app.memory=1Gi', 'volume.c=50%', '-o', 'json')).toEqual({
      ...{ code: 3, out: '', err: 'resizectl: NODE_FULL\n' },
    });
  });

  test('status finds a pod by namespace/name, and passes its context to kubectl', async () => {
    answers[`--context=prod --kubeconfig=/k get pod web --namespace=team ${END}`] = [
      1,
      '',
      'E1125 03:44:38.548845 1182 memcache.go:265] "Unhandled Error"\npods "web" not found\n',
    ];
    const { code, err } = await plugin('status', 'team/web', '--context', 'prod', '--kubeconfig', '/k');
    expect([code, err]).toEqual([2, 'kubectl-resizectl: kubectl get pod web --namespace=team: pods "web" not found\n']);
  });

  test('status fails with exit code 1 if the API server does not answer', async () => {
    answers[`get pod web ${END}`] = [1, '', 'Unable to connect to the server: dial tcp: connection refused\n'];
    const { code, err } = await plugin('status', 'web');
    expect([code, err]).toEqual([1, expect.stringContaining('kubectl get pod web: Unable to connect to the server')]);
  });

  test('status lists the pods of a node', async () => {
    answers[onNode('n1', 'top')] = [0, 'NAMESPACE\n'];
    expect(await plugin('status', '--node', 'n1')).toMatchObject({ code: 0, out: 'NAMESPACE\n' });
    expect((await plugin('status', '--node', 'n3')).err).toContain('no pod of the DaemonSet runs on node n3');
  });

  test.each([
    [['status'], 'status: name a pod, or a node with --node'],
    [['status', 'web', '--node', 'n1'], 'POD and --node exclude each other'],
    [['status', '--all'], "unknown option '--all'"],
    [['status', '-n', 'a', 'b/web'], 'pod "b/web" is not in the namespace of -n, "a"'],
    [['status', 'default/--raw=/api'], 'invalid pod "default/--raw=/api"'],
    [['resize', 'web', 'app.memory=1Gi'], "unknown command 'resize'"],
    [[], 'missing command'],
  ])('the command line %j is invalid, and kubectl is not called', async (argv, message) => {
    const { code, err } = await plugin(...argv);
    expect(code).toBe(2);
    expect(err).toContain(message);
    expect(readFileSync(join(folder, 'log'), 'utf8')).toBe('');
  });
});

describe('fleet', () => {
  const doctor = (shim: string, kubelet: readonly [result: string, found: string]): string =>
    JSON.stringify({
      checks: [
        { check: 'shim', result: 'ok', found: shim },
        { check: 'bypass', result: 'ok', found: 'ready to serve if the shim fails' },
        { check: 'kubelet', result: kubelet[0], found: kubelet[1] },
      ],
    });

  test('fleet lists the nodes by name with version, state, bypass and drift, also those that do not answer', async () => {
    hasInstallers(
      installer('n2'),
      installer('n1'),
      installer('n3'),
      installer('n4', { status: { phase: 'Pending' } }),
      { ...installer('n5'), spec: { nodeName: 'n5', containers: [{ name: 'other' }] } },
    );
    answers[onNode('n1', '--version')] = [0, '0.2.0\n'];
    answers[onNode('n1', 'doctor --output=json')] = [0, doctor('serves /run/x.sock, ready', ['ok', 'uses the shim'])];
    answers[onNode('n2', '--version')] = [0, '0.1.0\n'];
    answers[onNode('n2', 'doctor --output=json')] = [1, doctor('off by configuration', ['warning', 'uses containerd'])];
    answers[onNode('n3', '--version')] = [1, '', 'error: unable to upgrade connection\n'];
    const { code, out } = await plugin('fleet');
    expect(code).toBe(1);
    expect(out.split('\n').map((line) => line.split(/ {3,}/))).toEqual([
      ['NODE', 'VERSION', 'SHIM', 'BYPASS', 'KUBELET'],
      ['n1', '0.2.0', 'serves /run/x.sock, ready', 'ready to serve if the shim fails', 'uses the shim'],
      ['n2', '0.1.0', 'off by configuration', 'ready to serve if the shim fails', 'warning: uses containerd'],
      ['n3', 'unknown: error: unable to upgrade connection'],
      ['n4', 'unknown: the pod of the DaemonSet is Pending'],
      [''],
    ]);
    const json = JSON.parse((await plugin('fleet', '-o', 'json')).out) as { nodes: { node: string }[] };
    expect(json.nodes.map(({ node }) => node)).toEqual(['n1', 'n2', 'n3', 'n4']);
  });

  test('fleet fails for a node without a report, with an empty error or with a missing check', async () => {
    hasInstallers(installer('n1'), installer('n2'), installer('n3'));
    answers[onNode('n1', '--version')] = [137, '', ''];
    answers[onNode('n2', '--version')] = [0, '0.2.0\n'];
    answers[onNode('n2', 'doctor --output=json')] = [0, '{"checks":[]}'];
    answers[onNode('n3', '--version')] = [0, '0.2.0\n'];
    answers[onNode('n3', 'doctor --output=json')] = [1, ''];
    const { code, out } = await plugin('fleet');
    expect(code).toBe(1);
    expect(out).toContain('unknown: no report of resizectl, which ended with exit code 137');
    expect(out).toContain('unknown: doctor has not checked shim, bypass, kubelet');
    expect(out).toContain('unknown: no report of resizectl, which ended with exit code 1\n');
  });

  test('fleet only reads: it gets pods, and runs resizectl commands that change nothing', async () => {
    hasInstallers(installer('n1'));
    answers[onNode('n1', '--version')] = [0, '0.2.0\n'];
    await plugin('fleet');
    const words = calls().map((args) => args.slice(args.indexOf('resizectl') + 1));
    expect(calls().map(([verb]) => verb)).toEqual(['get', 'exec', 'exec']);
    expect(words.slice(1)).toEqual([['--version'], ['doctor', '--output=json']]);
  });
});

test('reports that kubectl cannot be run if the machine does not have it', async () => {
  vi.stubEnv('PATH', '/nowhere');
  const { code, err } = await plugin('fleet');
  expect(code).toBe(1);
  expect(err).toContain('kubectl cannot be run');
});

test('--help lists the three commands', async () => {
  const { code, out } = await plugin('--help');
  expect(code).toBe(0);
  for (const name of ['status', 'plan', 'fleet']) expect(out).toContain(`  ${name} `);
  expect(out).not.toMatch(/^ +resize /m);
});
