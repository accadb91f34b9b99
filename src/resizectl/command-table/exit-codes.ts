/** Exit codes, for people and scripts. */
export const Exit = {
  done: 0,
  failed: 1,
  usage: 2,
  infeasible: 3,
  deferred: 4,
  canceled: 5,
  undoFailed: 6,
} as const;
export type Exit = (typeof Exit)[keyof typeof Exit];

export const exitTexts: readonly (readonly [code: Exit, meaning: string])[] = [
  [Exit.done, 'done: the kernel has the new values; for plan: the resize is possible'],
  [Exit.failed, 'result unknown: the resize API cannot be reached or failed'],
  [Exit.usage, 'invalid command line, or no such pod'],
  [Exit.infeasible, 'rejected, does not fit yet (without --defer), or failed and rolled back: the pod is unchanged'],
  [Exit.deferred, 'does not fit yet, and is retried (--defer)'],
  [Exit.canceled, 'canceled, superseded by a newer resize, or the pod is gone'],
  [
    Exit.undoFailed,
    'failed, and the rollback failed too: the pod has a mix of old and new values until it is recovered',
  ],
];
