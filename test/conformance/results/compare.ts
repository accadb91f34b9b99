import type { Outcome, Spec } from './report.ts';

export type Specs = ReadonlyMap<string, Spec>;

/** A spec that passes directly but not through the shim. */
export interface Difference {
  readonly name: string;
  /** `missing`: the run through the shim did not reach it. */
  readonly through: Outcome | 'missing';
  readonly reason: string;
}

export interface Comparison {
  readonly specs: number;
  readonly passedDirect: number;
  readonly passedThrough: number;
  /** Skipped themselves on both sides, because the kernel or the runtime lacks something. */
  readonly skippedBoth: number;
  /** Failed on both sides, with the reason of the direct run. */
  readonly failedBoth: readonly Spec[];
  /** Passed only through the shim. */
  readonly onlyThrough: readonly string[];
  readonly differences: readonly Difference[];
}

/** Compares the run through the shim with the direct one, spec by spec. */
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

/** The result of a second run of only the specs that differed. */
export interface Verdict {
  /** Differ again: faults of the shim. */
  readonly real: readonly Difference[];
  /** Passed through the shim in the second run. */
  readonly flaky: readonly Difference[];
  /** Failed directly and through the shim in the second run: a fault of containerd or the node. */
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

/** Returns a ginkgo focus that matches exactly these specs. */
export function focusOn(names: readonly string[]): string {
  return names.map((name) => `${name.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`).join('|');
}
