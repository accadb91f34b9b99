/** What a cgroup uses of CPU and memory, and how long its tasks wait for them. */
import { ShimError } from '../core/errors/index.ts';
import { type Bytes, type Microseconds, microseconds } from '../core/quantities/index.ts';
import { type CgroupPath, isCgroupVanished } from './file.ts';
import type { CgroupTree } from './tree.ts';

/** Undefined: the kernel does not tell. */
export interface CgroupLoad {
  /** Memory that cannot be reclaimed. */
  readonly unreclaimable: Bytes | undefined;
  /** CPU time since the cgroup was created. */
  readonly cpuTime: Microseconds | undefined;
  /** Share of the last 10 s in which at least one task waited for memory, in percent (kernel Documentation/accounting/psi.rst). */
  readonly memoryStalled: number | undefined;
  /** Share of the last 10 s in which at least one task waited for a CPU, in percent. A task that its own quota throttles waits, too. */
  readonly cpuStalled: number | undefined;
}

/** Reads the load of a cgroup. Rejects with `CgroupVanished` if the cgroup no longer exists. */
export async function readLoad(
  tree: Pick<CgroupTree, 'readMemoryUse' | 'readFile'>,
  cgroup: CgroupPath,
): Promise<CgroupLoad> {
  const read = <Value>(file: string, parse: (text: string) => Value | undefined): Promise<Value | undefined> =>
    known(tree.readFile(cgroup, file).then(parse));
  return {
    unreclaimable: (await known(tree.readMemoryUse(cgroup)))?.unreclaimable,
    cpuTime: await read('cpu.stat', cpuTimeOf),
    memoryStalled: await read('memory.pressure', stalledShare),
    cpuStalled: await read('cpu.pressure', stalledShare),
  };
}

/** Returns usage_usec of cpu.stat. */
function cpuTimeOf(text: string): Microseconds | undefined {
  const [, digits] = /^usage_usec (\d{1,15})$/m.exec(text) ?? [];
  return digits === undefined ? undefined : microseconds(Number(digits));
}

/** Returns the average over 10 s of the line `some`. */
function stalledShare(text: string): number | undefined {
  const [, percent] = /^some avg10=(\d{1,3}\.\d+) /m.exec(text) ?? [];
  return percent === undefined ? undefined : Number(percent);
}

/** Undefined if a kernel has no such file, or has it switched off (`psi=0`: EOPNOTSUPP). */
async function known<Value>(reading: Promise<Value>): Promise<Value | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (!(error instanceof ShimError) || isCgroupVanished(error)) throw error;
    return undefined;
  }
}
