import { basename, dirname, join } from 'node:path';
import { errnoOf } from '../../core/index.ts';
import { DEFAULT_ENDPOINT, type FileForm, writtenIn } from './configuration.ts';
import { dropInsIn, type Problem, problemOf, readSmall } from './files.ts';
import { type ProcessView, seenBy } from './paths.ts';
import { ENDPOINT_FLAG, type EndpointFlags } from './process.ts';

/** A place that may set kubelet's endpoint. */
export interface Layer {
  readonly kind: 'default' | 'config' | 'drop-in' | 'flag';
  /** The file as kubelet sees it; undefined for the default and for a flag on the command line. */
  readonly file?: string;
  /** Undefined: this place does not set the endpoint. */
  readonly endpoint?: string;
  /** Why kubelet cannot read this place. kubelet does not start then. */
  readonly problem?: string;
  /** Whether only we lack the permission to read it. */
  readonly isDenied?: true;
}

/** The places that set a kubelet's endpoint. */
export interface EndpointChain {
  /** In the order in which kubelet applies them: the last layer that sets the endpoint wins. */
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
 * kubeadm's `instance-config.yaml`. `kubeadm upgrade node` writes config.yaml from the cluster's ConfigMap and applies
 * this patch to it (WriteConfigToDisk in cmd/kubeadm/app/phases/kubelet/config.go, feature NodeLocalCRISocket, always
 * on since 1.36).
 */
export interface KubeadmPatch {
  readonly file: string;
  /** The endpoint that kubeadm writes next. Undefined: the value of the ConfigMap, usually none. */
  readonly endpoint?: string;
  readonly problem?: string;
}

/**
 * Determines kubelet's endpoint as NewKubeletCommand in cmd/kubelet/app/server.go merges it (Kubernetes 1.36):
 * loadConfigFile reads `--config` or takes the defaults, mergeKubeletConfigurations applies the drop-ins of
 * `--config-dir` as JSON merge patches and then the defaults again, and kubeletConfigFlagPrecedence parses the flags
 * over the result. Never rejects: a layer that cannot be read has a `problem`.
 */
export async function readEndpointChain(flags: EndpointFlags, view: ProcessView): Promise<EndpointChain> {
  const { config, configDir, endpoint: flag, argsFile: file } = flags;
  const base = config === undefined ? [] : [await layerOf('config', config, view)];
  const { dropIns, folder } = configDir === undefined ? noDropIns : await dropInLayers(configDir, view);
  const layers: readonly Layer[] = [
    { kind: 'default', endpoint: DEFAULT_ENDPOINT },
    ...base,
    ...dropIns,
    ...(flag === undefined ? [] : [{ kind: 'flag', endpoint: flag, ...(file !== undefined && { file }) } as const]),
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

async function dropInLayers(configDir: string, view: ProcessView): Promise<DropIns> {
  try {
    // WalkDir begins with Lstat, which follows a link only with a slash at its end.
    const names = await dropInsIn(await seenBy(view, configDir, configDir.endsWith('/')));
    if (names === undefined) return noDropIns;
    const dropIns: Layer[] = [];
    for (const name of names) dropIns.push(await layerOf('drop-in', join(configDir, name), view));
    return { dropIns, folder: configDir };
  } catch (error) {
    return { dropIns: [{ kind: 'drop-in', file: configDir, ...problemOf(error, configDir) }], folder: undefined };
  }
}

async function layerOf(kind: 'config' | 'drop-in', file: string, view: ProcessView): Promise<Layer> {
  const read = await fileSays(file, kind, view);
  return { kind, file, ...read };
}

async function kubeadmPatch(config: string, view: ProcessView): Promise<KubeadmPatch | undefined> {
  // kubeadm uses fixed file names (KubeletConfigurationFileName in cmd/kubeadm/app/constants).
  if (basename(config) !== 'config.yaml') return undefined;
  const file = join(dirname(config), 'instance-config.yaml');
  const read = await fileSays(file, 'patch', view);
  return 'isMissing' in read ? undefined : { file, ...read };
}

type Said = { readonly endpoint?: string } | (Problem & { readonly isMissing?: true });

async function fileSays(file: string, form: FileForm, view: ProcessView): Promise<Said> {
  try {
    const written = writtenIn(await readSmall(await seenBy(view, file), file), file, form);
    if (written === 'nothing' || (written === 'reset' && form !== 'drop-in')) return {};
    return { endpoint: written === 'reset' ? DEFAULT_ENDPOINT : written.endpoint };
  } catch (error) {
    const problem = problemOf(error, file);
    return form === 'patch' && errnoOf(error) === 'ENOENT' ? { ...problem, isMissing: true } : problem;
  }
}

/** The name of a layer in messages: its file, the flag, or the default. */
export const layerName = ({ kind, file }: Layer): string =>
  file ?? (kind === 'flag' ? ENDPOINT_FLAG : 'the default of kubelet');
