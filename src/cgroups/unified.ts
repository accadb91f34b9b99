/** Single settings by file name, from CRI's `unified` map. */
import { Code, Reason, ShimError } from '../core/errors/index.ts';

const CONTROLLERS = new Set(['cpu', 'cpuset', 'memory', 'io', 'pids', 'hugetlb', 'rdma', 'misc', 'dmem']);
/** Files that tell something, or do something once when written, instead of holding a setting: by the last part of the name. */
const NO_SETTINGS = new Set([
  ...['current', 'stat', 'numa_stat', 'events', 'local', 'effective', 'capacity'],
  ...['reclaim', 'peak', 'pressure'],
]);
/** The kernel takes at most a page in one write; no setting comes near. */
const LONGEST_VALUE = 1024;

/**
 * Throws INVALID_VALUE unless the key is a setting's file of a known controller (so neither a path nor cgroup.procs), and
 * the value one line of reasonable length.
 */
export function assertUnified(key: string, value: string): void {
  assertUnifiedKey(key, value);
  if (value.length === 0 || value.length > LONGEST_VALUE || /[\n\r\0]/.test(value)) {
    throw refused(key, value, `a value is one line of 1 to ${LONGEST_VALUE} characters`);
  }
}

/** The same of the key alone: what is put back may be empty, as the kernel prints a setting that nobody has made. */
export function assertUnifiedKey(key: string, value: string): void {
  const controller = key.slice(0, key.indexOf('.'));
  const lastPart = key.slice(key.lastIndexOf('.') + 1);
  const isSetting = CONTROLLERS.has(controller) && !NO_SETTINGS.has(lastPart);
  if (isSetting && /^[a-z_]+\.[a-z0-9_.]+$/i.test(key)) return;
  throw refused(key, value, 'not a setting of a cgroup controller');
}

/**
 * Whether the kernel has `found` when `asked` is written to a file by its name: of the controllers' files it is not known how each
 * prints its values, but blanks at the ends do not count, and sizes may be given with a unit and are printed in bytes.
 */
export function isSameUnified(asked: string, found: string): boolean {
  return found.trim() === asked.trim() || found.trim() === sizeInBytes(asked.trim())?.toString();
}

/** memparse() of the kernel, lib/cmdline.c; undefined when it is none. */
export function sizeInBytes(text: string): bigint | undefined {
  const [, digits, suffix = ''] = /^(\d{1,19})([kmgtpe]?)$/i.exec(text) ?? [];
  if (digits === undefined) return undefined;
  return BigInt(digits) << BigInt(suffix === '' ? 0 : 10 * ('kmgtpe'.indexOf(suffix.toLowerCase()) + 1));
}

function refused(key: string, value: string, why: string): ShimError {
  const [file, asked] = [key.slice(0, 80), value.slice(0, 80)];
  const message = `unified ${JSON.stringify(file)}=${JSON.stringify(asked)}: ${why}`;
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, { file, asked });
}
