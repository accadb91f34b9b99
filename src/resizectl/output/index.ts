/** What resizectl prints: tables, objects and errors. */
export { UsageError, errorInfoOf, reportOf } from './failure.ts';
export { eventText, shortResizeId } from './history.ts';
export { objectText } from './objects.ts';
export { findPod, nameOf } from './pods.ts';
export { durationText, exactSizeText, printable, table } from './text.ts';
export {
  changesTable,
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
