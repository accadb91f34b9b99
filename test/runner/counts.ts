export interface Counts {
  readonly passed: number;
  readonly failed: number;
}

/**
 * Returns the counts of the last line `N passed, N failed` or `NAME: N passed, N failed` of a command's output. A
 * command that fails without counting a failure counts as one failure.
 */
export function countsIn(output: string, exitCode: number | undefined): Counts {
  const last = [...output.matchAll(/^(?:.*: )?(\d+) passed, (\d+) failed$/gm)].at(-1);
  const [passed, failed] = [Number(last?.[1] ?? 0), Number(last?.[2] ?? 0)];
  return { passed, failed: failed === 0 && (exitCode !== 0 || last === undefined) ? 1 : failed };
}
