import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import { messageOf } from '../../core/errors/index.ts';
import { type Node, unitProperties } from '../host/index.ts';

/** What sets the endpoint of kubelet. */
export type EndpointSource =
  | { readonly kind: 'flag' }
  | { readonly kind: 'config'; readonly file: string }
  /** Neither sets it: the default of kubelet applies. `file`: its configuration file, if it has one. */
  | { readonly kind: 'default'; readonly file?: string };

/** The setup of the kubelet that runs on a node. */
export interface Kubelet {
  /** `unix:///run/containerd/containerd.sock`, as written in the source. */
  readonly endpoint: string;
  readonly source: EndpointSource;
}

export type KubeletFound =
  | { readonly kind: 'running'; readonly pid: string; readonly kubelet: Kubelet }
  /** `state` is systemd's ActiveState: `inactive`, `failed`. */
  | { readonly kind: 'stopped'; readonly state: string }
  | { readonly kind: 'no unit' }
  /** It runs, but its setup cannot be read. */
  | { readonly kind: 'unclear'; readonly why: string };

/** The default since kubelet 1.27. */
const DEFAULT_ENDPOINT = 'unix:///run/containerd/containerd.sock';
export const FLAG = '--container-runtime-endpoint';

/**
 * Reads the setup of kubelet from the command line of its process, so it does not matter which unit, drop-in or environment file
 * set it. A flag overrides the file, as in kubelet itself. Rejects if systemd does not answer.
 */
export async function findKubelet(node: Node): Promise<KubeletFound> {
  const properties = await unitProperties(node.kubeletUnit, ['LoadState', 'ActiveState', 'MainPID']);
  const one = (name: string): string | undefined => properties(name)[0];
  if (one('LoadState') !== 'loaded') return { kind: 'no unit' };
  const pid = one('MainPID') ?? '0';
  if (pid === '0') return { kind: 'stopped', state: one('ActiveState') ?? 'unknown' };
  try {
    const text = await readFile(join(node.procRoot, pid, 'cmdline'), 'utf8');
    return { kind: 'running', pid, kubelet: await kubeletOf(text.split('\0').slice(0, -1), node, pid) };
  } catch (error) {
    return { kind: 'unclear', why: messageOf(error) };
  }
}

async function kubeletOf(commandLine: readonly string[], node: Node, pid: string): Promise<Kubelet> {
  const endpoint = flagOf(commandLine, FLAG);
  if (endpoint !== undefined && endpoint !== '') return { endpoint, source: { kind: 'flag' } };
  const file = flagOf(commandLine, '--config');
  if (file === undefined || file === '') return { endpoint: DEFAULT_ENDPOINT, source: { kind: 'default' } };
  // The path as kubelet sees it: it may have another root directory, and the path may be relative.
  const seen = file.startsWith('/') ? join(node.procRoot, pid, 'root', file) : join(node.procRoot, pid, 'cwd', file);
  const written = endpointIn(await readFile(seen, 'utf8'), file);
  if (written === undefined) return { endpoint: DEFAULT_ENDPOINT, source: { kind: 'default', file } };
  return { endpoint: written, source: { kind: 'config', file } };
}

/** Returns the value of a flag, given as `--flag value` or `--flag=value`; undefined if it is missing. The last one wins, as in kubelet. */
export function flagOf(commandLine: readonly string[], flag: string): string | undefined {
  let found: string | undefined;
  for (const [index, word] of commandLine.entries()) {
    if (word === flag) found = commandLine[index + 1];
    else if (word.startsWith(`${flag}=`)) found = word.slice(flag.length + 1);
  }
  return found;
}

/** Returns `containerRuntimeEndpoint` of a KubeletConfiguration. Throws if the file is not one. */
export function endpointIn(text: string, file: string): string | undefined {
  const read: unknown = parse(text);
  if (typeof read !== 'object' || read === null || !('kind' in read) || read.kind !== 'KubeletConfiguration')
    throw new Error(`${file} is not a KubeletConfiguration`);
  const endpoint = 'containerRuntimeEndpoint' in read ? read.containerRuntimeEndpoint : undefined;
  if (endpoint === undefined || endpoint === null || endpoint === '') return undefined;
  if (typeof endpoint !== 'string') throw new Error(`${file}: containerRuntimeEndpoint is not a string`);
  return endpoint;
}
