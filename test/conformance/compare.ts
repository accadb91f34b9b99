import type { Outcome, Spec } from './report.ts';

export type Specs = ReadonlyMap<string, Spec>;

/** A spec that passes direct and does not through the shim. */
export interface Difference {
  readonly name: string;
  /** `missing`: the run through the shim did not get to it. */
  readonly through: Outcome | 'missing';
  readonly reason: string;
}

export interface Comparison {
  readonly specs: number;
  readonly passedDirect: number;
  readonly passedThrough: number;
  /** Skipped on both sides, by themselves: the kernel or the runtime lacks something. */
  readonly skippedBoth: number;
  /** Failed on both sides, with the reason direct. */
  readonly failedBoth: readonly Spec[];
  /** Passed through the shim alone. */
  readonly onlyThrough: readonly string[];
  readonly differences: readonly Difference[];
}

/** Holds the run through the shim against the direct one, spec by spec. */
export function compare(direct: Specs, through: Specs): Comparison {
  const outcomes = (specs: Specs, outcome: Outcome): Spec[] =>
    [...specs.values()].filter((spec) => spec.outcome === outcome);
  const both = (outcome: Outcome): Spec[] =>
    outcomes(direct, outcome).filter(({ name }) => through.get(name)?.outcome === outcome);
  const passedDirect = outcomes(direct, 'passed');
  const passedThrough = outcomes(through, 'passed');
  return {
    specs: new Set([...direct.keys(), ...through.keys()]).size,
    passedDirect: passedDirect.length,
    passedThrough: passedThrough.length,
    skippedBoth: both('skipped').length,
    failedBoth: both('failed'),
    onlyThrough: passedThrough.filter(({ name }) => direct.get(name)?.outcome !== 'passed').map(({ name }) => name),
    differences: passedDirect.flatMap(({ name }) => {
      const other = through.get(name);
      if (other?.outcome === 'passed') return [];
      return [{ name, through: other?.outcome ?? 'missing', reason: other?.reason ?? 'it was not run' }];
    }),
  };
}

/** What a second run of the specs that differed, alone, says about them. */
export interface Verdict {
  /** Differ again: the shim's fault. */
  readonly real: readonly Difference[];
  /** Passed through the shim the second time. */
  readonly flaky: readonly Difference[];
  /** Did not pass direct the second time, nor through: containerd or the node is at fault. */
  readonly unsteady: readonly Difference[];
}

export function judge(first: readonly Difference[], direct: Specs, through: Specs): Verdict {
  const passed = (specs: Specs, name: string): boolean => specs.get(name)?.outcome === 'passed';
  const flaky = first.filter(({ name }) => passed(through, name));
  const rest = first.filter((difference) => !flaky.includes(difference));
  return {
    real: rest
      .filter(({ name }) => passed(direct, name))
      .map((difference) => ({ ...difference, reason: through.get(difference.name)?.reason ?? difference.reason })),
    flaky,
    unsteady: rest.filter(({ name }) => !passed(direct, name)),
  };
}

/** Ginkgo's focus for exactly these specs. */
export function focusOn(names: readonly string[]): string {
  return names.map((name) => `${name.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`).join('|');
}
