/** What a check of the node has come to. */
export interface Finding {
  /** What was looked at: `cgroups`, `kubelet`. */
  readonly check: string;
  /** `warning`: the shim works, and something is less than it could be. `failed`: it would not work, or could not be set up. */
  readonly result: 'ok' | 'warning' | 'failed';
  /** What was found, with the values. */
  readonly says: string;
  /** What to do about it; empty when nothing is to be done. */
  readonly cure: string;
}

/** Of several, the worst. */
export function worstOf(findings: readonly Finding[]): Finding['result'] {
  if (findings.some(({ result }) => result === 'failed')) return 'failed';
  return findings.some(({ result }) => result === 'warning') ? 'warning' : 'ok';
}

/** Makes the findings of one check. */
export const findingsOf = (check: string) => ({
  ok: (says: string): Finding => ({ check, result: 'ok', says, cure: '' }),
  warning: (says: string, cure: string): Finding => ({ check, result: 'warning', says, cure }),
  failed: (says: string, cure: string): Finding => ({ check, result: 'failed', says, cure }),
});
