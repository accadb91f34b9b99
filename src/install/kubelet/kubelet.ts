import { readFile, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { errnoOf, messageOf } from '../../core/index.ts';
import { type EndpointChain, layerName, readEndpointChain } from '../../kubelet/endpoint/chain.ts';
import { type Problem, problemOf, readBytes } from '../../kubelet/endpoint/files.ts';
import { endpointFlagsOf, kubeletOfUnit, NotStartedYet } from '../../kubelet/endpoint/process.ts';
import { type Assignment, invalidTextIn, printedVariables, wordsOfUnit } from '../../kubelet/endpoint/unit-command.ts';
import type { Node } from '../host/site.ts';
import { expandGlob, systemctl, unitProperties } from '../host/systemd.ts';

/** The setup of the kubelet that runs on a node. */
export interface Kubelet {
  /** The effective endpoint, as written: `unix:///run/containerd/containerd.sock`. */
  readonly endpoint: string;
  readonly chain: EndpointChain;
}

export type KubeletFound =
  | { readonly kind: 'running'; readonly pid: string; readonly kubelet: Kubelet }
  /** `state` is systemd's ActiveState: `inactive`, `failed`. */
  | { readonly kind: 'stopped'; readonly state: string }
  | { readonly kind: 'no unit' }
  /** kubelet runs, but its setup cannot be read. */
  | { readonly kind: 'unclear'; readonly why: string; readonly chain?: EndpointChain };

/** Number of attempts to read kubelet, which may start or end meanwhile if it ends after each start. */
const MOST_LOOKS = 10;
const LOOK_MS = 100;

/**
 * Reads the setup of kubelet from the command line of its process, so it does not matter which unit, drop-in or
 * environment file set it. Rejects if systemd does not answer.
 */
export async function findKubelet(node: Node): Promise<KubeletFound> {
  for (let looks = 1; ; looks += 1) {
    const property = await unitProperties(node.kubeletUnit, ['LoadState', 'ActiveState', 'MainPID']);
    const one = (name: string): string | undefined => property(name)[0];
    if (one('LoadState') !== 'loaded') return { kind: 'no unit' };
    const pid = one('MainPID') ?? '0';
    if (pid === '0') return { kind: 'stopped', state: one('ActiveState') ?? 'unknown' };
    const found = await runningSetup(node, pid);
    if (found !== 'changing') return found;
    if (looks === MOST_LOOKS)
      return { kind: 'unclear', why: `process ${pid} has not started kubelet, or starts and ends too fast` };
    // systemd sends no event when a process becomes the main process of a unit.
    await delay(LOOK_MS);
  }
}

async function runningSetup({ procRoot }: Node, pid: string): Promise<KubeletFound | 'changing'> {
  try {
    const { flags, view } = await kubeletOfUnit(procRoot, Number(pid));
    const chain = await readEndpointChain(flags, view);
    if (chain.endpoint !== undefined) return { kind: 'running', pid, kubelet: { endpoint: chain.endpoint, chain } };
    return (await isThere(`${procRoot}/${pid}`)) ? { kind: 'unclear', why: problemsOf(chain), chain } : 'changing';
  } catch (error) {
    if (error instanceof NotStartedYet || !(await isThere(`${procRoot}/${pid}`))) return 'changing';
    return { kind: 'unclear', why: messageOf(error) };
  }
}

/** The configuration of a kubelet that does not run, from its unit and its files. */
export interface StoppedKubelet {
  /** Undefined if the unit does not start kubelet itself, or its command is not known. */
  readonly chain: EndpointChain | undefined;
  /** The environment file that systemd cannot read. */
  readonly environment?: EnvironmentProblem;
}

const COMMAND = ['ExecStart', 'ExecStartEx', 'WorkingDirectory', 'EnvironmentFiles'];
const ENVIRONMENT = ['Environment', 'PassEnvironment', 'UnsetEnvironment'];

/** Reads a stopped kubelet's setup from its unit: it has no process. Rejects if systemd does not answer. */
export async function readStoppedKubelet({ kubeletUnit, procRoot }: Node): Promise<StoppedKubelet> {
  const property = await unitProperties(kubeletUnit, [...COMMAND, ...ENVIRONMENT]);
  const one = (name: string): string => property(name)[0] ?? '';
  const files = await readEnvironment(property('EnvironmentFiles'));
  if ('problem' in files) return { chain: undefined, environment: files };
  const inherited = await inheritedVariables(procRoot, one('PassEnvironment'));
  const words = await kubeletWords(
    wordsOfUnit({
      ...{ execStart: one('ExecStart'), execStartEx: one('ExecStartEx'), files, inherited },
      ...{ environment: one('Environment'), unsetEnvironment: one('UnsetEnvironment') },
    }),
  );
  if (words === undefined) return { chain: undefined };
  return {
    chain: await readEndpointChain(endpointFlagsOf(words), { root: '', cwd: folderIn(one('WorkingDirectory')) }),
  };
}

/** `/var/lib/kubelet`, `!/var/lib/kubelet` if the folder may be missing, or `~` for the home of root. */
function folderIn(workingDirectory: string): string {
  const folder = workingDirectory.replace(/^!/, '');
  return folder === '~' ? '/root' : folder === '' ? '/' : folder;
}

/** Returns the variables that systemd passes to every unit, and its own variables that `PassEnvironment=` lists. */
async function inheritedVariables(procRoot: string, passed: string): Promise<readonly Assignment[]> {
  const all = printedVariables(await systemctl(['show-environment'], 10_000));
  const names = passed.split(' ').filter((name) => name !== '');
  if (names.length === 0) return all;
  const own = (await environmentOf(`${procRoot}/1`)).split('\0');
  return [...all, ...own.flatMap((text) => printedVariables(text)).filter(([name]) => names.includes(name))];
}

/** Reads the environment of systemd, which only root may read. */
async function environmentOf(process: string): Promise<string> {
  try {
    return await readFile(`${process}/environ`, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'EACCES') return '';
    throw error;
  }
}

const SHELL = /^(?:ba|da|z|k)?sh$/;

/** Returns the words from kubelet on: a wrapper such as nice may start it. Words for a shell are unknown. */
async function kubeletWords(words: readonly string[]): Promise<readonly string[] | undefined> {
  const isKubelet = (word: string): boolean => word.startsWith('/') && basename(word) === 'kubelet';
  const [program = '', ...others] = words;
  if (basename(program) === 'kubelet') return words;
  if (SHELL.test(basename(program))) return undefined;
  for (const [index, word] of others.entries()) if (isKubelet(word) && (await isFile(word))) return others.slice(index);
  return undefined;
}

const isThere = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

const isFile = (path: string): Promise<boolean> =>
  stat(path).then(
    (found) => found.isFile(),
    () => false,
  );

const problemsOf = ({ layers }: EndpointChain): string =>
  layers.flatMap(({ problem }) => (problem === undefined ? [] : [problem])).join('; ');

/** Lists where the endpoint is set, one line for each place, in the order in which kubelet applies them. */
export function chainLines({ layers, winner, kubeadm }: EndpointChain): readonly string[] {
  const lines = layers.map((layer) => {
    const said = layer.problem ?? layer.endpoint ?? 'not set';
    return `${layerName(layer)}: ${said}${layer === winner ? ' (wins)' : ''}`;
  });
  if (kubeadm === undefined) return lines;
  const { file, endpoint, problem } = kubeadm;
  return [...lines, `${file}: ${problem ?? endpoint ?? 'not set'} (kubeadm applies it at its next upgrade)`];
}

/** One file of `EnvironmentFile=`. */
export interface EnvironmentFile {
  /** The path, or a pattern that matches no file. */
  readonly file: string;
  /** Whether the name has the prefix `-`: systemd then starts the unit even if it cannot read the file. */
  readonly isOptional: boolean;
}

/** Returns the files of `EnvironmentFiles` in systemd's reading order. An entry may be a glob(7) pattern. */
export async function environmentFilesOf(entries: readonly string[]): Promise<readonly EnvironmentFile[]> {
  const files: EnvironmentFile[] = [];
  for (const entry of entries) {
    // `/etc/default/kubelet (ignore_errors=yes)`
    const [, pattern = entry, ignores] = /^(.*) \(ignore_errors=(yes|no)\)$/s.exec(entry) ?? [];
    if (pattern === '') continue;
    const isOptional = ignores === 'yes';
    const found = await expandGlob(pattern);
    if (found.length === 0 && !isOptional) files.push({ file: pattern, isOptional });
    files.push(...found.map((file) => ({ file, isOptional })));
  }
  return files;
}

/** A file that prevents systemd from starting the unit, or that we may not read. */
export interface EnvironmentProblem extends Problem {
  readonly file: string;
}

/** Reads a unit's environment files as systemd does before a start. Returns the first unreadable one's problem. */
export async function readEnvironment(entries: readonly string[]): Promise<readonly string[] | EnvironmentProblem> {
  const texts: string[] = [];
  for (const { file, isOptional } of await environmentFilesOf(entries)) {
    const read = await textOf(file);
    if (typeof read === 'string') texts.push(read);
    else if (!isOptional || read.isDenied === true) return { file, ...read };
  }
  return texts;
}

async function textOf(file: string): Promise<string | Problem> {
  try {
    const bytes = await readBytes(file, file);
    const invalid = invalidTextIn(bytes);
    return invalid === undefined ? bytes.toString('utf8') : { problem: `${file}: ${invalid} is not valid UTF-8` };
  } catch (error) {
    return problemOf(error, file);
  }
}
