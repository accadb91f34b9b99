import * as z from 'zod';

/** What became of a spec: ginkgo's states, as far as a comparison tells them apart. */
export type Outcome = 'passed' | 'failed' | 'skipped';

export interface Spec {
  readonly name: string;
  readonly outcome: Outcome;
  /** Why it failed or was skipped; empty when nothing was said. */
  readonly reason: string;
  readonly seconds: number;
}

/** The part of ginkgo's JSON report (`--ginkgo.json-report`) that is read here. */
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
 * The specs that were chosen, by name: not benchmarks, not those left out by a focus.
 * @throws Error when the report is not ginkgo's, or what goes before the specs failed, so that none of them says a thing
 */
export function readReport(text: string): Map<string, Spec> {
  const specs = new Map<string, Spec>();
  for (const entry of report.parse(JSON.parse(text)).flatMap(({ SpecReports }) => SpecReports)) {
    const outcome = outcomeOf(entry.State);
    const reason = [entry.Failure?.Message, entry.Failure?.ForwardedPanic].filter(Boolean).join('\n');
    if (entry.LeafNodeType !== 'It') {
      if (outcome === 'failed') throw new Error(`critest's ${entry.LeafNodeType} failed: ${reason}`);
      continue;
    }
    // A spec that a filter left out is "skipped" without a word; one that skipped itself says why.
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
