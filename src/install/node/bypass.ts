import { access, lstat, readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { errnoOf, messageOf } from '../../core/index.ts';
import { answerOf } from '../host/query-runtime.ts';
import { BYPASS, FALLBACK, type Node, SERVICE, SOCKETS, STARTED_UNITS, TAKEOVER } from '../host/site.ts';
import { stopUnits, systemctl, unitProperties, waitUntil } from '../host/systemd.ts';
import { type Finding, findingsOf } from './finding.ts';

/** The bypass as systemd sees it. */
export interface BypassState {
  /** Whether its unit exists. */
  readonly isInstalled: boolean;
  /** Whether a failure of the shim starts it. The units of an older version do not. */
  readonly isUsed: boolean;
  readonly isActive: boolean;
  /** Process id of the proxy; 0 if it does not run. */
  readonly pid: number;
  /** Time since which the bypass is active, as systemd prints it; empty if it is not active. */
  readonly since: string;
}

/** Reads the state of the bypass from systemd. */
export async function bypassState(): Promise<BypassState> {
  const property = await unitProperties(BYPASS, ['LoadState', 'ActiveState', 'MainPID', 'ActiveEnterTimestamp']);
  const one = (name: string): string => property(name)[0] ?? '';
  const isActive = one('ActiveState') === 'active';
  const onFailure = (await unitProperties(SERVICE, ['OnFailure']))('OnFailure')[0] ?? '';
  return {
    isInstalled: one('LoadState') === 'loaded',
    isUsed: onFailure.split(' ').includes(FALLBACK),
    isActive,
    pid: Number(one('MainPID')),
    since: isActive ? one('ActiveEnterTimestamp') : '',
  };
}

/** Whether the shim is ready, as systemd sees it. */
export async function isShimActive(): Promise<boolean> {
  return (await unitProperties(SERVICE, ['ActiveState']))('ActiveState')[0] === 'active';
}

const UNIT_FOLDER = '/etc/systemd/system';
const [SOCKET = ''] = SOCKETS;

/**
 * Whether the bypass was switched on by hand. The socket wants it then, and the shim's unit has a condition on this
 * very link, so that both hold after a reboot.
 */
export async function isBypassHeld(unitFolder = UNIT_FOLDER): Promise<boolean> {
  try {
    return (await lstat(join(unitFolder, `${SOCKET}.wants`, BYPASS))).isSymbolicLink();
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(errnoOf(error) ?? '')) return false;
    throw error;
  }
}

/** The result of switching the bypass. */
export interface BypassSwitch {
  readonly isOn: boolean;
  /** Why clients cannot reach a runtime through the bypass. */
  readonly problem?: string;
}

interface SwitchOptions {
  readonly unitFolder?: string;
  /** Maximum time of a runtime to answer through the bypass, in milliseconds. */
  readonly answerMs?: number;
}

/**
 * Stops the shim as an upgrade does: running calls are answered. Starts the bypass first, so that new clients do not
 * wait. The shim does not start again until {@link turnBypassOff}, even after a reboot. If containerd answers directly
 * but not through the bypass, starts the shim again at once, and rejects if the shim does not become ready.
 */
export async function turnBypassOn(
  { listen, containerd }: Pick<Node, 'listen' | 'containerd'>,
  { unitFolder = UNIT_FOLDER, answerMs = ANSWER_MS }: SwitchOptions = {},
): Promise<BypassSwitch> {
  const wasHeld = await isBypassHeld(unitFolder);
  await holdBypass();
  try {
    await systemctl(['start', '--', BYPASS]);
  } catch (error) {
    // Otherwise nothing serves after the next boot: neither a bypass that does not start, nor the shim.
    if (!wasHeld) {
      await releaseBypass(unitFolder);
      // systemd would retry the bypass repeatedly, and it would serve next to the shim once it succeeds.
      await stopUnits([BYPASS]);
    }
    throw error;
  }
  await stopUnits([SERVICE]);
  const problem = await silenceAt(listen, answerMs);
  if (problem === undefined) return { isOn: true };
  const runtime = await answerOf(containerd);
  if ('error' in runtime)
    return { isOn: true, problem: `${problem}; containerd does not answer either: ${containerd}: ${runtime.error}` };
  if (wasHeld) return { isOn: true, problem: `${problem}; run resizectl bypass off` };
  await turnBypassOff(unitFolder);
  return { isOn: false, problem };
}

const ANSWER_MS = 5000;

/** Waits for a runtime that answers. Returns why none does, or undefined. */
async function silenceAt(socket: string, timeoutMs: number): Promise<string | undefined> {
  let silence: string | undefined;
  const look = async (): Promise<string | undefined> => {
    const answer = await answerOf(socket);
    return (silence = 'error' in answer ? `no runtime answers at ${socket}: ${answer.error}` : undefined);
  };
  await waitUntil({ timeoutMs, signal: new AbortController().signal }, look).catch(() => undefined);
  return silence;
}

/** Starts the shim. Returns once the clients of the bypass moved to it. Rejects if it does not become ready. */
export async function turnBypassOff(unitFolder = UNIT_FOLDER): Promise<void> {
  await releaseBypass(unitFolder);
  await systemctl(['start', '--', SERVICE]);
  // The start of the shim has started this too. If it still runs, this waits for the same run.
  if ((await bypassState()).isActive) await systemctl(['start', '--', TAKEOVER], TAKEOVER_MS);
}

/** Longer than TimeoutStartSec= of its unit. */
const TAKEOVER_MS = 12 * 60_000;

/** Links the bypass to the socket, so that it serves after a boot too, instead of the shim. */
export async function holdBypass(): Promise<void> {
  await systemctl(['add-wants', '--', SOCKET, BYPASS]);
}

/** Removes the link of {@link holdBypass}. */
export async function releaseBypass(unitFolder = UNIT_FOLDER): Promise<void> {
  if (await isBypassHeld(unitFolder)) await systemctl(['disable', '--', BYPASS]);
}

/** Has the bypass serve again while the shim is stopped. The fallback does so too, and restarts a failed shim. */
export async function resumeBypass({ isActive }: Pick<BypassState, 'isActive'>): Promise<void> {
  if (isActive) {
    await systemctl(['stop', '--', TAKEOVER]);
    await systemctl(['start', '--', BYPASS]);
  }
  await systemctl(['start', '--no-block', '--', FALLBACK]);
}

/** Stops the units that restart the shim or serve instead of it. Older versions do not have these units. */
export async function stopStartedUnits(): Promise<void> {
  for (const unit of STARTED_UNITS) {
    const property = await unitProperties(unit, ['LoadState', 'ActiveState']);
    // A unit without its file may still be active, and an inactive unit may be about to start.
    if (property('LoadState')[0] === 'not-found' && property('ActiveState')[0] === 'inactive') continue;
    await systemctl(['stop', '--', unit]);
    await systemctl(['reset-failed', '--', unit]).catch(() => undefined);
  }
}

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

/** Reports an active bypass. It accepts clients even if it reaches no runtime. */
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

/** Reads the state that the image's entry point (container/entry.sh) reports; undefined where none runs. */
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
