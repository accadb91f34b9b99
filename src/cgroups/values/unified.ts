/** Settings of CRI's `unified` map, by cgroup file name. */

import { Reason, ShimError } from '../../core/errors.ts';
import { Code } from '../../core/grpc.ts';

const CONTROLLERS = new Set(['cpu', 'cpuset', 'memory', 'io', 'pids', 'hugetlb', 'rdma', 'misc', 'dmem']);
/** Files that report a state or trigger an action instead of holding a setting, by the last part of their name. */
const NO_SETTINGS = new Set([
  'current',
  'stat',
  'numa_stat',
  'events',
  'local',
  'effective',
  'capacity',
  'reclaim',
  'peak',
  'pressure',
]);
/** The kernel accepts at most a page per write. Real settings are far shorter. */
const LONGEST_VALUE = 1024;

/**
 * Throws INVALID_VALUE unless the key is a setting of a known controller (and so not a path or cgroup.procs) and the
 * value is one line of limited length.
 */
export function assertUnified(key: string, value: string): void {
  assertUnifiedKey(key, value);
  if (value.length === 0 || value.length > LONGEST_VALUE || /[\n\r\0]/.test(value)) {
    throw refused(key, value, `the value must be one line of 1 to ${LONGEST_VALUE} characters`);
  }
}

/** Throws INVALID_VALUE for an invalid key. For rollbacks: the kernel prints unset settings as empty values. */
export function assertUnifiedKey(key: string, value: string): void {
  if (!isUnifiedKey(key)) throw refused(key, value, 'not a setting of a cgroup controller');
}

/** Whether a key is a setting of a known controller. */
export function isUnifiedKey(key: string): boolean {
  const controller = key.slice(0, key.indexOf('.'));
  const lastPart = key.slice(key.lastIndexOf('.') + 1);
  return CONTROLLERS.has(controller) && !NO_SETTINGS.has(lastPart) && /^[a-z_]+\.[a-z0-9_.]+$/i.test(key);
}

/**
 * Whether the kernel prints `found` after `asked` was written to a file. The shim does not know the format of each
 * file: it ignores surrounding whitespace and converts sizes with a suffix, which the kernel prints in bytes.
 */
export function isSameUnified(asked: string, found: string): boolean {
  return found.trim() === asked.trim() || found.trim() === sizeInBytes(asked.trim())?.toString();
}

/**
 * Parses a size like the kernel's memparse() (lib/cmdline.c). Returns undefined for other text, and for a leading 0,
 * which makes the number octal. The size may be more than the kernel can hold in 64 bits.
 */
export function sizeInBytes(text: string): bigint | undefined {
  const [, digits, suffix = ''] = /^(0|[1-9]\d{0,19})([kmgtpe]?)$/i.exec(text) ?? [];
  if (digits === undefined) return undefined;
  return BigInt(digits) << BigInt(suffix === '' ? 0 : 10 * ('kmgtpe'.indexOf(suffix.toLowerCase()) + 1));
}

function refused(key: string, value: string, why: string): ShimError {
  const [file, asked] = [key.slice(0, 80), value.slice(0, 80)];
  const message = `unified ${JSON.stringify(file)}=${JSON.stringify(asked)}: ${why}`;
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, { file, asked });
}
