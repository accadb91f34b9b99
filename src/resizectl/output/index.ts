/** What resizectl prints: tables, objects and errors. */
export { completionScript, isShell } from './completion.ts';
export { manualPage } from './manual.ts';
export { BusyError, UsageError, errorInfoOf, reportOf } from './failure.ts';
export { eventText, shortResizeId } from './history.ts';
export { objectText } from './objects.ts';
export { findNamed, findPod, readPod } from './pods.ts';
export { durationText, fullName, printable, table } from './text.ts';
export {
  changesTable,
  deferralText,
  endText,
  podDescription,
  podLine,
  podText,
  podsTable,
  inOrder,
  shortId,
  stepText,
  stepsTable,
} from './views.ts';
