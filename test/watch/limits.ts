/** What was read of a pod, by what it belongs to and where it stands: `pod memory.max`, `a cpu.max`, `volume cache`. */
export type PodState = Readonly<Record<string, string>>;

export interface LimitReport {
  /** Sums above the pod's limit, without repeats. */
  readonly violations: readonly string[];
  /** Each pod limit and sum that was seen, in order; of memory and of CPU each without what the state before had. */
  readonly seen: readonly string[];
}

const resources = [
  { name: 'memory', file: 'memory.max', amount: (text: string) => limit(text) },
  { name: 'cpu', file: 'cpu.max', amount: (text: string) => rate(text) },
] as const;

/** The files that {@link limitsSeen} looks at. */
export const limitFiles = resources.map(({ file }) => file);

/** What a pod's limits were, and what its containers' added up to. */
export function limitsSeen(states: readonly PodState[], containers: readonly string[]): LimitReport {
  const violations = new Set<string>();
  const seen: string[] = [];
  const last = new Map<string, string>();
  for (const state of states) {
    for (const { name, file, amount } of resources) {
      const of = (whose: string): number => amount(state[`${whose} ${file}`] ?? '');
      const sum = containers.reduce((total, container) => total + of(container), 0);
      const line = `${name}: containers ${sixDigits(sum)}, pod ${sixDigits(of('pod'))}`;
      // A millionth: rates are not exact numbers.
      if (sum > of('pod') * (1 + 1e-6)) violations.add(line);
      if (last.get(name) !== line) seen.push(line);
      last.set(name, line);
    }
  }
  return { violations: [...violations], seen };
}

const limit = (text: string): number => (text === 'max' ? Infinity : Number(text));

/** CPU as a rate: quota by period. */
function rate(text: string): number {
  const [quota = '', period = ''] = text.split(' ');
  return limit(quota) / Number(period);
}

const sixDigits = (value: number): number => Math.round(value * 1e6) / 1e6;
