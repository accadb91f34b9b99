import * as z from 'zod';

/** One operation of a client through the shim, and whether the result was as expected. */
export const checkResult = z.object({
  name: z.string(),
  ms: z.number(),
  /** The reason of the failure, or null. */
  failure: z.string().nullable(),
});
export type CheckResult = z.output<typeof checkResult>;
export const checkResults = z.array(checkResult);

/** Runs checks one after the other and stores their results. A failed check does not stop the others. */
export class CheckList {
  readonly results: CheckResult[] = [];

  constructor(private readonly say: (line: string) => void) {}

  /** @param action throws if a result is not as expected */
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

/** A value that one check determines and later ones use. */
export class Found<T> {
  private found: T | undefined;

  constructor(private readonly what: string) {}

  set(value: T): T {
    this.found = value;
    return value;
  }

  /** @throws Error if the check that determines it has failed */
  get(): T {
    if (this.found === undefined) throw new Error(`no ${this.what} is known: see the failed check above`);
    return this.found;
  }
}
