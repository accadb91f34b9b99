import { steadyNow } from '../../core/concurrency/index.ts';
import {
  type Change,
  type Node,
  type Site,
  type Wait,
  shimEndpoint,
  queryRuntime,
  readSaved,
  removing,
  socketOf,
  systemctl,
  waitUntil,
  writing,
} from '../host/index.ts';
import { type Setting, settingOf } from './files.ts';
import { type Kubelet, findKubelet } from './kubelet.ts';
import { Refusal } from './setting.ts';

/** The copy of the original file, next to the changed one. */
const backupOf = (file: string): string => `${file}.before-cri-resize-shim`;

/** Returns the setup of the running kubelet. Throws Refusal if kubelet does not run: then its endpoint is unknown. */
export async function runningKubelet({ node }: Site): Promise<Kubelet> {
  const { kubeletUnit: unit } = node;
  const found = await findKubelet(node);
  switch (found.kind) {
    case 'running':
      return found.kubelet;
    case 'no unit':
      throw new Refusal(`no unit ${unit}`, 'specify the unit of kubelet with --kubelet-unit');
    case 'stopped':
      throw new Refusal(`${unit} is ${found.state}`, `systemctl start ${unit}, and try again`);
    case 'unclear':
      throw new Refusal(
        `${unit} runs, but its endpoint is unknown: ${found.why}`,
        'check the --config flag of kubelet',
      );
  }
}

/** Points kubelet at the shim. Throws Refusal. */
export async function pointAtShim(site: Site, kubelet: Kubelet): Promise<Change> {
  const ours = shimEndpoint(site);
  const setting = await settingOf(site.node, kubelet, ours);
  const { file, text } = setting;
  const saved = await readSaved(file);
  const files = [
    writing(backupOf(file), text, saved && { mode: saved.mode, uid: saved.uid, gid: saved.gid }),
    writing(file, setting.edited(text, ours)),
  ];
  const description = `set ${ours} in ${file} (backup: ${backupOf(file)}) and restart ${site.node.kubeletUnit}`;
  return moving(site, setting, { description, files, from: kubelet.endpoint, to: ours });
}

/** Points kubelet back at its previous endpoint. Throws Refusal. */
export async function pointAtContainerd(site: Site, kubelet: Kubelet): Promise<Change> {
  const containerd = `unix://${site.node.containerd}`;
  const setting = await settingOf(site.node, kubelet, containerd);
  const { file, text } = setting;
  const backup = (await readSaved(backupOf(file)))?.content.toString('utf8');
  const before = backup === undefined ? containerd : setting.endpointOf(backup);
  // If nothing else was changed in the file since, it is restored byte for byte.
  const isUntouched = backup !== undefined && setting.edited(backup, kubelet.endpoint) === text;
  const after = isUntouched ? backup : setting.edited(text, before);
  const files = [writing(file, after), removing(backupOf(file))];
  const description = `set ${before ?? 'no endpoint'} in ${file} and restart ${site.node.kubeletUnit}`;
  return moving(site, setting, { description, files, from: kubelet.endpoint, to: before });
}

interface Move {
  readonly description: string;
  readonly files: readonly Change[];
  readonly from: string;
  /** Undefined: kubelet's own default. */
  readonly to: string | undefined;
}

/** Writes the files, restarts kubelet, and waits until it uses the new endpoint. The rollback does the same with the old files. */
function moving({ node, wait }: Site, { isOfUnit }: Setting, { description, files, from, to }: Move): Change {
  const begun: Change[] = [];
  let isStopped = false;
  const restart = async (goes: (endpoint: string) => boolean, limits: Wait): Promise<void> => {
    const before = await pidOf(node);
    // Connections of clients other than kubelet, which still uses its old endpoint.
    const others = (await connectionsOf(node.listen)) ?? 1;
    if (isOfUnit) await systemctl(['daemon-reload']);
    isStopped = true;
    // A unit that was restarted too often would not start.
    await systemctl(['reset-failed', '--', node.kubeletUnit]);
    await systemctl(['restart', '--', node.kubeletUnit], limits.timeoutMs);
    const isSteady = steadyCheck();
    await waitUntil(limits, () => missingOf(node, { before, goes, others, isSteady }));
  };
  return {
    description,
    async do() {
      for (const file of files) {
        begun.push(file);
        await file.do();
      }
      const goes = (socket: string): boolean => (to === undefined ? socket !== node.listen : socket === socketOf(to));
      await restart((endpoint) => goes(socketOf(endpoint)), wait);
    },
    async undo() {
      for (const file of begun.splice(0).toReversed()) await file.undo();
      // The rollback must not be interrupted.
      const uninterrupted = { ...wait, signal: new AbortController().signal };
      if (isStopped) await restart((endpoint) => endpoint === from, uninterrupted);
    },
  };
}

interface ExpectedState {
  readonly before: string | undefined;
  readonly goes: (endpoint: string) => boolean;
  /** Connections to the shim before kubelet connects. */
  readonly others: number;
  readonly isSteady: (pid: string) => boolean;
}

/** A kubelet that cannot use its runtime exits soon after its start. */
const STEADY_MS = 2000;

/** Returns a function that reports whether the process has been the same for {@link STEADY_MS}. */
function steadyCheck(): (pid: string) => boolean {
  let seen = { pid: '', since: 0 };
  return (pid) => {
    if (pid !== seen.pid) seen = { pid, since: steadyNow() };
    return steadyNow() - seen.since >= STEADY_MS;
  };
}

/** Returns what is missing until kubelet runs with the new endpoint; undefined if nothing is. Rejects if the unit has failed. */
async function missingOf(node: Node, { before, goes, others, isSteady }: ExpectedState): Promise<string | undefined> {
  const found = await findKubelet(node);
  const unit = node.kubeletUnit;
  if (found.kind === 'stopped' && found.state === 'failed')
    throw new Error(`${unit} failed, see journalctl -u ${unit}`);
  if (found.kind !== 'running') return `${unit} is not running, see journalctl -u ${unit}`;
  if (found.pid === before) return `${unit} has not restarted`;
  const { endpoint } = found.kubelet;
  if (!goes(endpoint)) return `${unit} uses ${endpoint}`;
  if (!isSteady(found.pid)) return `${unit} started less than ${STEADY_MS / 1000} s ago`;
  // The connections of containerd itself are unknown.
  if (socketOf(endpoint) !== node.listen) return undefined;
  const now = (await connectionsOf(node.listen)) ?? 0;
  return now > others ? undefined : `${unit} has not connected to the shim yet`;
}

/** Returns the number of clients of the shim, including ourselves; undefined if it does not answer. */
async function connectionsOf(listen: string): Promise<number | undefined> {
  const runtime = await queryRuntime(listen).catch(() => undefined);
  return runtime?.shim?.connections;
}

async function pidOf(node: Node): Promise<string | undefined> {
  const found = await findKubelet(node);
  return found.kind === 'running' ? found.pid : undefined;
}
