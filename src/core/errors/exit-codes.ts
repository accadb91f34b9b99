/** Exit codes of resizectl, for people and scripts. The program of the DaemonSet's pod reads them, too. */
export const Exit = {
  done: 0,
  failed: 1,
  usage: 2,
  infeasible: 3,
  deferred: 4,
  canceled: 5,
  undoFailed: 6,
  busy: 7,
} as const;
export type Exit = (typeof Exit)[keyof typeof Exit];
