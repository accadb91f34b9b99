import { Exit } from '../../core/errors/index.ts';

export { Exit };

/** What each exit code means, for --help, the manual page and the docs. */
export const exitTexts: readonly (readonly [code: Exit, meaning: string])[] = [
  [Exit.done, 'done: the kernel has the new values; for plan and --dry-run: the resize is possible'],
  [Exit.failed, 'result unknown: the resize API cannot be reached or failed'],
  [Exit.usage, 'invalid command line, no such pod, or refused: nothing was changed'],
  [
    Exit.infeasible,
    'rejected, does not fit yet (without --defer), or failed and rolled back: the pod, or the node, is unchanged',
  ],
  [Exit.deferred, 'does not fit yet, and is retried (--defer), or would be (--defer --dry-run)'],
  [Exit.canceled, 'canceled, superseded by a newer resize, or the pod is gone'],
  [
    Exit.undoFailed,
    'failed, and the rollback failed too: the pod has a mix of old and new values until it is recovered; for the node, the output says what is left',
  ],
  [
    Exit.busy,
    'nothing was changed, or all was rolled back: another process installs or removes the shim on this node, or has changed a file of kubelet meanwhile',
  ],
];
