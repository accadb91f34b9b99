import { rm, rmdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { execa } from 'execa';
import { errnoOf, messageOf } from '../../core/errors/index.ts';
import { askRuntime } from './asked-runtime.ts';
import type { Change } from './change.ts';
import type { Node } from './node.ts';
import { SERVICE, SOCKETS, type Site, UNITS } from './site.ts';
import { systemctl, unitProperties } from './systemctl.ts';
import { type Patience, waitUntil } from './waiting.ts';

/** How the shim's units stand. */
export interface UnitsState {
  readonly active: readonly string[];
  readonly enabled: readonly string[];
}

export async function unitsState(): Promise<UnitsState> {
  const [active, enabled]: [string[], string[]] = [[], []];
  for (const unit of UNITS) {
    const property = await unitProperties(unit, ['ActiveState', 'UnitFileState']);
    // Also one that systemd keeps trying to start.
    if (['active', 'activating', 'reloading'].includes(property('ActiveState')[0] ?? '')) active.push(unit);
    if (property('UnitFileState')[0] === 'enabled') enabled.push(unit);
  }
  return { active, enabled };
}

/** Whether there is nothing to start. */
export async function isUp(node: Node, { active, enabled }: UnitsState): Promise<boolean> {
  const all = active.length === UNITS.length && enabled.length === UNITS.length;
  return all && (await missingOf(node)) === undefined;
}

/** The first of an upgrade, and so the last to be undone: by then everything that the older shim is started from is back. */
export function keepingOlder({ node, patience }: Site): Change {
  return {
    says: `${SERVICE} runs already: an older one, started anew should this be undone`,
    do: () => Promise.resolve(),
    async undo() {
      await systemctl(['restart', '--', SERVICE], patience.timeoutMs);
      await waitUntil(unhurried(patience), () => missingOf(node));
    },
  };
}

/** Starts what is written: enabled, and ready to resize. */
export function starting({ node, patience }: Site, before: UnitsState): Change {
  const [stopped, disabled] = [missingIn(before.active), missingIn(before.enabled)];
  return {
    says: `enable and start ${UNITS.join(', ')}, and wait for the shim to be ready`,
    async do() {
      await systemctl(['enable', '--', ...UNITS]);
      // A socket is not made for a service that runs with one of its own.
      if (SOCKETS.some((unit) => stopped.includes(unit))) await systemctl(['stop', '--', SERVICE]);
      await systemctl(['start', '--', ...SOCKETS]);
      await systemctl(['restart', '--', SERVICE], patience.timeoutMs).catch(withLastWords);
      await waitUntil(patience, () => missingOf(node));
    },
    async undo() {
      if (stopped.length > 0) await stop(stopped, node);
      if (disabled.length > 0) await systemctl(['disable', '--', ...disabled]);
    },
  };
}

/** Stops what runs, and takes it off the next start of the machine. */
export function stopping({ node, patience }: Site, before: UnitsState): Change {
  return {
    says: `stop and disable ${UNITS.join(', ')}`,
    async do() {
      await stop(UNITS, node);
      await systemctl(['disable', '--', ...UNITS]);
    },
    async undo() {
      if (before.enabled.length > 0) await systemctl(['enable', '--', ...before.enabled]);
      if (before.active.length === 0) return;
      await systemctl(['start', '--', ...before.active], patience.timeoutMs);
      await waitUntil(unhurried(patience), () => missingOf(node));
    },
  };
}

/** systemd leaves the sockets where they are (RemoveOnStop=no): nobody listens there any more. */
async function stop(units: readonly string[], node: Node): Promise<void> {
  await systemctl(['stop', '--', ...units]);
  await systemctl(['reset-failed', '--', ...units]).catch(() => undefined);
  if (!SOCKETS.every((unit) => units.includes(unit))) return;
  const folder = dirname(node.listen);
  for (const path of [node.listen, node.resizeListen]) await rm(path, { force: true });
  try {
    await rmdir(folder);
  } catch (error) {
    // Not ours alone, or not there.
    if (!['ENOTEMPTY', 'ENOENT'].includes(errnoOf(error) ?? '')) throw error;
  }
}

const missingIn = (units: readonly string[]): readonly string[] => UNITS.filter((unit) => !units.includes(unit));
const unhurried = (patience: Patience): Patience => ({ ...patience, signal: new AbortController().signal });

/** What the shim has said when it ended, where the journal has it. */
async function withLastWords(error: unknown): Promise<never> {
  const asked = ['--no-pager', '--output=cat', '--lines=20', `--unit=${SERVICE}`];
  const said = await execa('journalctl', asked, { reject: false, timeout: 10_000 });
  const last = (said.failed ? '' : said.stdout).split('\n').findLast((line) => line.startsWith('cri-resize-shim: '));
  throw new Error(`${last ?? messageOf(error)}; journalctl -u ${SERVICE} says more`, { cause: error });
}

/** What is missing until the shim can resize; undefined: nothing. */
async function missingOf({ listen }: Node): Promise<string | undefined> {
  try {
    const { shim } = await askRuntime(listen);
    if (shim === undefined) return `${listen} is not served by a shim that resizes (intercept: false?)`;
    if (shim.ready) return undefined;
    return shim.checks.flatMap(({ name, ready, says }) => (ready ? [] : [`${name}: ${says}`])).join('; ');
  } catch (error) {
    return `${listen} does not answer: ${messageOf(error)}; journalctl -u ${SERVICE} says why`;
  }
}
