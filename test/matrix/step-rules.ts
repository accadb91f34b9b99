/**
 * Values by owner and file, in the kernel's format: `pod memory.max`, `c1 cpu.max`, `pod cpu.weight`; and `c1 cpu
 * shares` as stored by the runtime.
 */
export type Values = ReadonlyMap<string, string>;

/** A step of a resize, as ResizePod reports it. Times in milliseconds. */
export interface ReportedStep {
  /** The name of the container, or `pod`. */
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
const files = [...limitFiles, 'cpu.weight', 'cpu shares', 'memory.min', 'memory.low'] as const;
type File = (typeof files)[number];

/** Parses a step's text without the target, such as `memory.max 268435456 -> 335544320`. Throws for others. */
export function readChanges(text: string): Change[] {
  return text.split(', ').map((part) => {
    const file = files.find((name) => part.startsWith(`${name} `));
    const [from, to, ...more] = part.slice((file ?? '').length + 1).split(' -> ');
    if (file === undefined || from === undefined || to === undefined || more.length > 0)
      throw new Error(`unexpected change in a step: ${part}`);
    return { file, from, to };
  });
}

/**
 * Returns the rules of docs/resize.md that the steps from `start` to `end` break, as readable texts. The rules: each
 * step starts from the current values, and the last one leads to the end; the containers' limits are within the pod's
 * after each step; for each resource the pod is raised, containers are lowered, containers are raised, the pod is
 * lowered, in this order; a container is updated once, or twice if its memory and its CPU go opposite ways.
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
  // CPU rates are floating-point numbers.
  return sum > pod * (1 + 1e-9) ? [`${file}: containers ${sum}, pod ${pod}`] : [];
}

const places = ['pod raised', 'container lowered', 'container raised', 'pod lowered'] as const;
type Place = (typeof places)[number];

/** Returns a limit as a number of bytes or of CPUs. */
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

/** Returns the steps that begin before the previous step has ended. Times have a precision of microseconds. */
const outOfTime = (steps: readonly ReportedStep[]): string[] =>
  steps.flatMap(({ target, at, took }, index) => {
    const before = steps[index - 1];
    const began = before === undefined ? 0 : before.at + before.took - 0.002;
    return at >= began && took >= 0 ? [] : [`the step for ${target} begins at ${at} ms, before ${began} ms`];
  });
