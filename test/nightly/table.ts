import { markdownTable } from '../runner/page-table.ts';
import type { StepResult } from './state.ts';
import type { Step } from './steps.ts';

/** The last run of all steps as a Markdown table: what, with which versions, when, and with which result. */
export function nightlyTable(steps: readonly Step[], results: Readonly<Record<string, StepResult>>): string {
  const rows = steps.map(({ name, command }) => {
    const result = results[name];
    const what = `\`npm ${command.join(' ')}\``;
    if (result === undefined) return [name, what, '', '', 'not run', ''];
    const { passed, failed, seconds, date, versions = '' } = result;
    const outcome = failed === 0 ? `${passed} passed` : `${passed} passed, ${failed} FAILED`;
    return [name, what, versions, date, outcome, `${Math.ceil(seconds / 60)} min`];
  });
  return markdownTable([['what', 'command', 'versions', 'date', 'result', 'time'], ...rows]);
}
