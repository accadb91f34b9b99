import { askRuntime } from './asked-runtime.ts';
import type { Change } from './change.ts';
import { keep, removing, writing } from './files.ts';
import { type Setting, settingOf } from './kubelet-files.ts';
import { type Kubelet, findKubelet } from './kubelet.ts';
import { Refusal } from './kubelet-setting.ts';
import type { Node } from './node.ts';
import { type Site, oursOf, socketOf } from './site.ts';
import { systemctl } from './systemctl.ts';
import { type Patience, waitUntil } from './waiting.ts';

/** Beside the file that was changed. */
const backupOf = (file: string): string => `${file}.before-cri-resize-shim`;

/** kubelet, which has to run: else nobody knows where it goes. Throws Refusal. */
export async function runningKubelet({ node }: Site): Promise<Kubelet> {
  const { kubeletUnit: unit } = node;
  const found = await findKubelet(node);
  switch (found.kind) {
    case 'running':
      return found.kubelet;
    case 'no unit':
      throw new Refusal(`there is no unit ${unit}`, 'name kubelet’s with --kubelet-unit');
    case 'stopped':
      throw new Refusal(`${unit} is ${found.state}`, `systemctl start ${unit}, and try again`);
    case 'unclear':
      throw new Refusal(`${unit} runs, and how is not known: ${found.why}`, 'look at its --config');
  }
}

/** kubelet goes through the shim. Throws Refusal. */
export async function throughShim(site: Site, kubelet: Kubelet): Promise<Change> {
  const ours = oursOf(site);
  const setting = await settingOf(site.node, kubelet, ours);
  const { file, text } = setting;
  const { mode } = (await keep(file)) ?? {};
  const parts = [
    writing(backupOf(file), text, mode === undefined ? {} : { mode }),
    writing(file, setting.edited(text, ours)),
  ];
  const says = `set ${ours} in ${file} (before: ${backupOf(file)}), and restart ${site.node.kubeletUnit}`;
  return moving(site, setting, { says, parts, from: kubelet.endpoint, to: ours });
}

/** kubelet goes to containerd again, by what it had before. Throws Refusal. */
export async function pastShim(site: Site, kubelet: Kubelet): Promise<Change> {
  const containerd = `unix://${site.node.containerd}`;
  const setting = await settingOf(site.node, kubelet, containerd);
  const { file, text } = setting;
  const backup = (await keep(backupOf(file)))?.content.toString('utf8');
  const before = backup === undefined ? containerd : setting.endpointOf(backup);
  // Nothing else was changed since: then it is what it was, to the byte.
  const isUntouched = backup !== undefined && setting.edited(backup, kubelet.endpoint) === text;
  const after = isUntouched ? backup : setting.edited(text, before);
  const parts = [writing(file, after), removing(backupOf(file))];
  const says = `set ${before ?? 'no endpoint'} in ${file}, and restart ${site.node.kubeletUnit}`;
  return moving(site, setting, { says, parts, from: kubelet.endpoint, to: before });
}

interface Move {
  readonly says: string;
  readonly parts: readonly Change[];
  readonly from: string;
  /** Undefined: kubelet's own default. */
  readonly to: string | undefined;
}

/** Writes the files, restarts kubelet, and sees it run by them; undone, the same with the files as they were. */
function moving({ node, patience }: Site, { isOfUnit }: Setting, { says, parts, from, to }: Move): Change {
  const begun: Change[] = [];
  let isStopped = false;
  const restart = async (goes: (endpoint: string) => boolean, patience: Patience): Promise<void> => {
    const before = await pidOf(node);
    // Those of others than kubelet, which comes from elsewhere.
    const others = (await connectionsOf(node.listen)) ?? 1;
    if (isOfUnit) await systemctl(['daemon-reload']);
    isStopped = true;
    // One that was restarted too often is given another chance.
    await systemctl(['reset-failed', '--', node.kubeletUnit]);
    await systemctl(['restart', '--', node.kubeletUnit], patience.timeoutMs);
    const isSteady = steadiness();
    await waitUntil(patience, () => missingOf(node, { before, goes, others, isSteady }));
  };
  return {
    says,
    async do() {
      for (const part of parts) {
        begun.push(part);
        await part.do();
      }
      const goes = (socket: string): boolean => (to === undefined ? socket !== node.listen : socket === socketOf(to));
      await restart((endpoint) => goes(socketOf(endpoint)), patience);
    },
    async undo() {
      for (const part of begun.splice(0).toReversed()) await part.undo();
      // Whoever has interrupted us wants this more than anything.
      const unmoved = { ...patience, signal: new AbortController().signal };
      if (isStopped) await restart((endpoint) => endpoint === from, unmoved);
    },
  };
}

interface Awaited {
  readonly before: string | undefined;
  readonly goes: (endpoint: string) => boolean;
  /** Connections of clients to the shim, before kubelet's. */
  readonly others: number;
  readonly isSteady: (pid: string) => boolean;
}

/** What does not get on with its runtime ends soon after its start. */
const STEADY_MS = 2000;

/** Whether a process has been the same for a while. */
function steadiness(): (pid: string) => boolean {
  let seen = { pid: '', since: 0 };
  return (pid) => {
    if (pid !== seen.pid) seen = { pid, since: Date.now() };
    return Date.now() - seen.since >= STEADY_MS;
  };
}

/** What is missing until kubelet works as it is set up now; undefined: nothing. Rejects when it has failed for good. */
async function missingOf(node: Node, { before, goes, others, isSteady }: Awaited): Promise<string | undefined> {
  const found = await findKubelet(node);
  const unit = node.kubeletUnit;
  if (found.kind === 'stopped' && found.state === 'failed')
    throw new Error(`${unit} has failed: journalctl -u ${unit} says why`);
  if (found.kind !== 'running') return `${unit} does not run; journalctl -u ${unit} says why`;
  if (found.pid === before) return `${unit} has not been restarted`;
  const { endpoint } = found.kubelet;
  if (!goes(endpoint)) return `${unit} goes to ${endpoint}`;
  if (!isSteady(found.pid)) return `${unit} has only just been started`;
  // Of who calls containerd itself we know nothing.
  if (socketOf(endpoint) !== node.listen) return undefined;
  const now = (await connectionsOf(node.listen)) ?? 0;
  return now > others ? undefined : `${unit} has not called the runtime yet`;
}

/** How many clients the shim has, ourselves among them; undefined when it does not answer. */
async function connectionsOf(listen: string): Promise<number | undefined> {
  const runtime = await askRuntime(listen).catch(() => undefined);
  return runtime?.shim?.connections;
}

async function pidOf(node: Node): Promise<string | undefined> {
  const found = await findKubelet(node);
  return found.kind === 'running' ? found.pid : undefined;
}
