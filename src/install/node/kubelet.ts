import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import { messageOf } from '../../core/errors/index.ts';
import type { Node } from './node.ts';
import { unitProperties } from './systemctl.ts';

/** Where kubelet has the runtime's socket from. */
export type EndpointSource =
  | { readonly kind: 'flag' }
  | { readonly kind: 'config'; readonly file: string }
  /** Said nowhere: kubelet's own default. `file`: its configuration file, if it has one. */
  | { readonly kind: 'default'; readonly file?: string };

/** kubelet as it runs on a node. */
export interface Kubelet {
  /** `unix:///run/containerd/containerd.sock`, as it is written there. */
  readonly endpoint: string;
  readonly source: EndpointSource;
}

export type KubeletFound =
  | { readonly kind: 'running'; readonly pid: string; readonly kubelet: Kubelet }
  /** `state` is systemd's ActiveState: `inactive`, `failed`. */
  | { readonly kind: 'stopped'; readonly state: string }
  | { readonly kind: 'no unit' }
  /** It runs, and how it is set up cannot be told. */
  | { readonly kind: 'unclear'; readonly why: string };

/** Since kubelet 1.27, where neither flag nor file says another. */
const DEFAULT_ENDPOINT = 'unix:///run/containerd/containerd.sock';
export const FLAG = '--container-runtime-endpoint';

/**
 * How kubelet is set up: by what its process was really started with, whichever of unit, drop-ins and environment files that came
 * from; a flag wins over the file (kubelet's own rule). Rejects when systemd cannot be asked.
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
  // As its process sees it: it may have a root of its own, and its path may be relative.
  const seen = file.startsWith('/') ? join(node.procRoot, pid, 'root', file) : join(node.procRoot, pid, 'cwd', file);
  const written = endpointIn(await readFile(seen, 'utf8'), file);
  if (written === undefined) return { endpoint: DEFAULT_ENDPOINT, source: { kind: 'default', file } };
  return { endpoint: written, source: { kind: 'config', file } };
}

/** The last one wins, as in kubelet; `--flag value` and `--flag=value` are one. Undefined when it is not there. */
export function flagOf(commandLine: readonly string[], flag: string): string | undefined {
  let found: string | undefined;
  for (const [index, word] of commandLine.entries()) {
    if (word === flag) found = commandLine[index + 1];
    else if (word.startsWith(`${flag}=`)) found = word.slice(flag.length + 1);
  }
  return found;
}

/** `containerRuntimeEndpoint` of a KubeletConfiguration. Throws when the file is none. */
export function endpointIn(text: string, file: string): string | undefined {
  const read: unknown = parse(text);
  if (typeof read !== 'object' || read === null || !('kind' in read) || read.kind !== 'KubeletConfiguration')
    throw new Error(`${file} is no KubeletConfiguration`);
  const endpoint = 'containerRuntimeEndpoint' in read ? read.containerRuntimeEndpoint : undefined;
  if (endpoint === undefined || endpoint === null || endpoint === '') return undefined;
  if (typeof endpoint !== 'string') throw new Error(`${file}: containerRuntimeEndpoint is no text`);
  return endpoint;
}
