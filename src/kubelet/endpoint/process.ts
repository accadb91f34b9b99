import { readdir, readFile, readlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { errnoOf } from '../../core/index.ts';
import { problemOf, readSmall } from './files.ts';
import { type ProcessView, seenBy } from './paths.ts';

/** A running kubelet. */
export interface KubeletProcess {
  readonly pid: number;
  /** Distinguishes two processes that use the same pid one after the other. */
  readonly startTime: string;
  readonly flags: EndpointFlags;
  readonly view: ProcessView;
}

/**
 * The drop-in folder of k3s. k3s runs kubelet in its own process and overwrites its command line
 * (proctitle.SetProcTitle in pkg/cli/server). It starts kubelet with `--config-dir` alone (kubeletArgsAndConfig in
 * pkg/daemons/agent/agent_linux.go, since 1.32).
 */
export const K3S_DROP_INS = '/var/lib/rancher/k3s/agent/etc/kubelet.conf.d';

const K3S = /^k3s(?:-server|-agent)?$/;
/** Names of processes that are a kubelet, or contain a kubelet. */
const KUBELET = /^(?:kubelet|k3s|k3s-server|k3s-agent|kubelite)$/;
/** The process of MicroK8s, with kubelet inside. The flags of kubelet are in a file (cmd/kubelite/app/options). */
const KUBELITE = 'kubelite';
const KUBELITE_ARGS = '/var/snap/microk8s/current/args/kubelet';

/** Main process name before systemd runs the program of the unit (exec_spawn in src/core/execute.c). */
const BEFORE_EXEC = /^(?:\(.*\)|systemd|systemd-executo)$/;

/** The process has no kubelet command line yet, or has ended but is not removed yet. Both last moments. */
export class NotStartedYet extends Error {
  override readonly name = 'NotStartedYet';
}

/**
 * Returns the kubelet of a unit: its main process, or a child of it that is called kubelet. RKE2 and k0s start kubelet
 * themselves, below their own unit, and a script of the snap starts kubelite. Rejects if the process has ended, or if
 * the file with its flags cannot be read. Rejects with NotStartedYet while it starts.
 * @param procRoot mount point of procfs
 */
export async function kubeletOfUnit(procRoot: string, mainPid: number): Promise<KubeletProcess> {
  const name = await nameOf(procRoot, mainPid);
  if (BEFORE_EXEC.test(name)) throw new NotStartedYet(`process ${mainPid} has not started its program yet`);
  if (KUBELET.test(name)) return processOf(procRoot, mainPid);
  const child = await childCalledKubelet(procRoot, mainPid);
  if (child !== undefined) return processOf(procRoot, child);
  const main = await processOf(procRoot, mainPid);
  const { endpoint, config, configDir } = main.flags;
  // A program with another name may be kubelet. Without its flags, it is the one that starts kubelet.
  if (endpoint === undefined && config === undefined && configDir === undefined)
    throw new NotStartedYet(`process ${mainPid} (${name}) has not started kubelet yet`);
  return main;
}

/**
 * Finds the kubelet of this node among all processes; undefined if there is none. Processes of other PID namespaces,
 * such as those of a kubelet in a container, do not count.
 * @param procRoot mount point of procfs
 */
export const findKubeletProcess = (procRoot: string): Promise<KubeletProcess | undefined> =>
  firstOf(procRoot, async (pid) =>
    KUBELET.test(await nameOf(procRoot, pid)) && (await isOfOurNamespace(procRoot, pid))
      ? processOf(procRoot, pid)
      : undefined,
  );

/** Whether a process of this node is or contains a kubelet, even if its flags cannot be read. */
export async function runsKubelet(procRoot: string): Promise<boolean> {
  const found = await firstOf(procRoot, async (pid) =>
    KUBELET.test(await nameOf(procRoot, pid)) && (await isOfOurNamespace(procRoot, pid)) ? pid : undefined,
  );
  return found !== undefined;
}

/** Returns the first result for a process. Skips processes that have ended or have not started their program yet. */
async function firstOf<Result>(
  procRoot: string,
  look: (pid: number) => Promise<Result | undefined>,
): Promise<Result | undefined> {
  for (const pid of await pidsIn(procRoot)) {
    try {
      const result = await look(pid);
      if (result !== undefined) return result;
    } catch (error) {
      if (!hasEnded(error) && !(error instanceof NotStartedYet)) throw error;
    }
  }
  return undefined;
}

/** Whether a process that was found before still runs. */
export async function stillRuns(procRoot: string, { pid, startTime }: KubeletProcess): Promise<boolean> {
  try {
    return (await startTimeOf(procRoot, pid)) === startTime;
  } catch (error) {
    if (hasEnded(error)) return false;
    throw error;
  }
}

async function processOf(procRoot: string, pid: number): Promise<KubeletProcess> {
  const startTime = await startTimeOf(procRoot, pid);
  const words = (await readFile(`${procRoot}/${pid}/cmdline`, 'utf8')).split('\0').slice(0, -1);
  // The command line is empty for a moment during exec, and once the process has ended.
  if (words.length === 0) throw new NotStartedYet(`process ${pid} has no command line`);
  const view = { root: await rootOf(procRoot, pid), cwd: `${procRoot}/${pid}/cwd` };
  return { pid, startTime, flags: await flagsOf(words, view), view };
}

async function flagsOf(words: readonly string[], view: ProcessView): Promise<EndpointFlags> {
  const program = basename(words[0]?.split(' ', 1)[0] ?? '');
  if (program === KUBELITE) {
    const argsFile = flagOf(words, '--kubelet-args-file') ?? KUBELITE_ARGS;
    return { ...endpointFlagsOf(wordsOfArgsFile(await textOf(view, argsFile), argsFile)), argsFile };
  }
  const flags = endpointFlagsOf(words);
  const isEmbedded = K3S.test(program) && flags.configDir === undefined;
  return isEmbedded ? { ...flags, configDir: K3S_DROP_INS } : flags;
}

async function textOf(view: ProcessView, file: string): Promise<string> {
  try {
    return await readSmall(await seenBy(view, file), file);
  } catch (error) {
    throw new Error(problemOf(error, file).problem, { cause: error });
  }
}

/**
 * Returns the flags in the file of kubelite's `--kubelet-args-file`, as ReadArgsFromFile in cmd/kubelite/app/options
 * (MicroK8s) reads them: lines without quotes and comments, with the variables of the snap, which snapd derives from
 * the folder that contains the file.
 */
export function wordsOfArgsFile(text: string, argsFile: string): readonly string[] {
  const data = dirname(dirname(argsFile));
  const variables: Readonly<Record<string, string>> = { SNAP_DATA: data, SNAP_COMMON: join(dirname(data), 'common') };
  const lines = text.split('\n').map((line) => line.trim());
  const words = lines.flatMap((line) => (line.startsWith('#') ? [] : line.replaceAll(/["']/g, '').split(' ')));
  return words
    .filter((word) => word !== '')
    .map((word) =>
      word.replaceAll(/\$(?:(\w+)|\{(\w+)\})/g, (all, bare = '', braced = '') => variables[`${bare}${braced}`] ?? all),
    );
}

/**
 * Returns the path of a process's root, or our own root if the kernel denies access (ptrace(2), access mode checking):
 * the shim's unit lacks CAP_SYS_PTRACE.
 */
async function rootOf(procRoot: string, pid: number): Promise<string> {
  const root = `${procRoot}/${pid}/root`;
  try {
    await readlink(root);
    return root;
  } catch (error) {
    if (['EACCES', 'EPERM'].includes(errnoOf(error) ?? '')) return '';
    // In tests, this is a folder.
    if (errnoOf(error) === 'EINVAL') return root;
    throw error;
  }
}

const nameOf = async (procRoot: string, pid: number): Promise<string> =>
  (await readFile(`${procRoot}/${pid}/comm`, 'utf8')).trimEnd();

/** The fields of proc_pid_stat(5) after the name, which may have spaces and parentheses. */
async function statOf(procRoot: string, pid: number): Promise<readonly string[]> {
  const text = await readFile(`${procRoot}/${pid}/stat`, 'utf8');
  return text.slice(text.lastIndexOf(')') + 2).split(' ');
}

/** Fields 4 and 22 of proc_pid_stat(5): the parent, and the start in ticks since the boot. */
const PARENT = 1;
const START_TIME = 19;

const startTimeOf = async (procRoot: string, pid: number): Promise<string> =>
  (await statOf(procRoot, pid))[START_TIME] ?? '';

const childCalledKubelet = (procRoot: string, parent: number): Promise<number | undefined> =>
  firstOf(procRoot, async (pid) => {
    if ((await nameOf(procRoot, pid)) !== 'kubelet') return undefined;
    return Number((await statOf(procRoot, pid))[PARENT]) === parent ? pid : undefined;
  });

/** NSpid has one number for each PID namespace from that of procfs to that of the process (proc_pid_status(5)). */
async function isOfOurNamespace(procRoot: string, pid: number): Promise<boolean> {
  const status = await readFile(`${procRoot}/${pid}/status`, 'utf8');
  const [, pids = ''] = /^NSpid:\s*(.*)$/m.exec(status) ?? [];
  return pids.trim().split(/\s+/).length === 1;
}

const pidsIn = async (procRoot: string): Promise<readonly number[]> =>
  (await readdir(procRoot)).filter((name) => /^\d+$/.test(name)).map(Number);

const hasEnded = (error: unknown): boolean => ['ENOENT', 'ESRCH'].includes(errnoOf(error) ?? '');

/** The flags of kubelet that decide its runtime endpoint; undefined: not given. */
export interface EndpointFlags {
  readonly endpoint: string | undefined;
  readonly config: string | undefined;
  readonly configDir: string | undefined;
  /** The file with the flags, where they are not on the command line. */
  readonly argsFile?: string;
}

/** The flag that sets the endpoint. It overrides every file. */
export const ENDPOINT_FLAG = '--container-runtime-endpoint';

/** Reads the flags from kubelet's command line. Empty values count as not given: kubelet rejects them at start. */
export function endpointFlagsOf(commandLine: readonly string[]): EndpointFlags {
  const given = (flag: string): string | undefined => {
    const value = flagOf(commandLine, flag);
    return value === '' ? undefined : value;
  };
  return { endpoint: given(ENDPOINT_FLAG), config: given('--config'), configDir: given('--config-dir') };
}

/**
 * Returns the value of a flag, given as `--flag value` or `--flag=value`; undefined if it is missing. As in kubelet,
 * the last one wins, `_` and `-` are the same (WordSepNormalizeFunc in k8s.io/component-base/cli/flag), and `--` ends
 * the flags (pflag, parseArgs).
 */
export function flagOf(commandLine: readonly string[], flag: string): string | undefined {
  let found: string | undefined;
  for (const [index, word] of commandLine.entries()) {
    if (word === '--') break;
    if (!word.startsWith('--')) continue;
    const [, name = '', value] = /^([^=]*)(?:=(.*))?$/s.exec(word) ?? [];
    if (name.replaceAll('_', '-') === flag) found = value ?? commandLine[index + 1];
  }
  return found;
}
