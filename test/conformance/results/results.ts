import * as z from 'zod';

export type Specs = ReadonlyMap<string, Spec>;

/** A spec that is worse through the shim: it passes or is skipped directly. */
export interface Difference {
  readonly name: string;
  readonly direct: Outcome;
  /** The outcome through the shim. `missing`: the run did not reach the spec. */
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
  /** The number of specs by outcome: `passed, failed` passed directly and failed through the shim. */
  readonly pairs: ReadonlyMap<string, number>;
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
    differences: [...direct.values()].flatMap(({ name, outcome }) => {
      const other = through.get(name);
      if (!isWorse(other?.outcome, outcome)) return [];
      return [
        { name, direct: outcome, through: other?.outcome ?? 'missing', reason: other?.reason ?? 'it was not run' },
      ];
    }),
    pairs: pairsOf(direct, through),
  };
}

/** Whether an outcome is worse than that of the direct run. What is skipped directly may fail through the shim. */
const isWorse = (outcome: Outcome | undefined, direct: Outcome): boolean => ranks[outcome ?? 'failed'] < ranks[direct];
const ranks: Readonly<Record<Outcome, number>> = { failed: 0, skipped: 1, passed: 2 };

/** Returns the number of specs that pass directly and are not worse through the shim. */
export const goodOf = ({ passedDirect }: Comparison, { real }: Verdict): number =>
  passedDirect - real.filter(({ direct }) => direct === 'passed').length;

/** Returns a line for each pair of outcomes. */
export const pairLines = ({ pairs }: Comparison): readonly string[] =>
  [...pairs].map(([pair, number]) => `${pair}: ${number}`);

function pairsOf(direct: Specs, through: Specs): ReadonlyMap<string, number> {
  const pairs = new Map<string, number>();
  for (const name of new Set([...direct.keys(), ...through.keys()])) {
    const pair = [direct, through].map((specs) => specs.get(name)?.outcome ?? 'missing').join(', ');
    pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
  }
  return new Map([...pairs].toSorted(([one], [other]) => (one < other ? -1 : 1)));
}

/** The result of a second run of only the specs that differed. */
export interface Verdict {
  /** Differ again: faults of the shim. */
  readonly real: readonly Difference[];
  /** Not worse through the shim in the second run. */
  readonly flaky: readonly Difference[];
  /** Worse directly and through the shim in the second run: a fault of containerd or the node. */
  readonly unsteady: readonly Difference[];
}

export function judge(first: readonly Difference[], direct: Specs, through: Specs): Verdict {
  const isAsGood = (specs: Specs, one: Difference): boolean => !isWorse(specs.get(one.name)?.outcome, one.direct);
  const flaky = first.filter((one) => isAsGood(through, one));
  const rest = first.filter((difference) => !flaky.includes(difference));
  return {
    real: rest
      .filter((one) => isAsGood(direct, one))
      .map((difference) => ({ ...difference, reason: through.get(difference.name)?.reason ?? difference.reason })),
    flaky,
    unsteady: rest.filter((one) => !isAsGood(direct, one)),
  };
}

/** Returns a ginkgo focus that matches exactly these specs. */
export function focusOn(names: readonly string[]): string {
  return names.map((name) => `${name.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`).join('|');
}

/**
 * Specs that cannot pass in the test node on either side, with what they require. They run nevertheless, because both
 * sides must have the same result.
 */
export const cannotPass: ReadonlyMap<string, string> = new Map([
  [
    '[k8s.io] Image Manager public image with digest should be pulled and removed [Conformance]',
    'references an image by digest, and nobody can build content for a given digest',
  ],
  [
    '[k8s.io] Security Context bucket runtime should support MaskedPaths',
    'masks /bin/ls, which is a link to busybox in an image made of busybox: nothing can start there',
  ],
  [
    '[k8s.io] Networking runtime should support networking runtime should support port mapping with host port and container port [Conformance]',
    'needs the portmap plugin, which needs iptables',
  ],
]);

/**
 * If fewer specs than this pass directly, a full run says too little about the shim, because the node or the images
 * have a fault. 103 pass with containerd 2.1 and runc 1.3.
 */
export const leastPassedDirect = 85;

/** The outcome of a spec. The comparison distinguishes these states of ginkgo. */
export type Outcome = 'passed' | 'failed' | 'skipped';

export interface Spec {
  readonly name: string;
  readonly outcome: Outcome;
  /** The reason of a failure or skip; empty if there is none. */
  readonly reason: string;
  readonly seconds: number;
}

/** The part of ginkgo's JSON report (`--ginkgo.json-report`) that the comparison reads. */
const report = z.array(
  z.object({
    SpecReports: z.array(
      z.object({
        ContainerHierarchyTexts: z.array(z.string()).nullish(),
        LeafNodeType: z.string(),
        LeafNodeText: z.string(),
        State: z.string(),
        RunTime: z.number(),
        Failure: z
          .object({ Message: z.string().optional(), ForwardedPanic: z.string().optional() })
          .partial()
          .optional(),
      }),
    ),
  }),
);

/**
 * Returns the selected specs by name, without those that a focus or a flag excluded.
 * @throws Error if the report is not ginkgo's, or if the setup before the specs failed, so that no spec has a result
 */
export function readReport(text: string): Map<string, Spec> {
  const specs = new Map<string, Spec>();
  for (const entry of report.parse(JSON.parse(text)).flatMap(({ SpecReports }) => SpecReports)) {
    const outcome = outcomeOf(entry.State);
    const reason = [entry.Failure?.Message, entry.Failure?.ForwardedPanic].filter(Boolean).join('\n');
    if (entry.LeafNodeType !== 'It') {
      if (outcome === 'failed') throw new Error(`the suite's ${entry.LeafNodeType} failed: ${reason}`);
      continue;
    }
    // A spec that a filter excluded is "skipped" without a reason. One that skipped itself has a reason.
    if (outcome === 'skipped' && reason === '') continue;
    const name = [...(entry.ContainerHierarchyTexts ?? []), entry.LeafNodeText].join(' ');
    if (specs.has(name)) throw new Error(`two specs are named "${name}"`);
    specs.set(name, { name, outcome, reason, seconds: entry.RunTime / 1e9 });
  }
  return specs;
}

function outcomeOf(state: string): Outcome {
  switch (state) {
    case 'passed':
      return 'passed';
    case 'skipped':
    case 'pending':
      return 'skipped';
    default:
      // failed, panicked, timedout, interrupted, aborted
      return 'failed';
  }
}
