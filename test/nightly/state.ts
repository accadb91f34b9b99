import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { z } from 'zod';

const result = z.strictObject({
  passed: z.number(),
  failed: z.number(),
  seconds: z.number(),
  /** The day of the end: 2026-11-23. */
  date: z.string(),
  /** The versions that the command has printed, if any. */
  versions: z.string().optional(),
  /** Whether the time limit ended the stage. */
  isLate: z.literal(true).optional(),
});
export type StageResult = z.infer<typeof result>;

const content = z.strictObject({
  /** The commit of the results. */
  commit: z.string(),
  results: z.record(z.string(), result),
});

/** The results of a run of all stages, in a file, to continue the run. Drops results of another commit. */
export class State {
  private constructor(
    private readonly file: string,
    readonly commit: string,
    private readonly stored: Record<string, StageResult>,
  ) {}

  /** @throws Error if the file exists and is not such a file, so that nothing else is overwritten */
  static read(file: string, commit: string): State {
    const text = textOf(file);
    if (text === undefined) return new State(file, commit, {});
    let parsed: z.infer<typeof content>;
    try {
      parsed = content.parse(JSON.parse(text));
    } catch (error) {
      throw new Error(`${file} is no file of nightly results: ${String(error)}`, { cause: error });
    }
    return new State(file, commit, parsed.commit === commit ? parsed.results : {});
  }

  get results(): Readonly<Record<string, StageResult>> {
    return this.stored;
  }

  /** Whether the stage has passed at this commit. */
  hasPassed(name: string): boolean {
    return this.stored[name]?.failed === 0;
  }

  /** Stores a result. The file is complete at any time. */
  add(name: string, added: StageResult): void {
    this.stored[name] = added;
    mkdirSync(dirname(this.file), { recursive: true });
    writeFileSync(`${this.file}.new`, `${JSON.stringify({ commit: this.commit, results: this.stored }, null, 2)}\n`);
    renameSync(`${this.file}.new`, this.file);
  }
}

function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
