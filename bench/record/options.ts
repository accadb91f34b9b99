/** Options of the recording program in the test node. Its first argument has them as JSON. */
export interface RecordOptions {
  readonly pods: number;
  /** Duration of the recording in seconds. */
  readonly seconds: number;
  /** Number of containers with an exec probe. */
  readonly probes: number;
  readonly probeSeconds: number;
  /** Names of this machine that the recording must not contain. */
  readonly names: readonly string[];
  readonly date: string;
  readonly kubelet: string;
  readonly containerd: string;
  readonly runtime: string;
  readonly kernel: string;
}

/** The file in the output folder of the node. */
export const FILE = 'load.recording';
