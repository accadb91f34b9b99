import * as z from 'zod';

/** The outcome of a spec: the states of ginkgo that the comparison distinguishes. */
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
