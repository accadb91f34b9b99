/**
 * Values by what they belong to and where they stand, as the kernel has them: `pod memory.max`, `c1 cpu.max`, `pod cpu.weight`;
 * `c1 cpu shares` as the runtime has them.
 */
export type Values = ReadonlyMap<string, string>;

/** A step of a resize, as ResizePod reports it. Times in milliseconds. */
export interface ReportedStep {
  /** The container by name, or `pod`. */
  readonly target: string;
  readonly changes: readonly Change[];
  readonly at: number;
  readonly took: number;
}

export interface Change {
  readonly file: File;
  readonly from: string;
  readonly to: string;
}

const limitFiles = ['memory.max', 'cpu.max'] as const;
const files = [...limitFiles, 'cpu.weight', 'cpu shares'] as const;
type File = (typeof files)[number];

/** Reads what a step's text says, `pod memory.max 268435456 -> 335544320`, without what it begins with. Throws for another. */
export function readChanges(text: string): Change[] {
  return text.split(', ').map((part) => {
    const file = files.find((name) => part.startsWith(`${name} `));
    const [from, to, ...more] = part.slice((file ?? '').length + 1).split(' -> ');
    if (file === undefined || from === undefined || to === undefined || more.length > 0)
      throw new Error(`not a change that a step of the matrix makes: ${part}`);
    return { file, from, to };
  });
}

/**
 * What of the rules of docs/resize.md the steps from `start` to `end` break, as texts for people; none when all hold: each step goes
 * on from what stands, and the last one leaves the end; the containers' limits are within the pod's after each of them;
 * for each resource the pod is raised, containers are lowered, containers are raised, the pod is lowered, in this order; a
 * container is updated once, or twice where its memory and its CPU go opposite ways.
 */
export function brokenRules(steps: readonly ReportedStep[], start: Values, end: Values): string[] {
  return [
    ...replayed(steps, start, end),
    ...limitFiles.flatMap((file) => outOfOrder(steps, file)),
    ...updatedTooOften(steps),
    ...outOfTime(steps),
  ];
}

function replayed(steps: readonly ReportedStep[], start: Values, end: Values): string[] {
  const broken: string[] = [];
  const now = new Map(start);
  for (const { target, changes } of steps) {
    for (const { file, from, to } of changes) {
      const place = `${target} ${file}`;
      if (now.get(place) !== from) broken.push(`${place} goes from ${from}, and was ${now.get(place) ?? 'not there'}`);
      if (from === to) broken.push(`${place} goes from ${from} to ${to}`);
      now.set(place, to);
    }
    broken.push(...limitFiles.flatMap((file) => aboveThePod(now, file)));
  }
  for (const place of new Set([...now.keys(), ...end.keys()])) {
    if (now.get(place) !== end.get(place))
      broken.push(`${place} ends as ${now.get(place) ?? 'nothing'}, not as ${end.get(place) ?? 'nothing'}`);
  }
  return broken;
}

function aboveThePod(values: Values, file: File): string[] {
  const pod = limitOf(values.get(`pod ${file}`) ?? 'max');
  let sum = 0;
  for (const [place, text] of values) {
    if (place.endsWith(` ${file}`) && !place.startsWith('pod ')) sum += limitOf(text);
  }
  // Rates of CPU are not exact numbers.
  return sum > pod * (1 + 1e-9) ? [`${file}: containers ${sum}, pod ${pod}`] : [];
}

const places = ['pod raised', 'container lowered', 'container raised', 'pod lowered'] as const;
type Place = (typeof places)[number];

/** A limit as a number: bytes, or CPUs. */
function limitOf(text: string): number {
  const [limit = '', period = '1'] = text.split(' ');
  return limit === 'max' ? Infinity : Number(limit) / Number(period);
}

const placeOf = (target: string, { from, to }: Change): Place => {
  const raised = limitOf(to) > limitOf(from);
  if (target === 'pod') return raised ? 'pod raised' : 'pod lowered';
  return raised ? 'container raised' : 'container lowered';
};

function outOfOrder(steps: readonly ReportedStep[], file: File): string[] {
  const found = steps.flatMap(({ target, changes }) =>
    changes.filter((change) => change.file === file).map((change) => placeOf(target, change)),
  );
  const sorted = found.toSorted((a, b) => places.indexOf(a) - places.indexOf(b));
  return found.join() === sorted.join() ? [] : [`${file}: ${found.join(', ')}`];
}

function updatedTooOften(steps: readonly ReportedStep[]): string[] {
  const broken: string[] = [];
  const containers = new Set(steps.map(({ target }) => target).filter((target) => target !== 'pod'));
  for (const target of containers) {
    const of = steps.filter((step) => step.target === target);
    const ways = of.map(({ changes }) => new Set(limitChanges(changes).map((change) => placeOf(target, change))));
    if (ways.some(({ size }) => size > 1)) broken.push(`${target} goes opposite ways in one update`);
    const allowed = new Set(ways.flatMap((way) => [...way])).size === 2 ? 2 : 1;
    if (of.length > allowed) broken.push(`${target} is updated ${of.length} times`);
  }
  return broken;
}

const limitChanges = (changes: readonly Change[]): Change[] =>
  changes.filter(({ file }) => limitFiles.some((name) => name === file));

/** A step begins when the one before it has ended; the wire has microseconds. */
const outOfTime = (steps: readonly ReportedStep[]): string[] =>
  steps.flatMap(({ target, at, took }, index) => {
    const before = steps[index - 1];
    const began = before === undefined ? 0 : before.at + before.took - 0.002;
    return at >= began && took >= 0 ? [] : [`the step for ${target} begins at ${at} ms, before ${began} ms`];
  });
