import * as z from 'zod';

/** One thing that a client did through the shim, and whether it got what it should. */
export const checkResult = z.object({
  name: z.string(),
  ms: z.number(),
  /** Why it failed; null when it did not. */
  failure: z.string().nullable(),
});
export type CheckResult = z.output<typeof checkResult>;
export const checkResults = z.array(checkResult);

/** Runs checks one after the other and keeps what became of each: a failed one does not keep the others from running. */
export class CheckList {
  readonly results: CheckResult[] = [];

  constructor(private readonly say: (line: string) => void) {}

  /** @param action throws when something is not as it should be */
  async check(name: string, action: () => Promise<void>): Promise<void> {
    const start = performance.now();
    let failure: string | null = null;
    try {
      await action();
    } catch (error) {
      failure = error instanceof Error ? error.message : String(error);
      this.say(`${name}: FAILED: ${failure}`);
    }
    this.results.push({ name, ms: Math.round(performance.now() - start), failure });
  }
}

/** A value that one check finds out and later ones use. */
export class Found<T> {
  private found: T | undefined;

  constructor(private readonly what: string) {}

  set(value: T): T {
    this.found = value;
    return value;
  }

  /** @throws Error when the check that finds it has failed */
  get(): T {
    if (this.found === undefined) throw new Error(`there is no ${this.what}: see the failed check before`);
    return this.found;
  }
}
