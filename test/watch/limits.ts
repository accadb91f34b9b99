/** Values read from a pod, by owner and file: `pod memory.max`, `a cpu.max`, `volume cache`. */
export type PodState = Readonly<Record<string, string>>;

export interface LimitReport {
  /** Sums above the pod's limit, without repeats. */
  readonly violations: readonly string[];
  /** Each pair of pod limit and sum, in order. Memory and CPU each have an entry when it changes. */
  readonly seen: readonly string[];
}

const resources = [
  { name: 'memory', file: 'memory.max', amount: (text: string) => limit(text) },
  { name: 'cpu', file: 'cpu.max', amount: (text: string) => rate(text) },
] as const;

/** The files that {@link limitsSeen} reads. */
export const limitFiles = resources.map(({ file }) => file);

/** Returns the limits of a pod over time, and the sums of its containers' limits. */
export function limitsSeen(states: readonly PodState[], containers: readonly string[]): LimitReport {
  const violations = new Set<string>();
  const seen: string[] = [];
  const last = new Map<string, string>();
  for (const state of states) {
    for (const { name, file, amount } of resources) {
      const of = (whose: string): number => amount(state[`${whose} ${file}`] ?? '');
      const sum = containers.reduce((total, container) => total + of(container), 0);
      const line = `${name}: containers ${sixDigits(sum)}, pod ${sixDigits(of('pod'))}`;
      // With a tolerance of a millionth, because rates are not exact.
      if (sum > of('pod') * (1 + 1e-6)) violations.add(line);
      if (last.get(name) !== line) seen.push(line);
      last.set(name, line);
    }
  }
  return { violations: [...violations], seen };
}

const limit = (text: string): number => (text === 'max' ? Infinity : Number(text));

/** Returns CPU as a rate: quota divided by period. */
function rate(text: string): number {
  const [quota = '', period = ''] = text.split(' ');
  return limit(quota) / Number(period);
}

const sixDigits = (value: number): number => Math.round(value * 1e6) / 1e6;
