import { readFileSync } from 'node:fs';
import type { ClientProcess } from '../core/grpc/index.ts';

/** Returns the process with this id. Call it while the client waits: a later process may have the same id. */
export const processOf = (pid: number): ClientProcess => ({ pid, name: nameOf(pid) });

function nameOf(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').replace(/\n$/, '');
  } catch {
    // It has ended, or /proc does not show it: the id alone is known.
    return undefined;
  }
}
