/** When the bypass last served clients without the shim, in milliseconds since the epoch. */
export interface BypassTimes {
  /** Undefined if it has not served since the boot, as far as systemd remembers. */
  readonly start: number | undefined;
  /** Undefined while it serves, also if it has not served. */
  readonly end: number | undefined;
}

/** Which runtime the kubelet of this node uses. */
export type EndpointState =
  /** The shim. */
  | 'shim'
  /** The shim, but not after its next start: its configuration has another endpoint by now. */
  | 'next_start'
  /** Another runtime, although it has used the shim before. */
  | 'past'
  /** Another runtime, and it has never used the shim. */
  | 'unused'
  /** No kubelet is visible, or it is starting, or the bypass serves it. */
  | 'unknown';

/** All of {@link EndpointState}, in the order in which metrics list them. */
export const endpointStates: readonly EndpointState[] = ['shim', 'next_start', 'past', 'unused', 'unknown'];

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
