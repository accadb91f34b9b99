import { readFile, realpath } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { errnoOf } from '../../core/index.ts';
import type { EndpointChain, Layer } from '../../kubelet/endpoint/chain.ts';
import { API_VERSION, ENDPOINT_KEY, type FileForm, KIND } from '../../kubelet/endpoint/configuration.ts';
import { compareDropIns } from '../../kubelet/endpoint/files.ts';
import { isSameSocket } from '../../kubelet/endpoint/paths.ts';
import { ENDPOINT_FLAG, flagOf, wordsOfArgsFile } from '../../kubelet/endpoint/process.ts';
import type { Node } from '../host/site.ts';
import { expandGlob, unitProperties } from '../host/systemd.ts';
import { environmentFilesOf, type Kubelet } from './kubelet.ts';
import { endpointIn, flagsIn, Refusal, withEndpoint, withFlag } from './setting.ts';

/** A file that sets kubelet's endpoint, or from which kubeadm will set it. */
export interface Setting {
  /** The real path, symbolic links resolved. */
  readonly file: string;
  /** Undefined: the file does not exist yet. */
  readonly text: string | undefined;
  /** Whether a change needs `systemctl daemon-reload`. */
  readonly isOfUnit: boolean;
  /** A drop-in that only we write: an uninstallation removes it. */
  readonly isOwn: boolean;
  /** The layer of kubelet's configuration that the file is; undefined for kubeadm's patch. */
  readonly layer: Layer | undefined;
  /** Returns the endpoint in a text of this file; undefined if there is none. */
  readonly endpointOf: (text: string) => string | undefined;
  /** The text with another endpoint. Throws Refusal. */
  readonly edited: (text: string, endpoint: string | undefined) => string;
}

/**
 * Finds the files to change so that kubelet uses another endpoint, now and after the next upgrade of the node: the flag
 * if there is one, otherwise a drop-in of our own if kubelet has a folder for them, otherwise the configuration file
 * and kubeadm's patch for it. Throws Refusal if a file has to be changed manually. @param wanted the new endpoint
 */
export async function settingsToChange(node: Node, kubelet: Kubelet, wanted: string): Promise<readonly Setting[]> {
  const { chain } = kubelet;
  if (chain.winner.kind === 'flag') return [await flagSetting(node, kubelet, wanted)];
  if (chain.dropInFolder !== undefined) return [await ownDropIn(node, chain, chain.dropInFolder, wanted)];
  const config = chain.layers.find(({ kind }) => kind === 'config');
  if (config?.file === undefined)
    throw new Refusal(
      `${node.kubeletUnit} has neither --config nor ${ENDPOINT_FLAG}`,
      `start kubelet with --config and a KubeletConfiguration, or with ${ENDPOINT_FLAG}=${kubelet.endpoint}, and try again`,
    );
  return [await fileSetting(node, config.file, config), ...(await patchSettings(node, chain, wanted))];
}

/** Finds the files that kubelet or kubeadm reads and that may have our endpoint. Throws Refusal. */
export async function settingsInUse(node: Node, kubelet: Kubelet, wanted: string): Promise<readonly Setting[]> {
  const { chain } = kubelet;
  // A flag with another endpoint is not ours.
  const isOurFlag = chain.winner.kind === 'flag' && (await isSameSocket(kubelet.endpoint, node.listen));
  const found: Setting[] = isOurFlag ? [await flagSetting(node, kubelet, wanted)] : [];
  if (chain.winner.kind === 'flag' && chain.winner.file !== undefined)
    found.push(...(await otherRevisions(node, chain.winner.file)));
  for (const layer of chain.layers.filter(({ kind }) => kind !== 'flag')) {
    const file = await editableFile(node, layer);
    if (file !== undefined) found.push(await fileSetting(node, file, layer));
  }
  const patch = chain.kubeadm && (await editableFile(node, chain.kubeadm));
  if (patch !== undefined) found.push(await fileSetting(node, patch, undefined));
  const nodeadm = await nodeadmSetting(chain, wanted);
  return nodeadm?.text === undefined ? found : [...found, nodeadm];
}

/** A file with a relative path was not changed by us, unless it has our endpoint: then the caller refuses it. */
async function editableFile({ listen }: Node, place: Omit<Layer, 'kind'>): Promise<string | undefined> {
  const { file, endpoint = '', problem } = place;
  if (file === undefined || problem !== undefined) return undefined;
  return file.startsWith('/') || (await isSameSocket(endpoint, listen)) ? file : undefined;
}

/**
 * Returns the settings from which the configuration of kubelet is written again: kubeadm's patch, or a file for nodeadm
 * of EKS, where these are in use. Throws Refusal if kubeadm could not read the patch.
 */
export async function patchSettings(node: Node, chain: EndpointChain, wanted: string): Promise<readonly Setting[]> {
  if (chain.kubeadm === undefined) return [await nodeadmSetting(chain, wanted)].filter((one) => one !== undefined);
  const { file, problem } = chain.kubeadm;
  if (problem !== undefined) throw new Refusal(problem, `repair ${file}: kubeadm upgrade node fails with it`);
  return [await fileSetting(node, file, undefined)];
}

/**
 * nodeadm of EKS writes this configuration at each boot, from the user data and from the files in the folder
 * (nodeadm-run.service and nodeadm/internal/configprovider of amazon-eks-ami). An AMI without the folder does not read
 * it.
 */
const NODEADM = { config: '/etc/kubernetes/kubelet/config.json', folder: '/etc/eks/nodeadm.d' };

async function nodeadmSetting({ layers }: EndpointChain, wanted: string): Promise<Setting | undefined> {
  if (!layers.some(({ kind, file }) => kind === 'config' && file === NODEADM.config)) return undefined;
  const folder = await realpath(NODEADM.folder).catch(() => undefined);
  if (folder === undefined) return undefined;
  const file = join(folder, '99-cri-resize-shim.yaml');
  return {
    file,
    text: await textOf(file),
    isOfUnit: false,
    isOwn: true,
    layer: undefined,
    endpointOf: (text) => new RegExp(`^ *${ENDPOINT_KEY}: (.*)$`, 'm').exec(text)?.[1],
    edited: (_text, endpoint) => `# Written by resizectl install. resizectl uninstall removes this file.
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      ${ENDPOINT_KEY}: ${endpoint ?? wanted}
`,
  };
}

async function fileSetting(node: Node, path: string, layer: Layer | undefined): Promise<Setting> {
  assertAbsolute(node, path);
  const file = await realpath(path);
  const form: FileForm = layer === undefined ? 'patch' : layer.kind === 'drop-in' ? 'drop-in' : 'config';
  return {
    file,
    text: await readFile(file, 'utf8'),
    isOfUnit: false,
    isOwn: form === 'drop-in' && OWN_NAMES.includes(basename(path)),
    layer,
    endpointOf: (text) => endpointIn(text, file, form),
    edited: (text, other) => withEndpoint(text, other, file, form),
  };
}

function assertAbsolute({ kubeletUnit }: Node, path: string): void {
  if (!path.startsWith('/')) throw new Refusal(`${kubeletUnit} has a relative path: ${path}`, 'use an absolute path');
}

/** The names of our drop-in. The second one is for a folder in which another drop-in would override the first. */
export const OWN_NAMES: readonly string[] = ['99-cri-resize-shim.conf', 'zz-cri-resize-shim.conf'];

async function ownDropIn(node: Node, { layers }: EndpointChain, folder: string, wanted: string): Promise<Setting> {
  assertAbsolute(node, folder);
  const others = layers.filter(
    ({ kind, file, endpoint }) =>
      kind === 'drop-in' && file !== undefined && endpoint !== undefined && !OWN_NAMES.includes(basename(file)),
  );
  const later = (name: string): Layer | undefined =>
    others.find(({ file = '' }) => compareDropIns(relative(folder, file), name) > 0);
  const name = OWN_NAMES.find((own) => later(own) === undefined);
  if (name === undefined) {
    const { file = '' } = others.at(-1) ?? {};
    throw new Refusal(
      `${file} sets ${ENDPOINT_KEY}, and kubelet reads it after ${OWN_NAMES.join(' and ')}`,
      `remove ${ENDPOINT_KEY} from ${file}, or set ${wanted} there manually, and restart ${node.kubeletUnit}`,
    );
  }
  const file = join(await realpath(folder), name);
  return {
    file,
    text: await textOf(file),
    isOfUnit: false,
    isOwn: true,
    layer: undefined,
    endpointOf: (text) => endpointIn(text, file, 'drop-in'),
    edited: (_text, endpoint) => dropInText(endpoint ?? wanted),
  };
}

const dropInText = (endpoint: string): string =>
  `# Written by resizectl install. resizectl uninstall removes this file.
apiVersion: ${API_VERSION}
kind: ${KIND}
${ENDPOINT_KEY}: ${endpoint}
`;

/** Returns the setting of a flag in a file that only has flags, as that of MicroK8s. Throws Refusal. */
async function argsSetting(node: Node, argsFile: string, layer: Layer | undefined): Promise<Setting> {
  assertAbsolute(node, argsFile);
  const file = await realpath(argsFile);
  return {
    file,
    text: await readFile(file, 'utf8'),
    isOfUnit: false,
    isOwn: false,
    layer,
    endpointOf: (text) => flagOf(wordsOfArgsFile(text, file), ENDPOINT_FLAG),
    edited: (text, to) => withFlag(text, to ?? `unix://${node.containerd}`, file),
  };
}

/** Returns the settings in other revisions of the snap. `snap revert` would use them. */
async function otherRevisions(node: Node, argsFile: string): Promise<readonly Setting[]> {
  const used = await realpath(argsFile);
  const all = await expandGlob(join(dirname(dirname(dirname(used))), '*/args/kubelet'));
  const files = new Set(await Promise.all(all.map((file) => realpath(file))));
  files.delete(used);
  return Promise.all([...files].map((file) => argsSetting(node, file, undefined)));
}

async function flagSetting(node: Node, { endpoint, chain }: Kubelet, wanted: string): Promise<Setting> {
  if (chain.winner.file !== undefined) return argsSetting(node, chain.winner.file, chain.winner);
  const files = await filesOfUnit(node.kubeletUnit);
  const found = files.flatMap(({ file, text, isOfUnit }) =>
    flagsIn(text).map((flag) => ({ file, text, isOfUnit, flag })),
  );
  const remedy = `set ${ENDPOINT_FLAG}=${wanted} manually, and restart ${node.kubeletUnit}`;
  const [one, ...others] = found;
  const all = files.map(({ file }) => file).join(', ');
  if (one === undefined)
    throw new Refusal(`${ENDPOINT_FLAG} is in none of ${node.kubeletUnit}'s files: ${all}`, remedy);
  const places = found.map(({ file }) => file).join(', ');
  if (others.length > 0)
    throw new Refusal(`${ENDPOINT_FLAG} is in several places of ${node.kubeletUnit}: ${places}`, remedy);
  if (one.flag.endpoint !== endpoint)
    throw new Refusal(
      `${one.file} has ${ENDPOINT_FLAG}=${one.flag.endpoint}, but kubelet runs with ${endpoint}`,
      remedy,
    );
  const { file, text, isOfUnit } = one;
  return {
    file,
    text,
    isOfUnit,
    isOwn: false,
    layer: chain.winner,
    endpointOf: (other) => flagsIn(other)[0]?.endpoint,
    edited: (other, to) => withFlag(other, to ?? endpoint, file),
  };
}

export interface UnitFile {
  readonly file: string;
  readonly text: string;
  readonly isOfUnit: boolean;
}

/** Returns the unit file, its drop-ins and its environment files. */
export async function filesOfUnit(unit: string): Promise<readonly UnitFile[]> {
  const property = await unitProperties(unit, ['FragmentPath', 'DropInPaths', 'EnvironmentFiles']);
  const ofUnit = [...property('FragmentPath'), ...property('DropInPaths').flatMap((paths) => paths.split(' '))];
  const environment = await environmentFilesOf(property('EnvironmentFiles'));
  const all = [
    ...ofUnit.map((file) => ({ file, isOfUnit: true })),
    ...environment.map(({ file }) => ({ file, isOfUnit: false })),
  ].filter(({ file }) => file !== '');
  const read = await Promise.all(all.map(async (at) => ({ ...at, text: await textOf(at.file) })));
  return read.flatMap(({ file, text, isOfUnit }) => (text === undefined ? [] : [{ file, text, isOfUnit }]));
}

async function textOf(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
