import { steadyNow } from '../../core/index.ts';
import { isSameSocket } from '../../kubelet/endpoint/paths.ts';
import { type Change, combineChanges } from '../host/change.ts';
import { readSaved, removing, type SavedFile, writing } from '../host/files.ts';
import { queryRuntime } from '../host/query-runtime.ts';
import { type Node, type Site, shimEndpoint } from '../host/site.ts';
import { systemctl, type Wait, waitUntil } from '../host/systemd.ts';
import { patchSettings, type Setting, settingsInUse, settingsToChange } from './files.ts';
import { findKubelet, type Kubelet, readStoppedKubelet } from './kubelet.ts';
import { Refusal } from './setting.ts';

/** The copy of the original file, next to the changed one. */
const backupOf = (file: string): string => `${file}.before-cri-resize-shim`;

/**
 * Returns the setup of the running kubelet, or of a kubelet that ends after each start because nothing serves the
 * shim's socket. Throws Refusal for any other kubelet that does not run.
 */
export async function runningKubelet({ node }: Site): Promise<Kubelet> {
  const { kubeletUnit: unit } = node;
  const found = await findKubelet(node);
  switch (found.kind) {
    case 'running':
      return found.kubelet;
    case 'no unit':
      throw new Refusal(
        `no unit ${unit}`,
        'specify the unit of kubelet with --kubelet-unit, or install kubelet before the shim',
      );
    case 'stopped': {
      const waiting = found.state === 'activating' ? await stoppedAtShim(node) : undefined;
      if (waiting !== undefined) return waiting;
      throw new Refusal(
        `${unit} is ${found.state}`,
        found.state === 'activating'
          ? `see journalctl -u ${unit}, and try again when kubelet runs`
          : `systemctl start ${unit}, and try again`,
      );
    }
    case 'unclear':
      throw new Refusal(
        `${unit} runs, but its endpoint is unknown: ${found.why}`,
        'check the --config flag of kubelet',
      );
  }
}

/** Returns a stopped kubelet's setup if its next start is to use the shim. Rejects if systemd does not answer. */
export async function stoppedAtShim(node: Node): Promise<Kubelet | undefined> {
  const { chain } = await readStoppedKubelet(node);
  if (chain?.endpoint === undefined || chain.layers.some(({ problem }) => problem !== undefined)) return undefined;
  return (await isSameSocket(chain.endpoint, node.listen)) ? { endpoint: chain.endpoint, chain } : undefined;
}

/** Points kubelet at the shim, now and after the next upgrade of the node. Throws Refusal. */
export async function pointAtShim(site: Site, kubelet: Kubelet): Promise<Change> {
  const { node } = site;
  const ours = shimEndpoint(site);
  const settings = await elsewhere(await settingsToChange(node, kubelet, ours), node.listen);
  const edits = await Promise.all(settings.map((setting) => editOf(setting, ours)));
  const files = edits.flatMap(({ changes }) => changes);
  const description = `set ${ours} in ${namesOf(edits)} and restart ${node.kubeletUnit}`;
  const isOfUnit = settings.some((setting) => setting.isOfUnit);
  return moving(site, { description, files, isOfUnit, from: kubelet.endpoint, to: ours });
}

/**
 * Sets the endpoint in kubeadm's patch, or in a file for nodeadm, for a kubelet that already uses the shim. Otherwise
 * an upgrade or a boot of the node would write the old endpoint. Does not restart kubelet. Throws Refusal.
 */
export async function keepAtShim(site: Site, { chain }: Kubelet): Promise<readonly Change[]> {
  const { node } = site;
  const ours = shimEndpoint(site);
  // A flag or a drop-in overrides what kubeadm writes.
  if (chain.winner.kind !== 'config') return [];
  const settings = await elsewhere(await patchSettings(node, chain, ours), node.listen);
  if (settings.length === 0) return [];
  const edits = await Promise.all(settings.map((setting) => editOf(setting, ours)));
  const files = edits.flatMap(({ changes }) => changes);
  return [combineChanges(`set ${ours} in ${namesOf(edits)}`, files, () => Promise.resolve())];
}

const pointsAt = async ({ text, endpointOf }: Setting, listen: string): Promise<boolean> =>
  text !== undefined && (await isSameSocket(endpointOf(text) ?? '', listen));

/** Returns the settings that do not point at the shim. */
async function elsewhere(settings: readonly Setting[], listen: string): Promise<readonly Setting[]> {
  const are = await Promise.all(settings.map(async (setting) => pointsAt(setting, listen)));
  return settings.filter((_setting, index) => are[index] !== true);
}

interface Edit {
  readonly name: string;
  readonly changes: readonly Change[];
}

const namesOf = (edits: readonly Edit[]): string => edits.map(({ name }) => name).join(' and ');

/** Sets the endpoint in a file, and stores the text before next to it. */
async function editOf(setting: Setting, endpoint: string): Promise<Edit> {
  const { file, text, isOwn, edited } = setting;
  if (isOwn || text === undefined) return { name: file, changes: [writing(file, edited(text ?? '', endpoint))] };
  const saved = await readSaved(file);
  assertText(file, text, saved);
  const rights = saved && { mode: saved.mode, uid: saved.uid, gid: saved.gid };
  const changes = [writing(backupOf(file), text, rights), editing(setting, text, edited(text, endpoint))];
  return { name: `${file} (backup: ${backupOf(file)})`, changes };
}

/**
 * Writes an edited text without losing changes of other programs, such as `kubeadm upgrade node`: if the file was
 * changed before the write, the write fails; if it was changed afterwards, a rollback changes only our endpoint.
 */
function editing({ file, edited, endpointOf }: Setting, before: string, after: string): Change {
  const [from, to] = [endpointOf(before), endpointOf(after)];
  return writing(file, after, {
    madeFrom: before,
    rolledBack: (now) => (endpointOf(now) === to ? edited(now, from) : now),
  });
}

/**
 * Throws Refusal if writing the text as UTF-8 would change other bytes than the endpoint. systemd accepts comments that
 * are not UTF-8.
 */
function assertText(file: string, text: string, saved: SavedFile | undefined): void {
  if (saved === undefined || saved.content.equals(Buffer.from(text))) return;
  throw new Refusal(
    `${file} is not valid UTF-8, or has just changed`,
    `convert it to UTF-8, such as with iconv, and try again`,
  );
}

/**
 * Restores kubelet's previous endpoint in every file that has ours. If kubelet does not use the shim, restores only the
 * files: otherwise a later upgrade of the node would point kubelet at a missing socket. Returns no change if there is
 * nothing to restore. Throws Refusal.
 */
export async function pointAtContainerd(site: Site, kubelet: Kubelet): Promise<readonly Change[]> {
  const { node } = site;
  const settings = await settingsInUse(node, kubelet, `unix://${node.containerd}`);
  const found = await Promise.all(settings.map(async (setting) => ({ setting, ...(await restoring(node, setting)) })));
  const restored = found.filter(({ changes }) => changes.length > 0);
  if (restored.length === 0) return [];
  const files = restored.flatMap(({ changes }) => changes);
  const description = restored.map(({ says }) => says).join(', ');
  if (!(await isSameSocket(kubelet.endpoint, node.listen)))
    return [combineChanges(description, files, () => Promise.resolve())];
  const before = new Map(restored.map(({ setting, endpoint }) => [setting.layer, endpoint]));
  const left = kubelet.chain.layers.map((layer) => (before.has(layer) ? before.get(layer) : layer.endpoint));
  return [
    moving(site, {
      description: `${description} and restart ${node.kubeletUnit}`,
      files,
      isOfUnit: restored.some(({ setting }) => setting.isOfUnit),
      from: kubelet.endpoint,
      to: left.findLast((endpoint) => endpoint !== undefined),
    }),
  ];
}

interface Restoring {
  readonly says: string;
  readonly changes: readonly Change[];
  /** The endpoint that the file sets afterwards. */
  readonly endpoint?: string;
}

async function restoring(node: Node, setting: Setting): Promise<Restoring> {
  const { file, text = '', isOwn, edited, endpointOf } = setting;
  if (isOwn) return { says: `remove ${file}`, changes: [removing(file)] };
  const backup = (await readSaved(backupOf(file)))?.content.toString('utf8');
  const now = endpointOf(text);
  if (!(await pointsAt(setting, node.listen))) {
    // Another program, such as kubeadm, has written the file since.
    const changes = backup === undefined ? [] : [removing(backupOf(file))];
    return { says: `remove ${backupOf(file)}`, changes, ...(now !== undefined && { endpoint: now }) };
  }
  assertText(file, text, await readSaved(file));
  const before = backup === undefined ? `unix://${node.containerd}` : endpointOf(backup);
  // If nothing other than the endpoint was changed in the file, it is restored byte for byte.
  const isUntouched =
    backup !== undefined && (edited(backup, now) === text || withoutEndpoint(backup) === withoutEndpoint(text));
  const after = isUntouched ? backup : edited(text, before);
  return {
    says: `set ${before ?? 'no endpoint'} in ${file}`,
    changes: [editing(setting, text, after), removing(backupOf(file))],
    ...(before !== undefined && { endpoint: before }),
  };
}

/** Returns the lines without the endpoint: 0.1.0 wrote it at another place. */
const withoutEndpoint = (text: string): string =>
  text.replaceAll(/^\s*"?containerRuntimeEndpoint"?\s*:.*\n?/gm, '').trimEnd();

interface Move {
  readonly description: string;
  readonly files: readonly Change[];
  /** Whether a file belongs to a unit. */
  readonly isOfUnit: boolean;
  readonly from: string;
  /** Undefined: kubelet's own default. */
  readonly to: string | undefined;
}

/** Writes the files, restarts kubelet and waits until it uses the new endpoint. Rolls back the same way. */
function moving({ node, wait }: Site, { description, files, isOfUnit, from, to }: Move): Change {
  const begun: Change[] = [];
  let isStopped = false;
  const restart = async (goes: Goes, limits: Wait): Promise<void> => {
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
    async probe() {
      for (const file of files) await file.probe?.();
    },
    async do() {
      for (const file of files) {
        begun.push(file);
        await file.do();
      }
      const goes: Goes = async (endpoint) =>
        to === undefined ? !(await isSameSocket(endpoint, node.listen)) : isSameSocket(endpoint, to);
      await restart(goes, wait);
    },
    async undo() {
      for (const file of begun.splice(0).toReversed()) await file.undo();
      // The rollback must not be interrupted.
      const uninterrupted = { ...wait, signal: new AbortController().signal };
      if (isStopped) await restart((endpoint) => Promise.resolve(endpoint === from), uninterrupted);
    },
  };
}

/** Whether kubelet is to use this endpoint. */
type Goes = (endpoint: string) => Promise<boolean>;

interface ExpectedState {
  readonly before: string | undefined;
  readonly goes: Goes;
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

/** Returns what kubelet lacks to run with the new endpoint, undefined if nothing. Rejects if the unit failed. */
async function missingOf(node: Node, { before, goes, others, isSteady }: ExpectedState): Promise<string | undefined> {
  const found = await findKubelet(node);
  const unit = node.kubeletUnit;
  if (found.kind === 'stopped' && found.state === 'failed')
    throw new Error(`${unit} failed, see journalctl -u ${unit}`);
  if (found.kind !== 'running') return `${unit} is not running, see journalctl -u ${unit}`;
  if (found.pid === before) return `${unit} has not restarted`;
  const { endpoint } = found.kubelet;
  if (!(await goes(endpoint))) return `${unit} uses ${endpoint}`;
  if (!isSteady(found.pid)) return `${unit} started less than ${STEADY_MS / 1000} s ago`;
  // The connections of containerd itself are unknown.
  if (!(await isSameSocket(endpoint, node.listen))) return undefined;
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
