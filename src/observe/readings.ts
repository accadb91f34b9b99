/** When the bypass last served clients without the shim, in milliseconds since the epoch. */
export interface BypassReadings {
  readonly start: number | undefined;
  readonly end: number | undefined;
}

/** Values that are read at each scrape instead of being counted as events happen. */
export interface NodeReadings {
  readonly pods: number;
  /** Totals over all memory-backed volumes, in bytes. */
  readonly volumes: { readonly count: number; readonly size: number; readonly used: number };
  /** The state of each unfinished resize. */
  readonly unfinished: readonly string[];
  /** Whether kubelet's state files with admitted resizes exist and are read. */
  readonly foresight: boolean;
}
