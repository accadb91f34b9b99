import { promises } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { MiB, SS_CONNECTED, unixSockets } from '../../core/index.ts';
import { type EndpointChain, layerName } from '../../kubelet/endpoint/chain.ts';
import { isSameSocket, USED_FILE } from '../../kubelet/endpoint/paths.ts';
import { runsKubelet } from '../../kubelet/endpoint/process.ts';
import { queryRuntime, queryShim } from '../host/query-runtime.ts';
import { type Node, UNITS } from '../host/site.ts';
import { expandGlob } from '../host/systemd.ts';
import { filesOfUnit } from '../kubelet/files.ts';
import { findKubelet, readStoppedKubelet } from '../kubelet/kubelet.ts';
import { type Finding, findingsOf } from './finding.ts';
import { isThere } from './program.ts';

/** Files in which kubeadm, packages and distributions set kubelet's endpoint. */
export const KUBELET_FILES: readonly string[] = [
  '/var/lib/kubelet/*.*',
  '/var/lib/rancher/*/agent/etc/kubelet*',
  '/etc/*/kubelet*',
  '/etc/*/*/kubelet*',
  '/etc/eks/nodeadm.d/*',
  '/usr/lib/systemd/system/kubelet*',
];

/**
 * Returns shell lines that point kubelet back at containerd and stop the shim, using only grep, sed, readlink and
 * systemctl (also of busybox). If no file contains the shim's socket, they do not stop the shim, because kubelet may
 * still use it. README.md and docs/troubleshooting.md contain them too.
 * @param others files that match none of the patterns
 */
export function linesBack(
  { listen, containerd, kubeletUnit, kubeletFiles }: Node,
  others: readonly string[] = [],
): readonly string[] {
  const unit = kubeletUnit.replace(/\.service$/, '');
  return [
    `files=$(grep -rls ${listen.split('/').at(-1) ?? listen} ${[...kubeletFiles, ...others.map(quoted)].join(' ')})`,
    `for file in $files; do sed -i 's|${listen}|${containerd}|' "$(readlink -f "$file")"; done`,
    `systemctl daemon-reload; systemctl reset-failed ${unit}; systemctl restart ${unit}`,
    `[ -n "$files" ] && systemctl disable --now ${UNITS.join(' ')}`,
  ];
}

const quoted = (path: string): string =>
  /^[\w/.@:+-]+$/.test(path) ? path : `'${path.replaceAll("'", String.raw`'\''`)}'`;

/** Checks whether kubelet, running or not, is set to use a socket that nothing serves. */
export async function checkKubeletRuntime(node: Node): Promise<Finding> {
  const { ok, failed } = findingsOf('kubelet runtime');
  const { listen, containerd } = node;
  const place = await placeOfEndpoint(node);
  if (place === undefined) return ok(`kubelet does not use ${listen}`);
  if (await answers(listen)) return ok(`${listen} is served`);
  if (!(await answers(containerd))) return ok('not checked: containerd does not answer either');
  return failed(
    `kubelet uses ${listen} (${place.name}), and nothing answers there: this node has no container runtime`,
    [
      'resizectl install, or these lines, which need no program of the shim:',
      ...linesBack(node, await otherFiles(node, place.files)),
    ].join('\n'),
  );
}

/** Whether a runtime answers, or a shim that does not reach one. */
async function answers(socket: string): Promise<boolean> {
  const isRuntime = await queryRuntime(socket).then(
    () => true,
    () => false,
  );
  return (
    isRuntime ||
    queryShim(socket).then(
      (shim) => shim !== undefined,
      () => false,
    )
  );
}

/** The place that sets the socket of the shim. */
interface Place {
  /** The file, or the flag. */
  readonly name: string;
  /** The files that may have it. */
  readonly files: readonly string[];
}

/** Returns what sets the shim's socket, for a running kubelet or its next start. Undefined if nothing does. */
async function placeOfEndpoint(node: Node): Promise<Place | undefined> {
  const chain = await chainOf(node).catch(() => undefined);
  if (chain?.endpoint === undefined) {
    // kubelet has no unit, or another program starts it: one of the usual files contains its configuration.
    const file = await fileWith(node);
    return file === undefined ? undefined : { name: file, files: [file] };
  }
  if (!(await isSameSocket(chain.endpoint, node.listen))) return undefined;
  const own = [...chain.layers, ...(chain.kubeadm === undefined ? [] : [chain.kubeadm])].flatMap(
    ({ file }) => file ?? [],
  );
  const ofUnit = chain.winner.kind === 'flag' ? await filesOfUnit(node.kubeletUnit) : [];
  return { name: layerName(chain.winner), files: [...own, ...ofUnit.map(({ file }) => file)] };
}

/** Reads the endpoint in the same way as the check `kubelet`, so that both report the same. */
async function chainOf(node: Node): Promise<EndpointChain | undefined> {
  const found = await findKubelet(node);
  if (found.kind === 'running') return found.kubelet.chain;
  return found.kind === 'stopped' ? (await readStoppedKubelet(node)).chain : undefined;
}

/** Whether a kubelet that does not run would use the shim at its next start. */
export interface NextStart {
  /** Whether no kubelet uses the shim's socket, and nothing that kubelet reads contains it. */
  readonly isFree: boolean;
  /** The manual steps if kubelet is to stay stopped. */
  readonly byHand?: string;
}

/** Where platforms may have the endpoint as a flag whose units have other names than kubelet's. */
const OTHER_FILES: readonly string[] = [
  '/var/snap/*/*/args/kubelet',
  '/etc/rancher/*/config.yaml*',
  ...['k3s', 'rke2'].flatMap((name) => [`/etc/systemd/system/${name}*`, `/usr/local/lib/systemd/system/${name}*`]),
];

/** Determines the runtime for a kubelet that has no unit or does not run, as on a node that has left its cluster. */
export async function nextStart(node: Node): Promise<NextStart> {
  const found = await findKubelet(node);
  if (found.kind === 'running' || found.kind === 'unclear') return { isFree: false };
  const { kubeletFiles } = node;
  const file = await fileWith({ ...node, kubeletFiles: [...kubeletFiles, ...OTHER_FILES] });
  if (file !== undefined) return { isFree: false, byHand: `set unix://${node.containerd} in ${file}` };
  // A kubelet of another unit, such as that of MicroK8s.
  if (await runsKubelet(node.procRoot)) return { isFree: false };
  if (found.kind === 'no unit') return startWithoutUnit(node);
  const { chain } = await readStoppedKubelet(node);
  if (chain === undefined) return { isFree: false };
  const { endpoint } = chain;
  if (endpoint !== undefined) return { isFree: !(await isSameSocket(endpoint, node.listen)) };
  // `kubeadm reset` removes the configuration, and kubelet does not start without it.
  const problems = chain.layers.filter(({ problem }) => problem !== undefined);
  return { isFree: problems.every(({ file: path, problem }) => problem === `${path ?? ''} does not exist`) };
}

/** Checks for a kubelet without a known unit: its socket may be set in an unknown file. */
async function startWithoutUnit(node: Node): Promise<NextStart> {
  if (await hasClients(node)) return { isFree: false, byHand: `stop the clients of ${node.listen}` };
  const used = join(node.stateFolder, USED_FILE);
  if (await isThere(used)) return { isFree: false, byHand: `run rm -f ${used}: it says that kubelet uses the shim` };
  return { isFree: true };
}

/** Whether a client is connected to the socket of the shim. */
async function hasClients({ procRoot, listen }: Node): Promise<boolean> {
  const sockets = unixSockets(await readFile(join(procRoot, 'net/unix'), 'utf8'));
  return sockets.some(({ state, path }) => state === SS_CONNECTED && basename(path) === basename(listen));
}

/** Returns the files that contain the shim's socket and match none of the usual patterns. */
async function otherFiles({ kubeletFiles, listen }: Node, files: readonly string[]): Promise<readonly string[]> {
  const usual = (await Promise.all(kubeletFiles.map(expandGlob))).flat();
  const isUsual = (file: string): boolean => usual.some((path) => file === path || file.startsWith(`${path}/`));
  const others = files.filter((file) => file.startsWith('/') && !isUsual(file));
  const have = await Promise.all(others.map((file) => hasText(file, listen)));
  return others.filter((_file, index) => have[index] === true);
}

/** Returns the first file that contains the shim's socket outside of comments. */
async function fileWith({ kubeletFiles, listen }: Node): Promise<string | undefined> {
  for (const pattern of kubeletFiles)
    for await (const path of promises.glob([pattern, `${pattern}/*`])) if (await hasText(path, listen)) return path;
  return undefined;
}

/** Configuration files are smaller: a larger file is not one. */
const LONGEST = MiB;

async function hasText(path: string, text: string): Promise<boolean> {
  try {
    const found = await stat(path);
    if (!found.isFile() || found.size > LONGEST) return false;
    const lines = (await readFile(path, 'utf8')).split('\n');
    return lines.some((line) => line.includes(text) && !/^\s*#/.test(line));
  } catch {
    // The file was removed meanwhile.
    return false;
  }
}
