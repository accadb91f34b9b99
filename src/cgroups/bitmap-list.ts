/**
 * Lists of CPUs and memory nodes, as the kernel reads them (lib/bitmap-str.c, bitmap_parselist): `0-3,8`, `all`, `N` for the last one, and
 * `0-10:2/4` for the first 2 of each 4. The kernel prints numbers and ranges only. Pure.
 */

/** The largest number of CPUs of a kernel (CONFIG_NR_CPUS). */
const MOST_NUMBERS = 8192;

/**
 * Whether the kernel prints `found` after `asked` is written. Undefined where a list is not valid, or where it refers to the last number
 * and that is not known.
 *
 * @param lastPossible the last CPU or node that this machine may have. The last one in a list (`N`) is that, or, in some kernels, the
 *   last one that the kernel is built for: NR_CPUS, MAX_NUMNODES
 */
export function isSameList(asked: string, found: string, lastPossible: number | undefined): boolean | undefined {
  const has = numbersIn(found, -1);
  const refersToLast = /n|all/i.test(asked);
  if (has === undefined || (refersToLast && lastPossible === undefined)) return undefined;
  const lasts = refersToLast ? lastNumbers(lastPossible ?? 0) : [-1];
  const wanted = lasts.map((last) => numbersIn(asked, last)).filter((numbers) => numbers !== undefined);
  return wanted.length === 0 ? undefined : wanted.some((numbers) => isSameSet(numbers, has));
}

/** Returns what `N` may stand for: kernels are built for a power of two. */
const lastNumbers = (lastPossible: number): readonly number[] => {
  const built = Array.from({ length: Math.log2(MOST_NUMBERS) + 1 }, (_, power) => 2 ** power - 1);
  return [lastPossible, ...built.filter((last) => last > lastPossible)];
};

const isSameSet = (one: ReadonlySet<number>, other: ReadonlySet<number>): boolean =>
  one.size === other.size && [...one].every((number) => other.has(number));

const REGION = /^(?:(all)|(\d{1,5}|N)(?:-(\d{1,5}|N))?)(?::(\d{1,5}|N)\/(\d{1,5}|N))?$/i;

/** Returns the numbers of a list. Undefined for a list that the kernel rejects, and for an empty one. */
function numbersIn(list: string, last: number): ReadonlySet<number> | undefined {
  const numbers = new Set<number>();
  for (const part of list.split(/[\s,]+/).filter(Boolean)) if (!addRegion(numbers, part, last)) return undefined;
  return numbers.size === 0 ? undefined : numbers;
}

/** Returns whether the region is valid (bitmap_parse_region, bitmap_check_region, bitmap_set_region). */
function addRegion(numbers: Set<number>, region: string, last: number): boolean {
  const [, all, first, end, used, group] = REGION.exec(region) ?? [];
  const number = (text: string): number => (text === 'N' ? last : Number(text));
  if (all === undefined && first === undefined) return false;
  // Only a range has a pattern.
  if (used !== undefined && all === undefined && end === undefined) return false;
  const from = first === undefined ? 0 : number(first);
  const to = all === undefined ? number(end ?? first ?? '') : last;
  const [length, step] = used === undefined ? [to + 1, to + 1] : [number(used), number(group ?? '')];
  const isValid = from >= 0 && from <= to && to < MOST_NUMBERS && step > 0 && length <= step;
  if (!isValid) return false;
  for (let start = from; start <= to; start += step)
    for (let one = start; one <= to && one < start + length; one += 1) numbers.add(one);
  return true;
}

/** Returns the last number of a list that the kernel prints. Undefined for any other text. */
export function lastNumber(list: string): number | undefined {
  const numbers = numbersIn(list, -1);
  return numbers && Math.max(...numbers);
}
