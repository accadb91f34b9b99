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
