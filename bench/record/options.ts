/** Options of the recording program in the test node. Its first argument has them as JSON. */
export interface RecordOptions {
  readonly pods: number;
  /** How long to record. */
  readonly seconds: number;
  /** How many containers have a probe that runs a command. */
  readonly probes: number;
  readonly probeSeconds: number;
  /** Names of this machine that the recording must not have. */
  readonly names: readonly string[];
  readonly date: string;
  readonly kubelet: string;
  readonly containerd: string;
  readonly runtime: string;
  readonly kernel: string;
}

/** The file in the output folder of the node. */
export const FILE = 'load.recording';
