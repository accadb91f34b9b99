import { basename, dirname, join } from 'node:path';
import { errnoOf, messageOf } from '../core/errors/index.ts';
import { ENDPOINT_FLAG, type EndpointFlags } from './command-line.ts';
import { DEFAULT_ENDPOINT, type FileForm, writtenIn } from './configuration.ts';
import { dropInsIn, readSmall } from './files.ts';

/** One place that may set the endpoint of kubelet. */
export interface Layer {
  readonly kind: 'default' | 'config' | 'drop-in' | 'flag';
  /** The file as kubelet sees it; undefined for the default and the flag. */
  readonly file?: string;
  /** Undefined: it does not set the endpoint. */
  readonly endpoint?: string;
  /** Why kubelet cannot read it. kubelet does not start with it. */
  readonly problem?: string;
}

/** Where the endpoint of a kubelet comes from. */
export interface EndpointChain {
  /** In the order in which kubelet applies them: of those that set the endpoint the last one wins. */
  readonly layers: readonly Layer[];
  readonly winner: Layer;
  /** The endpoint with which kubelet starts; undefined if a file cannot be read and no flag overrides it. */
  readonly endpoint: string | undefined;
  /** The folder of `--config-dir` as kubelet sees it, if kubelet walks it. */
  readonly dropInFolder: string | undefined;
  /** kubeadm's patch next to the file of `--config`; undefined if there is none. */
  readonly kubeadm: KubeadmPatch | undefined;
}

/**
 * kubeadm's `instance-config.yaml`. `kubeadm upgrade node` writes config.yaml from the cluster's ConfigMap and applies this patch to it
 * (WriteConfigToDisk in cmd/kubeadm/app/phases/kubelet/config.go, feature NodeLocalCRISocket, always on since 1.36).
 */
export interface KubeadmPatch {
  readonly file: string;
  /** What kubeadm writes next. Undefined: the value of the ConfigMap, usually none. */
  readonly endpoint?: string;
  readonly problem?: string;
}

/** Where to read the files of a kubelet: it may have another root, and a relative path starts in its own folder. */
export interface KubeletView {
  /** Prefix of absolute paths: `/proc/42/root`, or empty for our own root. */
  readonly root: string;
  /** Where relative paths start: `/proc/42/cwd`. */
  readonly cwd: string;
}

/**
 * Reads where the endpoint comes from, as NewKubeletCommand in cmd/kubelet/app/server.go merges it (Kubernetes 1.36): loadConfigFile
 * reads `--config` or takes the defaults, mergeKubeletConfigurations applies the drop-ins of `--config-dir` as JSON merge patches and then
 * the defaults again, and kubeletConfigFlagPrecedence parses the flags over the result. Never rejects: what cannot be read has a `problem`.
 */
export async function readEndpointChain(flags: EndpointFlags, view: KubeletView): Promise<EndpointChain> {
  const { config, configDir, endpoint: flag } = flags;
  const base = config === undefined ? [] : [await layerOf('config', config, view)];
  const { dropIns, folder } = configDir === undefined ? noDropIns : await dropInLayers(configDir, view);
  const layers: readonly Layer[] = [
    { kind: 'default', endpoint: DEFAULT_ENDPOINT },
    ...base,
    ...dropIns,
    ...(flag === undefined ? [] : [{ kind: 'flag', endpoint: flag } as const]),
  ];
  const winner = layers.findLast(({ endpoint }) => endpoint !== undefined) ?? { kind: 'default' };
  const isClear = winner.kind === 'flag' || layers.every(({ problem }) => problem === undefined);
  return {
    layers,
    winner,
    endpoint: isClear ? winner.endpoint : undefined,
    dropInFolder: folder,
    kubeadm: config === undefined ? undefined : await kubeadmPatch(config, view),
  };
}

interface DropIns {
  readonly dropIns: readonly Layer[];
  readonly folder: string | undefined;
}

const noDropIns: DropIns = { dropIns: [], folder: undefined };

async function dropInLayers(configDir: string, view: KubeletView): Promise<DropIns> {
  try {
    const names = await dropInsIn(seenBy(view, configDir));
    if (names === undefined) return noDropIns;
    const dropIns: Layer[] = [];
    for (const name of names) dropIns.push(await layerOf('drop-in', join(configDir, name), view));
    return { dropIns, folder: configDir };
  } catch (error) {
    return { dropIns: [{ kind: 'drop-in', file: configDir, problem: messageOf(error) }], folder: undefined };
  }
}

async function layerOf(kind: 'config' | 'drop-in', file: string, view: KubeletView): Promise<Layer> {
  const read = await fileSays(file, kind, view);
  return { kind, file, ...read };
}

async function kubeadmPatch(config: string, view: KubeletView): Promise<KubeadmPatch | undefined> {
  // kubeadm's folder has fixed names (KubeletConfigurationFileName in cmd/kubeadm/app/constants).
  if (basename(config) !== 'config.yaml') return undefined;
  const file = join(dirname(config), 'instance-config.yaml');
  const read = await fileSays(file, 'patch', view);
  return 'isMissing' in read ? undefined : { file, ...read };
}

type Said = { readonly endpoint?: string } | { readonly problem: string; readonly isMissing?: true };

async function fileSays(file: string, form: FileForm, view: KubeletView): Promise<Said> {
  try {
    const written = writtenIn(await readSmall(seenBy(view, file), file), file, form);
    if (written === 'nothing' || (written === 'reset' && form !== 'drop-in')) return {};
    return { endpoint: written === 'reset' ? DEFAULT_ENDPOINT : written.endpoint };
  } catch (error) {
    const problem = messageOf(error);
    return form === 'patch' && errnoOf(error) === 'ENOENT' ? { problem, isMissing: true } : { problem };
  }
}

const seenBy = ({ root, cwd }: KubeletView, file: string): string =>
  file.startsWith('/') ? `${root}${file}` : `${cwd}/${file}`;

/** The name of a layer in messages: its file, the flag, or the default. */
export const layerName = ({ kind, file }: Layer): string =>
  file ?? (kind === 'flag' ? ENDPOINT_FLAG : 'the default of kubelet');
