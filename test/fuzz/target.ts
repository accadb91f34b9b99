/** A target that one fuzzer feeds with inputs, in this process. */
export interface Target {
  readonly name: string;
  /** Plays one input. Throws, or rejects with, anything that the input caused and must not. */
  play(seed: number, index: number): Promise<void> | void;
  /** Returns the lines that show an input. */
  describe(seed: number, index: number): readonly string[];
  /** Returns how the inputs ended, to see that they reach relevant states. */
  summary(): string;
  /** Removes files. */
  close(): void;
}

/** How the inputs of one target ended. */
export interface Outcome {
  readonly target: string;
  readonly inputs: number;
  readonly summary: string;
  readonly failure?: {
    /** The input that repeats the failure, as far as it is known. */
    readonly index: number;
    readonly lines: readonly string[];
  };
}

/** A violation that an input caused. The input can be replayed by its target, seed and index. */
export class Finding extends Error {}
