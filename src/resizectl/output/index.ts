/** What resizectl prints: tables, objects and errors. */
export { UsageError, errorInfoOf, reportOf } from './failure.ts';
export { objectText } from './objects.ts';
export { findPod } from './pods.ts';
export { durationText, fullName, printable, table } from './text.ts';
export {
  changesTable,
  endText,
  podDescription,
  podLine,
  podText,
  podsTable,
  shortId,
  stateText,
  stepText,
  stepsTable,
} from './views.ts';
