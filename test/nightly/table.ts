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
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [
    line(['what', 'command', 'versions', 'date', 'result', 'time']),
    '|---|---|---|---|---|---|',
    ...rows.map(line),
  ].join('\n');
}

const START = '<!-- nightly -->';
const END = '<!-- /nightly -->';

/** Returns the page with the table between its markers. @throws Error if the page has no markers */
export function withTable(page: string, table: string): string {
  const [start, end] = [page.indexOf(START), page.indexOf(END)];
  if (start < 0 || end < start) throw new Error(`the page has no lines ${START} and ${END}`);
  return `${page.slice(0, start + START.length)}\n${table}\n${page.slice(end)}`;
}
