import type { Outcome } from '../runner/vitest-run.ts';
import type { ContainerdRelease } from '../support/node/index.ts';

/** The suites for each containerd release. The matrix runs each OCI runtime: two cpu.weight formulas, and crun. */
export const suites = ['end-to-end', 'matrix-runc', 'matrix-runc-1.3', 'matrix-crun', 'conformance'] as const;
export type Suite = (typeof suites)[number];

export interface Result {
  readonly containerd: ContainerdRelease;
  readonly suite: Suite;
  readonly outcome: Outcome;
}

/**
 * Returns a Markdown table of release against suite.
 * @param versions the version of each release, such as 2.1.9
 */
export function versionsTable(versions: ReadonlyMap<ContainerdRelease, string>, results: readonly Result[]): string {
  const cell = (containerd: ContainerdRelease, suite: Suite): string => {
    const result = results.find((each) => each.containerd === containerd && each.suite === suite);
    if (result === undefined) return '';
    const { passed, failures } = result.outcome;
    return failures.length === 0 ? `${passed} passed` : `${passed} passed, ${failures.length} FAILED`;
  };
  const rows = [...versions].map(([containerd, version]) => [
    version,
    ...suites.map((suite) => cell(containerd, suite)),
  ]);
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [line(['containerd', ...suites]), `|${'---|'.repeat(suites.length + 1)}`, ...rows.map(line)].join('\n');
}
