import { promises } from 'node:fs';
import { rm, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { errnoOf, messageOf, syncFolder } from '../../core/index.ts';
import type { Change } from '../host/change.ts';
import { queryRuntime, type ShimReport } from '../host/query-runtime.ts';
import { FALLBACK, type Node, SERVICE, type Site, SOCKETS, UNITS } from '../host/site.ts';
import { stopUnits, systemctl, unitProperties, type Wait, waitUntil } from '../host/systemd.ts';
import { bypassState, holdBypass, isBypassHeld, releaseBypass, resumeBypass, stopStartedUnits } from './bypass.ts';

/** The active and enabled units of the shim, and the state of the bypass. */
export interface UnitsState {
  readonly active: readonly string[];
  readonly enabled: readonly string[];
  /** Whether the service has failed. The fallback starts it again then. */
  readonly hasFailed: boolean;
  /** Whether the units of this installation use the bypass, and whether it serves. */
  readonly bypass: { readonly isUsed: boolean; readonly isActive: boolean };
}

export async function unitsState(): Promise<UnitsState> {
  const [active, enabled]: [string[], string[]] = [[], []];
  const bypass = await bypassState();
  let hasFailed = false;
  for (const unit of UNITS) {
    const property = await unitProperties(unit, ['ActiveState', 'UnitFileState']);
    const state = property('ActiveState')[0] ?? '';
    // With the bypass, the fallback starts a service that has failed. Without it, systemd does, and the service may be
    // `activating` forever.
    const isTried = unit === SERVICE && bypass.isUsed && bypass.isActive && state === 'activating';
    if (['active', 'activating', 'reloading'].includes(state) && !isTried) active.push(unit);
    if (unit === SERVICE) hasFailed = isTried || state === 'failed';
    if (property('UnitFileState')[0] === 'enabled') enabled.push(unit);
  }
  return { active, enabled, hasFailed, bypass };
}

/** Whether all units are active and enabled and the shim is ready. */
export async function isUp(node: Node, { active, enabled }: UnitsState): Promise<boolean> {
  const all = active.length === UNITS.length && enabled.length === UNITS.length;
  return all && (await missingOf(node).catch(messageOf)) === undefined;
}

/** Whether clients are served without the shim: it does not run, and the bypass serves or is about to. */
export const isServedWithout = ({ active, bypass }: UnitsState): boolean =>
  bypass.isUsed && !active.includes(SERVICE) && active.includes(SOCKETS[0] ?? '');

/** The first change of an upgrade, so rolled back last: by then all files of the old version are restored. */
export function restartOnRollback({ node, wait }: Site): Change {
  return {
    description: `record that ${SERVICE} is running, to restart it on rollback`,
    do: () => Promise.resolve(),
    async undo() {
      await systemctl(['restart', '--', SERVICE], wait.timeoutMs);
      // The units of the old version may not know the bypass, and would leave it on.
      if (!(await bypassState()).isUsed) await stopStartedUnits();
      await waitUntil(uninterrupted(wait), () => missingOnRollback(node));
    },
  };
}

/**
 * Returns the first change of an installation over a failed shim. If a rollback stops a new shim that has started, that
 * shim is not in the state "failed", and the fallback restarts only failed shims.
 */
export function retryOnRollback(): Change {
  return {
    description: `record that ${SERVICE} has failed, to start it again on rollback`,
    do: () => Promise.resolve(),
    // Does not wait, because the bypass serves and the shim has failed before: if it fails again, the fallback restarts
    // it.
    undo: retryShim,
  };
}

/** Starts the shim, even if stopped, without waiting. Ends one of the rolled-back version that may run. */
async function retryShim(): Promise<void> {
  await systemctl(['restart', '--no-block', '--', SERVICE]);
}

/**
 * Restores the earlier state of a shim that did not serve before it was started: restarts a shim that had failed,
 * without waiting for it, and stops a shim that was stopped.
 */
export async function leaveShim(node: Node, before: UnitsState): Promise<void> {
  if (before.hasFailed || before.active.includes(SERVICE)) await retryShim();
  else await stopStarted(node, before);
}

/** Stops the units that were not active before. */
async function stopStarted(node: Node, before: UnitsState): Promise<void> {
  const stopped = missingIn(before.active);
  if (isServedWithout(before)) await stopAtBypass(stopped, before);
  else if (stopped.length > 0) await stop(stopped, node);
}

/** Enables and starts the units, and waits until the shim is ready to resize. */
export function starting({ node, wait, unitFolder }: Site, before: UnitsState): Change {
  const [stopped, disabled] = [missingIn(before.active), missingIn(before.enabled)];
  return {
    description: `enable and start ${UNITS.join(', ')}, and wait for the shim to be ready`,
    async do() {
      await systemctl(['enable', '--', ...UNITS]);
      await syncLinks(unitFolder);
      // systemd does not create a socket for a running service that opened its own.
      if (SOCKETS.some((unit) => stopped.includes(unit))) await stopUnits([SERVICE]);
      await systemctl(['start', '--', ...SOCKETS]);
      await systemctl(['restart', '--', SERVICE], wait.timeoutMs).catch(withLogLine);
      await waitUntil(wait, () => missingOf(node));
    },
    async undo() {
      await stopStarted(node, before);
      if (disabled.length > 0) await systemctl(['disable', '--', ...disabled]);
    },
  };
}

/** Writes the links of enabled units to the disk: kubelet's file may be on another one, and there before them. */
async function syncLinks(unitFolder: string): Promise<void> {
  // Not imported by name, which would end the program of Node 20 before it can say that it needs a later one.
  for await (const folder of promises.glob(join(unitFolder, '*.wants'))) await syncFolder(folder).catch(ignoreNoFolder);
  await syncFolder(unitFolder);
}

/** Ignores missing folders, and links of other programs to missing files or to /dev/null. */
function ignoreNoFolder(error: unknown): void {
  if (!['ENOENT', 'ENOTDIR', 'EINVAL'].includes(errnoOf(error) ?? '')) throw error;
}

/** Stops and disables the units. */
export function stopping({ node, wait, unitFolder }: Site, before: UnitsState): Change {
  let wasHeld = false;
  return {
    description: `stop and disable ${UNITS.join(', ')}`,
    async do() {
      wasHeld = await isBypassHeld(unitFolder);
      await stop(UNITS, node);
      await systemctl(['disable', '--', ...UNITS]);
      await releaseBypass(unitFolder);
    },
    async undo() {
      if (before.enabled.length > 0) await systemctl(['enable', '--', ...before.enabled]);
      if (wasHeld) await holdBypass();
      if (before.active.length === 0) return;
      await systemctl(['start', '--', ...before.active], wait.timeoutMs);
      if (wasHeld) return;
      if (isServedWithout(before)) {
        await resumeBypass(before.bypass);
        // The stop above has left no failed shim, which the fallback would start.
        return before.hasFailed ? retryShim() : undefined;
      }
      await waitUntil(uninterrupted(wait), () => missingOnRollback(node));
    },
  };
}

/** Stops units and removes the sockets, which systemd keeps (RemoveOnStop=no). */
async function stop(units: readonly string[], node: Node): Promise<void> {
  // The stop of the service starts the fallback.
  await stopUnits(units, units.includes(SERVICE) ? stopStartedUnits : undefined);
  await systemctl(['reset-failed', '--', ...units]).catch(() => undefined);
  if (!SOCKETS.every((unit) => units.includes(unit))) return;
  const folder = dirname(node.listen);
  for (const path of [node.listen, node.resizeListen]) await rm(path, { force: true });
  try {
    await rmdir(folder);
  } catch (error) {
    // Other files are in the folder, or it does not exist.
    if (!['ENOTEMPTY', 'ENOENT'].includes(errnoOf(error) ?? '')) throw error;
  }
}

/** Stops a shim that did not serve before, so that the bypass serves its clients again. */
async function stopAtBypass(units: readonly string[], { hasFailed, bypass }: UnitsState): Promise<void> {
  // The fallback starts a shim that fails, which cancels the stop.
  await stopUnits(units, async () => {
    await systemctl(['stop', '--', FALLBACK]);
  });
  // The fallback restarts a shim in the state "failed", but not one that was stopped.
  if (!hasFailed) await systemctl(['reset-failed', '--', ...units]).catch(() => undefined);
  await resumeBypass(bypass);
}

const missingIn = (units: readonly string[]): readonly string[] => UNITS.filter((unit) => !units.includes(unit));
/** The same timeout, without the interrupt: a rollback is not interrupted. */
const uninterrupted = (wait: Wait): Wait => ({ ...wait, signal: new AbortController().signal });

/** Adds the last error line of the shim from the systemd journal to the error. */
export async function withLogLine(error: unknown): Promise<never> {
  const args = ['--no-pager', '--output=cat', '--lines=20', `--unit=${SERVICE}`];
  const result = await execa('journalctl', args, { reject: false, timeout: 10_000 });
  const last = (result.failed ? '' : result.stdout)
    .split('\n')
    .findLast((line) => line.startsWith('cri-resize-shim: ') && !line.endsWith(': --help lists the flags'));
  throw new Error(`${last ?? messageOf(error)}, see journalctl -u ${SERVICE}`, { cause: error });
}

/**
 * Returns what is missing until the shim does what its configuration says: resize, or forward every call. Undefined if
 * nothing is missing. Rejects if its configuration is invalid, because waiting does not help.
 */
async function missingOf({ listen }: Node): Promise<string | undefined> {
  const shim = await shimAt(listen);
  if (typeof shim === 'string') return shim;
  const problems = shim.checks.flatMap(({ name, ready, says }) => (ready ? [] : [`${name}: ${says}`])).join('; ');
  if (shim.passThrough === 'invalid configuration') throw new Error(`${problems}, see journalctl -u ${SERVICE}`);
  return shim.ready ? undefined : problems;
}

/** Like {@link missingOf}, for an earlier configuration that may be invalid. */
async function missingOnRollback(node: Node): Promise<string | undefined> {
  const shim = await shimAt(node.listen);
  if (typeof shim !== 'string' && shim.passThrough === 'invalid configuration') return undefined;
  return missingOf(node);
}

/** Returns the shim's report, or why there is none. */
async function shimAt(listen: string): Promise<ShimReport | string> {
  try {
    const { shim } = await queryRuntime(listen);
    return shim ?? `${listen} is not served by a shim`;
  } catch (error) {
    return `${listen} does not answer: ${messageOf(error)}, see journalctl -u ${SERVICE}`;
  }
}
