import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type EndpointChain, layerName, readEndpointChain } from '../../../src/kubelet/endpoint/chain.ts';
import { compareDropIns, LONGEST_FILE, MOST_ENTRIES } from '../../../src/kubelet/endpoint/files.ts';

const DEFAULT = 'unix:///run/containerd/containerd.sock';
const CONFIG = '/var/lib/kubelet/config.yaml';
const FOLDER = '/etc/kubernetes/kubelet.conf.d';
let root: string;
beforeEach(() => (root = mkdtempSync(join(tmpdir(), 'endpoint-'))));
afterEach(() => rmSync(root, { recursive: true }));

function put(file: string, text: string): void {
  mkdirSync(dirname(join(root, file)), { recursive: true });
  writeFileSync(join(root, file), text);
}
const text = (line: string): string =>
  `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n${line}\n`;
const sets = (name: string): string => text(`containerRuntimeEndpoint: unix:///${name}.sock`);
const dropIn = (name: string, content: string): void => put(`${FOLDER}/${name}`, content);

const read = (flags: { endpoint?: string; config?: string; configDir?: string }): Promise<EndpointChain> =>
  readEndpointChain(
    { endpoint: undefined, config: undefined, configDir: undefined, ...flags },
    { root, cwd: join(root, 'cwd') },
  );
const withDropIns = (): Promise<EndpointChain> => read({ config: CONFIG, configDir: FOLDER });

describe('the order of the places that set the endpoint', () => {
  test('the last place that sets the endpoint wins: default, --config, drop-ins in the order of their names, flag', async () => {
    put(CONFIG, sets('config'));
    dropIn('20-b.conf', sets('b'));
    dropIn('10-a.conf', sets('a'));
    const chain = await read({ config: CONFIG, configDir: FOLDER, endpoint: 'unix:///flag.sock' });
    expect(chain.layers).toEqual([
      { kind: 'default', endpoint: DEFAULT },
      { kind: 'config', file: CONFIG, endpoint: 'unix:///config.sock' },
      { kind: 'drop-in', file: `${FOLDER}/10-a.conf`, endpoint: 'unix:///a.sock' },
      { kind: 'drop-in', file: `${FOLDER}/20-b.conf`, endpoint: 'unix:///b.sock' },
      { kind: 'flag', endpoint: 'unix:///flag.sock' },
    ]);
    expect(chain).toMatchObject({ endpoint: 'unix:///flag.sock', winner: { kind: 'flag' }, dropInFolder: FOLDER });
    expect(layerName(chain.winner)).toBe('--container-runtime-endpoint');
    expect(await withDropIns()).toMatchObject({ endpoint: 'unix:///b.sock', winner: { file: `${FOLDER}/20-b.conf` } });
    expect(await read({ config: CONFIG })).toMatchObject({ endpoint: 'unix:///config.sock', dropInFolder: undefined });
    expect(await read({})).toMatchObject({ endpoint: DEFAULT, winner: { kind: 'default' }, kubeadm: undefined });
  });

  test('a drop-in without --config overrides the default', async () => {
    dropIn('10-a.conf', sets('a'));
    expect(await read({ configDir: FOLDER })).toMatchObject({ endpoint: 'unix:///a.sock' });
  });

  test('a drop-in that does not set the endpoint, or that has a name without .conf at its end, changes nothing', async () => {
    put(CONFIG, sets('config'));
    dropIn('10-a.conf', text('maxPods: 9'));
    dropIn('20-b.yaml', sets('b'));
    dropIn('30-c.CONF', sets('c'));
    dropIn('40-d.conf.before-cri-resize-shim', 'not: [valid');
    const chain = await withDropIns();
    expect(chain.endpoint).toBe('unix:///config.sock');
    expect(chain.layers.filter(({ kind }) => kind === 'drop-in')).toHaveLength(1);
  });

  test.each(['containerRuntimeEndpoint: ""', 'containerRuntimeEndpoint: null', 'containerRuntimeEndpoint:'])(
    'a drop-in with %j sets the default endpoint again; in the file of --config it sets no endpoint',
    async (line) => {
      put(CONFIG, sets('config'));
      dropIn('10-a.conf', text(line));
      expect(await withDropIns()).toMatchObject({ endpoint: DEFAULT, winner: { file: `${FOLDER}/10-a.conf` } });
      put(CONFIG, text(line));
      expect(await read({ config: CONFIG })).toMatchObject({ endpoint: DEFAULT, winner: { kind: 'default' } });
    },
  );

  test('drop-in subfolders are read in lexical order with the files, and links to folders are skipped', async () => {
    put(CONFIG, sets('config'));
    dropIn('50-x/z.conf', sets('z'));
    dropIn('50-x.conf', sets('x'));
    put('/elsewhere/a.conf', sets('elsewhere'));
    symlinkSync('/elsewhere', join(root, FOLDER, '90-link'));
    const { layers } = await withDropIns();
    expect(layers.flatMap(({ kind, file }) => (kind === 'drop-in' ? [file] : []))).toEqual([
      `${FOLDER}/50-x/z.conf`,
      `${FOLDER}/50-x.conf`,
    ]);
  });

  test('a drop-in that is a link is read; a folder that is a link is walked only with a slash at its end', async () => {
    put('/elsewhere/a.yaml', sets('linked'));
    mkdirSync(join(root, FOLDER), { recursive: true });
    symlinkSync('/elsewhere/a.yaml', join(root, FOLDER, '10-a.conf'));
    expect((await read({ configDir: FOLDER })).endpoint).toBe('unix:///linked.sock');
    symlinkSync(FOLDER, join(root, 'link'));
    expect(await read({ configDir: '/link' })).toMatchObject({ endpoint: DEFAULT, dropInFolder: undefined });
    expect(await read({ configDir: '/link/' })).toMatchObject({
      endpoint: 'unix:///linked.sock',
      dropInFolder: '/link/',
    });
  });

  test('the names of drop-ins are compared by their bytes', async () => {
    for (const name of ['a.conf', 'B.conf', 'é.conf', '10.conf', '9.conf', '.conf']) dropIn(name, sets(name));
    const { layers } = await read({ configDir: FOLDER });
    const order = layers.flatMap(({ file }) => (file === undefined ? [] : [file.slice(FOLDER.length + 1)]));
    expect(order).toEqual(['.conf', '10.conf', '9.conf', 'B.conf', 'a.conf', 'é.conf']);
    expect(order.toSorted(compareDropIns)).toEqual(order);
    expect(['b/a.conf', 'a.conf', 'a/b.conf', 'b.conf'].toSorted(compareDropIns)).toEqual([
      ...['a/b.conf', 'a.conf'],
      ...['b/a.conf', 'b.conf'],
    ]);
  });

  test('relative paths start in the working directory of kubelet', async () => {
    put('cwd/kubelet.yaml', sets('relative'));
    put('cwd/drop-ins/1.conf', sets('drop-in'));
    expect((await read({ config: 'kubelet.yaml' })).endpoint).toBe('unix:///relative.sock');
    expect((await read({ config: 'kubelet.yaml', configDir: 'drop-ins' })).endpoint).toBe('unix:///drop-in.sock');
  });

  test('JSON, flow style, several documents, a byte order mark, CRLF and duplicate keys are read as kubelet does', async () => {
    for (const content of [
      JSON.stringify({ kind: 'KubeletConfiguration', containerRuntimeEndpoint: 'unix:///x.sock' }),
      '{kind: KubeletConfiguration, containerRuntimeEndpoint: "unix:///x.sock"}',
      `---\n${sets('x')}---\nkind: Pod\n`,
      `\uFEFF${sets('x')}`,
      `${sets('y')}containerRuntimeEndpoint: unix:///x.sock\n`,
      sets('x').replaceAll('\n', '\r\n'),
    ]) {
      put(CONFIG, content);
      expect(await read({ config: CONFIG }), content).toMatchObject({ endpoint: 'unix:///x.sock' });
    }
  });
});

describe('a place that kubelet cannot read', () => {
  test.each([
    ['kind: [\n', `${FOLDER}/10-a.conf is not valid YAML: `],
    ['', `${FOLDER}/10-a.conf is not a KubeletConfiguration`],
    ['- kind\n', `${FOLDER}/10-a.conf is not a KubeletConfiguration`],
    ['containerRuntimeEndpoint: unix:///a.sock\n', `${FOLDER}/10-a.conf is not a KubeletConfiguration`],
    [
      'kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///a.sock\n',
      `${FOLDER}/10-a.conf: apiVersion is not kubelet.config.k8s.io/v1beta1`,
    ],
    [text('containerRuntimeEndpoint: 7'), `${FOLDER}/10-a.conf: containerRuntimeEndpoint is not a string`],
    [text('containerRuntimeEndpoint: [a]'), `${FOLDER}/10-a.conf: containerRuntimeEndpoint is not a string`],
    ['a: &a [x]\nb: *b\n', `${FOLDER}/10-a.conf is not valid YAML: `],
  ])('a drop-in that kubelet cannot read leaves the endpoint unknown, and is named: %j', async (content, problem) => {
    put(CONFIG, sets('config'));
    dropIn('10-a.conf', content);
    dropIn('20-b.conf', sets('b'));
    const chain = await withDropIns();
    expect(chain.endpoint).toBeUndefined();
    expect(chain.layers.find(({ file }) => file?.endsWith('10-a.conf'))?.problem).toContain(problem);
    // doctor needs the rest of the files, so they are read nevertheless.
    expect(chain.winner.file).toBe(`${FOLDER}/20-b.conf`);
  });

  test('a missing file, a missing folder, or a drop-in that links to a folder leaves the endpoint unknown', async () => {
    expect(await read({ config: CONFIG })).toMatchObject({ endpoint: undefined, kubeadm: undefined });
    put(CONFIG, sets('config'));
    const missing = await withDropIns();
    expect(missing).toMatchObject({ endpoint: undefined, dropInFolder: undefined });
    expect(missing.layers.at(-1)).toMatchObject({ file: FOLDER, problem: `${FOLDER} does not exist` });
    mkdirSync(join(root, FOLDER), { recursive: true });
    symlinkSync('/', join(root, FOLDER, '10-a.conf'));
    expect((await withDropIns()).layers.at(-1)).toMatchObject({ problem: `${FOLDER}/10-a.conf is not a regular file` });
  });

  test('a FIFO, or a file that is too long, is reported as a problem of its place', async () => {
    mkdirSync(join(root, FOLDER), { recursive: true });
    execFileSync('mkfifo', [join(root, FOLDER, '10-a.conf')]);
    expect((await read({ configDir: FOLDER })).layers.at(-1)).toMatchObject({
      problem: `${FOLDER}/10-a.conf is not a regular file`,
    });
    put(CONFIG, '');
    truncateSync(join(root, CONFIG), LONGEST_FILE + 1);
    expect((await read({ config: CONFIG })).layers.at(-1)).toMatchObject({
      problem: `${CONFIG} is longer than ${LONGEST_FILE} bytes`,
    });
  });

  test('a folder of drop-ins with too many entries is reported as a problem', async () => {
    mkdirSync(join(root, FOLDER), { recursive: true });
    for (let index = 0; index < MOST_ENTRIES; index += 1) writeFileSync(join(root, FOLDER, String(index)), '');
    expect(await read({ configDir: FOLDER })).toMatchObject({ endpoint: DEFAULT });
    dropIn('x.conf', sets('x'));
    expect((await read({ configDir: FOLDER })).layers.at(-1)?.problem).toContain(`more than ${MOST_ENTRIES} entries`);
  });

  test('YAML aliases that expand to too much are reported as a problem', async () => {
    const levels = Array.from({ length: 12 }, (_, level) =>
      level === 0
        ? 'a0: &a0 [x, x]'
        : `a${level}: &a${level} [${Array.from({ length: 9 }, () => `*a${level - 1}`).join(', ')}]`,
    );
    put(CONFIG, text(levels.join('\n')));
    expect((await read({ config: CONFIG })).layers.at(-1)?.problem).toContain('alias');
  });

  test('the flag sets the endpoint even if kubelet’s configuration file is invalid', async () => {
    put(CONFIG, 'kind: [');
    const chain = await read({ config: CONFIG, endpoint: 'unix:///flag.sock' });
    expect(chain.endpoint).toBe('unix:///flag.sock');
    expect(chain.layers[1]?.problem).toContain('is not valid YAML');
  });
});

describe('kubeadm’s patch', () => {
  const PATCH = '/var/lib/kubelet/instance-config.yaml';
  test.each([
    ['containerRuntimeEndpoint: "unix:///p.sock"\n', { file: PATCH, endpoint: 'unix:///p.sock' }],
    ['# nothing\n', { file: PATCH }],
    ['', { file: PATCH }],
    ['maxPods: 9\n', { file: PATCH }],
    ['[\n', { file: PATCH, problem: expect.stringContaining(`${PATCH} is not valid YAML`) as string }],
    ['- a\n', { file: PATCH, problem: `${PATCH} is not a KubeletConfiguration` }],
  ])('kubelet does not read the endpoint from kubeadm’s patch %j', async (content, patch) => {
    put(CONFIG, sets('config'));
    put(PATCH, content);
    expect(await read({ config: CONFIG })).toMatchObject({ endpoint: 'unix:///config.sock', kubeadm: patch });
  });

  test('kubeadm’s patch is found only next to a config.yaml', async () => {
    put('/etc/kubelet.yaml', sets('config'));
    put('/etc/instance-config.yaml', 'containerRuntimeEndpoint: unix:///p.sock\n');
    expect((await read({ config: '/etc/kubelet.yaml' })).kubeadm).toBeUndefined();
  });
});

test('a YAML merge key sets the endpoint, as kubelet decodes it, unless the file itself has the key', async () => {
  const merged = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
base: &base { containerRuntimeEndpoint: unix:///merged.sock }
<<: *base
`;
  put('/k.yaml', merged);
  expect((await read({ config: '/k.yaml' })).endpoint).toBe('unix:///merged.sock');
  put('/k.yaml', `${merged}containerRuntimeEndpoint: unix:///own.sock\n`);
  expect((await read({ config: '/k.yaml' })).endpoint).toBe('unix:///own.sock');
});
