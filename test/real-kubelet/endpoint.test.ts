import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { readEndpointChain } from '../../src/kubelet/endpoint/chain.ts';
import { endpointFlagsOf } from '../../src/kubelet/endpoint/process.ts';

/**
 * A real kubelet logs the endpoint that it has merged from its flags, configuration and drop-ins, and ends, because it
 * needs a client of the API server to continue. src/kubelet/endpoint must find the same endpoint.
 */

const programs = process.env['KUBERNETES_PROGRAMS'] ?? '';
const HEAD = 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n';
const sets = (name: string): string => `${HEAD}containerRuntimeEndpoint: unix:///${name}.sock\n`;

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'endpoint-'))));
afterEach(() => rmSync(folder, { recursive: true }));

function put(file: string, text: string): void {
  mkdirSync(dirname(join(folder, file)), { recursive: true });
  writeFileSync(join(folder, file), text);
}

/** The endpoint that kubelet logs after it has merged everything; undefined if it does not start with these files. */
async function kubeletsEndpoint(flags: readonly string[]): Promise<string | undefined> {
  const own = ['--root-dir', join(folder, 'root'), '--cert-dir', join(folder, 'pki'), '--fail-cgroupv1=false', '-v=5'];
  const { all } = await execa(join(programs, 'kubelet'), [...own, ...flags], {
    ...{ cwd: folder, reject: false, all: true, timeout: 60_000 },
  });
  // Since 1.37, the log has the configuration as YAML.
  const [, endpoint] = /(?:"?ContainerRuntimeEndpoint"?: ?"|^\tcontainerRuntimeEndpoint: "?)([^"\n]*)/m.exec(all) ?? [];
  if (endpoint === undefined) expect(all).toMatch(/failed to (?:load|merge) kubelet config|flag needs an argument/);
  return endpoint;
}

async function ourEndpoint(flags: readonly string[]): Promise<string | undefined> {
  return (await readEndpointChain(endpointFlagsOf(['kubelet', ...flags]), { root: '', cwd: folder })).endpoint;
}

interface Case {
  readonly title: string;
  readonly files: Readonly<Record<string, string>>;
  readonly flags: readonly string[];
  /** Undefined: kubelet does not start. */
  readonly endpoint: string | undefined;
}

const CONFIG = ['--config', 'config.yaml'];
const BOTH = [...CONFIG, '--config-dir', 'd'];
const DEFAULT = 'unix:///run/containerd/containerd.sock';
const base = { 'config.yaml': sets('config') };

const cases: readonly Case[] = [
  { title: 'only the configuration', files: base, flags: CONFIG, endpoint: 'unix:///config.sock' },
  { title: 'neither', files: {}, flags: [], endpoint: DEFAULT },
  {
    title: 'drop-ins in the order of their names',
    files: { ...base, 'd/20.conf': sets('20'), 'd/10.conf': sets('10'), 'd/9.yaml': sets('9') },
    ...{ flags: BOTH, endpoint: 'unix:///20.sock' },
  },
  {
    title: 'a subfolder before a file whose name is longer',
    files: { ...base, 'd/50-x/z.conf': sets('inside'), 'd/50-x.conf': sets('file') },
    ...{ flags: BOTH, endpoint: 'unix:///file.sock' },
  },
  {
    title: 'names compared by their bytes',
    files: { ...base, 'd/a.conf': sets('a'), 'd/B.conf': sets('B'), 'd/.conf': sets('dot') },
    ...{ flags: BOTH, endpoint: 'unix:///a.sock' },
  },
  { title: 'only .conf', files: { 'd/.conf': sets('dot') }, flags: ['--config-dir=d'], endpoint: 'unix:///dot.sock' },
  {
    title: 'a drop-in with null',
    files: { ...base, 'd/1.conf': `${HEAD}containerRuntimeEndpoint: null\n` },
    ...{ flags: BOTH, endpoint: DEFAULT },
  },
  {
    title: 'a drop-in with an empty value',
    files: { ...base, 'd/1.conf': `${HEAD}containerRuntimeEndpoint: ""\n` },
    ...{ flags: BOTH, endpoint: DEFAULT },
  },
  {
    title: 'a drop-in in JSON, with several documents and CRLF',
    files: {
      ...base,
      'd/1.conf': JSON.stringify({
        apiVersion: 'kubelet.config.k8s.io/v1beta1',
        kind: 'KubeletConfiguration',
        containerRuntimeEndpoint: 'unix:///json.sock',
      }),
      'd/2.conf': `${sets('first')}---\n${sets('second')}`.replaceAll('\n', '\r\n'),
    },
    ...{ flags: BOTH, endpoint: 'unix:///first.sock' },
  },
  {
    title: 'a key that is there twice',
    files: { 'config.yaml': `${sets('one')}containerRuntimeEndpoint: unix:///two.sock\n` },
    ...{ flags: CONFIG, endpoint: 'unix:///two.sock' },
  },
  {
    title: 'a flag, with underscores and twice',
    files: { ...base, 'd/1.conf': sets('1') },
    flags: [...BOTH, '--container_runtime_endpoint=unix:///a.sock', '--container-runtime-endpoint', 'unix:///b.sock'],
    endpoint: 'unix:///b.sock',
  },
  { title: 'a drop-in that is not YAML', files: { ...base, 'd/1.conf': '[' }, flags: BOTH, endpoint: undefined },
  { title: 'a drop-in without content', files: { ...base, 'd/1.conf': '' }, flags: BOTH, endpoint: undefined },
  {
    title: 'a drop-in without kind',
    files: { ...base, 'd/1.conf': 'containerRuntimeEndpoint: unix:///x.sock\n' },
    ...{ flags: BOTH, endpoint: undefined },
  },
  {
    title: 'a value that is a number',
    files: { ...base, 'd/1.conf': `${HEAD}containerRuntimeEndpoint: 7\n` },
    ...{ flags: BOTH, endpoint: undefined },
  },
  { title: 'a folder that is missing', files: base, flags: BOTH, endpoint: undefined },
  { title: 'a configuration that is missing', files: {}, flags: CONFIG, endpoint: undefined },
];

describe('endpoint in merged kubelet configurations', () => {
  test.each(cases)('reads the same endpoint as kubelet from $title', async ({ files, flags, endpoint }) => {
    for (const [file, text] of Object.entries(files)) put(file, text);
    expect(await kubeletsEndpoint(flags)).toBe(endpoint);
    expect(await ourEndpoint(flags)).toBe(endpoint);
  });

  test.each([
    ['a folder that is a link', 'link', DEFAULT],
    ['a folder that is a link, with a slash at its end', 'link/', 'unix:///linked.sock'],
  ])('reads the same endpoint as kubelet from %s', async (_, configDir, endpoint) => {
    put('elsewhere/1.conf', sets('linked'));
    symlinkSync(join(folder, 'elsewhere'), join(folder, 'link'));
    const flags = ['--config-dir', join(folder, 'link') + configDir.slice('link'.length)];
    expect(await kubeletsEndpoint(flags)).toBe(endpoint);
    expect(await ourEndpoint(flags)).toBe(endpoint);
  });

  test('reads the same endpoint as kubelet from a drop-in that is a link', async () => {
    put('elsewhere/1.yaml', sets('linked'));
    mkdirSync(join(folder, 'd'));
    symlinkSync(join(folder, 'elsewhere/1.yaml'), join(folder, 'd/1.conf'));
    expect(await kubeletsEndpoint(['--config-dir=d'])).toBe('unix:///linked.sock');
    expect(await ourEndpoint(['--config-dir=d'])).toBe('unix:///linked.sock');
  });
});
