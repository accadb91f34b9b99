import { readFile } from 'node:fs/promises';

/** A range of addresses. */
export interface Mapping {
  readonly start: number;
  readonly length: number;
}

/** Of linux/mman.h. */
const MADV_DONTNEED = 4;

/** madvise(2). */
export type Madvise = (start: number, length: number, advice: number) => number;

/** Finds the mappings of Node's own program. A worker thread reads the file, because the kernel looks at each page for it. */
export const programMappings = async (): Promise<readonly Mapping[]> =>
  unchangedMappings(await readFile('/proc/self/smaps', 'utf8'), process.execPath);

/**
 * Unmaps all pages of these mappings. They stay in the page cache, and are mapped again when they are used, so that the resident memory
 * is what is in use: of Node's program, the start touches twice as many pages as the process needs later. Takes 2 ms.
 */
export function unmap(mappings: readonly Mapping[], madvise: Madvise): void {
  for (const { start, length } of mappings) madvise(start, length, MADV_DONTNEED);
}

/**
 * Returns the mappings of a file, in proc_pid_smaps(5), that are read-only and have no page that differs from the file, neither in memory
 * nor in swap. Others must not be unmapped: their changes would be lost, such as the relocations of the dynamic loader, which are
 * read-only after the start. Linkers put these behind the code, so nothing behind it that is not code is returned.
 */
export function unchangedMappings(smaps: string, file: string): readonly Mapping[] {
  let isBehindCode = false;
  return smaps.split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m).flatMap((entry): Mapping[] => {
    const [, start, end, mode, path] = /^([0-9a-f]+)-([0-9a-f]+) r-([-x])p \S+ \S+ \d+ +(.*)$/m.exec(entry) ?? [];
    if (start === undefined || end === undefined || path !== file) return [];
    const isCode = mode === 'x';
    isBehindCode ||= isCode;
    const isUnchanged = /^Anonymous: +0 kB$/m.test(entry) && /^Swap: +0 kB$/m.test(entry);
    if (!isUnchanged || (isBehindCode && !isCode)) return [];
    return [{ start: Number.parseInt(start, 16), length: Number.parseInt(end, 16) - Number.parseInt(start, 16) }];
  });
}
