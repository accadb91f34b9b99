/** The faults of a process's file system and clock. Written as JSON by the tests, read by the process. */
export interface Faults {
  readonly rules: readonly FaultRule[];
  /** Added to the time of day, in milliseconds. */
  readonly clockMs: number;
}

export interface FaultRule {
  /** Calls of node:fs, by their names in node:fs/promises. */
  readonly calls: readonly string[];
  /** A regular expression for the path. */
  readonly path: string;
  /** The error that the call fails with; `HANG` for a call that does not return. */
  readonly code: string;
  /** Fails every nth matching call. */
  readonly every: number;
}

export const NO_FAULTS: Faults = { rules: [], clockMs: 0 };

/** Decides which calls fail. */
export class FaultCounter {
  readonly #counts = new Map<string, number>();

  /** Returns the code that a call fails with, if any. */
  codeOf({ rules }: Faults, call: string, path: string): string | undefined {
    for (const rule of rules) {
      if (!rule.calls.includes(call) || !new RegExp(rule.path).test(path)) continue;
      const key = JSON.stringify(rule);
      const count = (this.#counts.get(key) ?? 0) + 1;
      this.#counts.set(key, count);
      if (count % rule.every === 0) return rule.code;
    }
    return undefined;
  }
}

export const errorOf = (code: string, call: string, path: string): Error =>
  Object.assign(new Error(`${code}: injected, ${call} '${path}'`), { code, syscall: call, path });
