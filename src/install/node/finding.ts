/** The result of one check of the node. */
export interface Finding {
  /** Name of the check: `cgroups`, `kubelet`. */
  readonly check: string;
  /** `warning`: the shim works, with restrictions. `failed`: the shim would not work, or could not be installed. */
  readonly result: 'ok' | 'warning' | 'failed';
  /** The finding, with its values. */
  readonly found: string;
  /** The remedy; empty if the check passed. */
  readonly remedy: string;
  /** The evidence for the finding, one line each. */
  readonly details?: readonly string[];
  /** kubelet uses the shim and ends after each start, maybe due to the shim. An installation may repair it. */
  readonly isLoopAtShim?: true;
}

/** Returns the worst result of several checks. */
export function worstOf(findings: readonly Finding[]): Finding['result'] {
  if (findings.some(({ result }) => result === 'failed')) return 'failed';
  return findings.some(({ result }) => result === 'warning') ? 'warning' : 'ok';
}

/** Creates the findings of one check. */
export const findingsOf = (check: string) => ({
  ok: (found: string): Finding => ({ check, result: 'ok', found, remedy: '' }),
  warning: (found: string, remedy: string): Finding => ({ check, result: 'warning', found, remedy }),
  failed: (found: string, remedy: string): Finding => ({ check, result: 'failed', found, remedy }),
});
