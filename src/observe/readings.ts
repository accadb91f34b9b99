/** What is looked up when metrics are asked for, and not counted as it happens. */
export interface NodeReadings {
  readonly pods: number;
  /** Of all memory-backed volumes together; bytes. */
  readonly volumes: { readonly count: number; readonly size: number; readonly used: number };
  /** The states of resizes that have not ended. */
  readonly unfinished: readonly string[];
  /** Whether there is a file of what kubelet has admitted. */
  readonly foresight: boolean;
}
