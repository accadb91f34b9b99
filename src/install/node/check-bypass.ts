import { access, readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { messageOf } from '../../core/errors/index.ts';
import { type Node, answerOf } from '../host/index.ts';
import { bypassState, isBypassHeld } from './bypass.ts';
import { type Finding, findingsOf } from './finding.ts';

/** Checks what serves the socket if the shim cannot. */
export async function checkBypass(node: Node): Promise<Finding> {
  const { systemdFolder, proxyProgram } = node;
  const { ok, warning } = findingsOf('bypass');
  const inContainer = await entryPointState(node);
  if (inContainer !== undefined) {
    if (!inContainer.isActive) return ok('ready to serve if the shim fails, by the entry point of the image');
    const since = `${inContainer.since}, by the entry point of the image`;
    return serving(node, since, 'find the cause in the log of the container');
  }
  if (!(await isThere(systemdFolder))) return ok('not checked: systemd is not the init system of this node');
  if (!(await isThere(proxyProgram)))
    return warning(
      `${proxyProgram} does not exist: if the shim fails, kubelet has no runtime`,
      'install it: it is a part of systemd, and of the package systemd in most distributions',
    );
  return bypassOfSystemd(node).catch((error: unknown) =>
    warning(`cannot be checked: ${messageOf(error)}`, 'systemctl status cri-resize-shim-bypass'),
  );
}

async function bypassOfSystemd(node: Node): Promise<Finding> {
  const { ok, warning } = findingsOf('bypass');
  const { isInstalled, isUsed, isActive, since } = await bypassState();
  if (!isInstalled) return ok('not installed');
  if (!isActive && !isUsed)
    return warning('the units of the shim are of a version without it', 'run resizectl install of this version');
  if (!isActive) return ok('ready to serve if the shim fails');
  if (await isBypassHeld())
    return serving(node, `${since}, switched on by hand`, 'when the incident is over: resizectl bypass off');
  return serving(node, since, 'find the cause with journalctl -u cri-resize-shim, then: resizectl bypass off');
}

/** An active bypass accepts each client, also if it reaches no runtime. */
async function serving({ listen }: Node, since: string, remedy: string): Promise<Finding> {
  const { warning, failed } = findingsOf('bypass');
  const answer = await answerOf(listen);
  if (!('error' in answer)) return warning(`serves clients since ${since}: resizes reach containerd unchanged`, remedy);
  return failed(
    `serves clients since ${since}, but no runtime answers at ${listen}: ${answer.error}`,
    `if containerd answers: compare its socket with /var/lib/cri-resize-shim-bypass/target, and see ausearch -m avc with SELinux; ${remedy}`,
  );
}

/** Whether the bypass serves the socket of the shim. */
export async function isBypassed(node: Node): Promise<boolean> {
  const inContainer = await entryPointState(node);
  if (inContainer !== undefined) return inContainer.isActive;
  if (!(await isThere(node.systemdFolder))) return false;
  return bypassState().then(
    ({ isActive }) => isActive,
    () => false,
  );
}

/** Reads what the entry point of the image says (container/entry.pl); undefined where none runs. */
async function entryPointState(node: Node): Promise<{ isActive: boolean; since: string } | undefined> {
  const { listen, systemdFolder } = node;
  // A killed container leaves its file, also on a host that has the units by now.
  const isUnit = async (): Promise<boolean> => (await bypassState().catch(() => undefined))?.isInstalled === true;
  if ((await isThere(systemdFolder)) && (await isUnit())) return undefined;
  const file = join(dirname(listen), `.${basename(listen)}.bypass`);
  const text = await readFile(file, 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  const [, seconds = '0'] = /^ActiveEnterTimestampMonotonic=@(\d+)$/m.exec(text) ?? [];
  return { isActive: text.startsWith('ActiveState=active\n'), since: new Date(Number(seconds) * 1000).toISOString() };
}

const isThere = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );
