import { rm, rmdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { execa } from 'execa';
import { errnoOf, messageOf } from '../../core/errors/index.ts';
import { bypassState, holdBypass, isBypassHeld, releaseBypass, stopStartedUnits } from './bypass.ts';
import {
  type Change,
  type Node,
  SERVICE,
  SOCKETS,
  type ShimReport,
  type Site,
  UNITS,
  type Wait,
  queryRuntime,
  stopUnits,
  systemctl,
  unitProperties,
  waitUntil,
} from '../host/index.ts';

/** The units of the shim that are active and enabled. */
export interface UnitsState {
  readonly active: readonly string[];
  readonly enabled: readonly string[];
}

export async function unitsState(): Promise<UnitsState> {
  const [active, enabled]: [string[], string[]] = [[], []];
  for (const unit of UNITS) {
    const property = await unitProperties(unit, ['ActiveState', 'UnitFileState']);
    // `activating` includes a unit that systemd restarts again and again.
    if (['active', 'activating', 'reloading'].includes(property('ActiveState')[0] ?? '')) active.push(unit);
    if (property('UnitFileState')[0] === 'enabled') enabled.push(unit);
  }
  return { active, enabled };
}

/** Whether all units are active and enabled and the shim is ready. */
export async function isUp(node: Node, { active, enabled }: UnitsState): Promise<boolean> {
  const all = active.length === UNITS.length && enabled.length === UNITS.length;
  return all && (await missingOf(node).catch(messageOf)) === undefined;
}

/** The first change of an upgrade, and so the last one that is rolled back: by then all files of the old version are restored. */
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

/** Enables and starts the units, and waits until the shim is ready to resize. */
export function starting({ node, wait }: Site, before: UnitsState): Change {
  const [stopped, disabled] = [missingIn(before.active), missingIn(before.enabled)];
  return {
    description: `enable and start ${UNITS.join(', ')}, and wait for the shim to be ready`,
    async do() {
      await systemctl(['enable', '--', ...UNITS]);
      // systemd does not create a socket for a running service that opened its own.
      if (SOCKETS.some((unit) => stopped.includes(unit))) await stopUnits([SERVICE]);
      await systemctl(['start', '--', ...SOCKETS]);
      await systemctl(['restart', '--', SERVICE], wait.timeoutMs).catch(withLogLine);
      await waitUntil(wait, () => missingOf(node));
    },
    async undo() {
      if (stopped.length > 0) await stop(stopped, node);
      if (disabled.length > 0) await systemctl(['disable', '--', ...disabled]);
    },
  };
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
 * Returns what is missing until the shim does what its configuration says: resize, or forward every call. Undefined if nothing is. Rejects if
 * its configuration is invalid, which time does not change.
 */
async function missingOf({ listen }: Node): Promise<string | undefined> {
  const shim = await shimAt(listen);
  if (typeof shim === 'string') return shim;
  const problems = shim.checks.flatMap(({ name, ready, says }) => (ready ? [] : [`${name}: ${says}`])).join('; ');
  if (shim.passThrough === 'invalid configuration') throw new Error(`${problems}, see journalctl -u ${SERVICE}`);
  return shim.ready ? undefined : problems;
}

/** Like {@link missingOf}, for a configuration that was there before and may be invalid. */
async function missingOnRollback(node: Node): Promise<string | undefined> {
  const shim = await shimAt(node.listen);
  if (typeof shim !== 'string' && shim.passThrough === 'invalid configuration') return undefined;
  return missingOf(node);
}

/** Returns what the shim says, or why it says nothing. */
async function shimAt(listen: string): Promise<ShimReport | string> {
  try {
    const { shim } = await queryRuntime(listen);
    return shim ?? `${listen} is not served by a shim`;
  } catch (error) {
    return `${listen} does not answer: ${messageOf(error)}, see journalctl -u ${SERVICE}`;
  }
}
