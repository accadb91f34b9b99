import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** Returns the numbers of a list of processors, as in Cpus_allowed_list of proc_pid_status(5): `0-2,5`. */
export const processorsIn = (list: string): number[] =>
  list.split(',').flatMap((range) => {
    const [first = NaN, last = first] = range.split('-').map(Number);
    return Array.from({ length: last - first + 1 }, (_, at) => first + at);
  });

/**
 * Returns the processor, of those that this process may use, to which the fewest processes with this name are bound.
 * Throws if `proc` does not say which it may use.
 * @param before earlier results, which decide between equals: their processes may not be bound yet
 */
export function leastBoundProcessor(name: string, before: readonly number[] = [], proc = '/proc'): number {
  const bound = readdirSync(proc)
    .filter((pid) => /^\d+$/.test(pid))
    .map((pid) => statusOf(join(proc, pid)))
    .filter((status) => status.name === name && status.processors.length === 1)
    .map(({ processors }) => processors[0]);
  const times = (all: readonly (number | undefined)[], processor: number): number =>
    all.filter((each) => each === processor).length;
  const [least] = statusOf(join(proc, 'self')).processors.toSorted(
    (one, other) => times(bound, one) - times(bound, other) || times(before, one) - times(before, other),
  );
  if (least === undefined) throw new Error(`${join(proc, 'self')}/status has no Cpus_allowed_list`);
  return least;
}

interface Status {
  readonly name: string | undefined;
  readonly processors: readonly number[];
}

function statusOf(process: string): Status {
  let text: string;
  try {
    text = readFileSync(join(process, 'status'), 'utf8');
  } catch {
    // It has ended meanwhile.
    return { name: undefined, processors: [] };
  }
  const list = /^Cpus_allowed_list:\s*(\S+)$/m.exec(text)?.[1];
  return { name: /^Name:\s*(.*)$/m.exec(text)?.[1], processors: list === undefined ? [] : processorsIn(list) };
}
