import type { Specs } from '../conformance/results/results.ts';

/** A third-party program that tests a server. */
export interface Witness {
  readonly name: string;
  /** If fewer cases than this pass directly, the run says too little about the shim. */
  readonly leastPassedDirect: number;
  /** Runs all cases against the server on a port of the loopback address, or only those with these names. */
  run(run: WitnessRun): Promise<Specs>;
}

export interface WitnessRun {
  readonly port: number;
  readonly only?: readonly string[];
  /** The folder for reports and logs. */
  readonly logs: string;
  readonly signal: AbortSignal;
}
