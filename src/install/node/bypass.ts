import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '../../core/errors/index.ts';
import {
  BYPASS,
  FALLBACK,
  SERVICE,
  SOCKETS,
  STARTED_UNITS,
  TAKEOVER,
  stopUnits,
  systemctl,
  unitProperties,
} from '../host/index.ts';

/** The bypass as systemd sees it. */
export interface BypassState {
  /** Whether its unit exists. */
  readonly isInstalled: boolean;
  /** Whether a failure of the shim starts it. The units of an older version do not. */
  readonly isUsed: boolean;
  readonly isActive: boolean;
  /** Process id of the proxy; 0 if it does not run. */
  readonly pid: number;
  /** Since when it is active, as systemd prints it; empty if it is not. */
  readonly since: string;
}

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
 * Whether the bypass was switched on by hand. The socket wants it then, and the shim's unit has a condition on this very
 * link, so that both hold after a reboot.
 */
export async function isBypassHeld(unitFolder = UNIT_FOLDER): Promise<boolean> {
  try {
    return (await lstat(join(unitFolder, `${SOCKET}.wants`, BYPASS))).isSymbolicLink();
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(errnoOf(error) ?? '')) return false;
    throw error;
  }
}

/**
 * Stops the shim, as at an upgrade: calls that run are answered. The bypass is started first, so that new clients do not
 * wait. The shim is not started again until {@link turnBypassOff}, not even after a reboot.
 */
export async function turnBypassOn(unitFolder = UNIT_FOLDER): Promise<void> {
  const wasHeld = await isBypassHeld(unitFolder);
  await holdBypass();
  try {
    await systemctl(['start', '--', BYPASS]);
  } catch (error) {
    // Otherwise nothing serves after the next boot: neither a bypass that does not start, nor the shim.
    if (!wasHeld) await releaseBypass(unitFolder);
    throw error;
  }
  await stopUnits([SERVICE]);
}

/** Starts the shim, and returns when the clients of the bypass have moved to it. Rejects if the shim does not become ready. */
export async function turnBypassOff(): Promise<void> {
  await releaseBypass();
  await systemctl(['start', '--', SERVICE]);
  // The start of the shim has started this too. If it still runs, this waits for the same run.
  if ((await bypassState()).isActive) await systemctl(['start', '--', TAKEOVER], TAKEOVER_MS);
}

/** Longer than TimeoutStartSec= of its unit. */
const TAKEOVER_MS = 12 * 60_000;

export async function holdBypass(): Promise<void> {
  await systemctl(['add-wants', '--', SOCKET, BYPASS]);
}

/** Removes the link of {@link holdBypass}. */
export async function releaseBypass(unitFolder = UNIT_FOLDER): Promise<void> {
  if (await isBypassHeld(unitFolder)) await systemctl(['disable', '--', BYPASS]);
}

/** Stops what starts the shim again or serves instead of it. Units of an older version have none of these. */
export async function stopStartedUnits(): Promise<void> {
  for (const unit of STARTED_UNITS) {
    const property = await unitProperties(unit, ['LoadState', 'ActiveState']);
    // A unit whose file has gone may still be active; an inactive one may be about to start.
    if (property('LoadState')[0] === 'not-found' && property('ActiveState')[0] === 'inactive') continue;
    await systemctl(['stop', '--', unit]);
    await systemctl(['reset-failed', '--', unit]).catch(() => undefined);
  }
}
