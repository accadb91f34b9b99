import { markdownTable } from '../runner/page-table.ts';
import type { Stage } from './stages.ts';
import type { StageResult } from './state.ts';

/** The last run of these stages as a Markdown table: what, with which versions, when, and with which result. */
export function nightlyTable(
  stages: readonly Stage[],
  results: Readonly<Record<string, StageResult>>,
  hasGo: boolean,
): string {
  const rows = stages.map(({ name, minutes, needsGo }) => {
    const result = results[name];
    const what = `\`npm run nightly -- --only ${name}\``;
    if (result === undefined) return [what, '', '', needsGo && !hasGo ? 'not run: needs Go' : 'not run', ''];
    const { passed, failed, seconds, date, versions = '', isLate } = result;
    const counts = failed === 0 ? `${passed} passed` : `${passed} passed, ${failed} FAILED`;
    const outcome = isLate === true ? `${counts}, ENDED after ${minutes} min` : counts;
    return [what, versions, date, outcome, `${Math.ceil(seconds / 60)} min`];
  });
  return markdownTable([['stage', 'versions', 'date', 'result', 'time'], ...rows]);
}
