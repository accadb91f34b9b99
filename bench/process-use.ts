import { readFileSync } from 'node:fs';

/** USER_HZ, the unit of times in /proc: the same on every Linux that Node supports. */
const TICKS_PER_SECOND = 100;

/**
 * Returns the CPU time of a process and all its threads so far, in microseconds, with a resolution of one tick (10 ms).
 */
export function cpuMicroseconds(pid: number): number {
  return parseCpu(readFileSync(`/proc/${pid}/stat`, 'utf8'));
}

/** Parses utime + stime of proc_pid_stat(5). */
export function parseCpu(stat: string): number {
  // The program name in parentheses may contain any character.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const ticks = Number(fields[11]) + Number(fields[12]);
  if (!Number.isFinite(ticks)) throw new Error(`no CPU times in ${JSON.stringify(stat)}`);
  return (ticks * 1_000_000) / TICKS_PER_SECOND;
}

/** Returns the maximum resident memory of a process, in MB (2^20 bytes). */
export function peakRssMB(pid: number): number {
  return parsePeakRss(readFileSync(`/proc/${pid}/status`, 'utf8'));
}

/** Memory of a process, in MB (2^20 bytes). */
export interface Resident {
  readonly all: number;
  /** Private memory: heaps and stacks. */
  readonly anonymous: number;
  /** Pages of files, mostly of Node's program, which every process that runs it shares. */
  readonly ofFiles: number;
}

/** Returns the resident memory of a process. */
export function residentMB(pid: number): Resident {
  return parseResident(readFileSync(`/proc/${pid}/status`, 'utf8'));
}

/** Parses VmRSS, RssAnon and RssFile of proc_pid_status(5), in MB. */
export function parseResident(status: string): Resident {
  return {
    all: megabytesOf(status, 'VmRSS'),
    anonymous: megabytesOf(status, 'RssAnon'),
    ofFiles: megabytesOf(status, 'RssFile'),
  };
}

/** Parses VmHWM of proc_pid_status(5), in MB. */
export function parsePeakRss(status: string): number {
  return megabytesOf(status, 'VmHWM');
}

function megabytesOf(status: string, key: string): number {
  const kibibytes = new RegExp(`^${key}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1];
  if (kibibytes === undefined) throw new Error(`no ${key} in the status of the process`);
  return Number(kibibytes) / 1024;
}
