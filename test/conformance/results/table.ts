import type { CampaignResult } from '../campaign.ts';
import { cannotPass, goodOf, pairLines } from './results.ts';

/** Formats rows below a row of titles, in columns as wide as needed. */
export function table(titles: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const lines = [titles, ...rows].map((row) => row.map(String));
  const widths = titles.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** The results of a run as text. */
export function render(results: readonly CampaignResult[]): string {
  const titles = ['containerd', 'runtime', 'specs', 'passed direct', 'passed through', 'skipped', 'failed both'];
  const rows = results.map(({ containerd, runtime, comparison, verdict, checks, seconds }) => [
    ...[containerd, runtime, comparison.specs, comparison.passedDirect, comparison.passedThrough],
    ...[
      comparison.skippedBoth,
      comparison.failedBoth.length,
      verdict.real.length,
      `${passed(checks)}/${checks.length}`,
    ],
    `${seconds} s`,
  ]);
  return [
    table([...titles, 'differences', 'crictl, ctr', 'time'], rows),
    ...results.map(details).filter((text) => text !== ''),
    countLine(results),
  ].join('\n\n');
}

/**
 * The line that CI reads: specs with the same outcome directly and through the shim, and clients with expected results.
 */
function countLine(results: readonly CampaignResult[]): string {
  let [good, bad] = [0, 0];
  for (const { comparison, verdict, checks } of results) {
    good += goodOf(comparison, verdict) + passed(checks);
    bad += verdict.real.length + checks.length - passed(checks);
  }
  return `conformance: ${good} passed, ${bad} failed`;
}

/** Whether no spec is worse through the shim, and all clients got the expected results. */
export function succeeded(results: readonly CampaignResult[]): boolean {
  return results.every(({ verdict, checks }) => verdict.real.length === 0 && passed(checks) === checks.length);
}

function passed(checks: CampaignResult['checks']): number {
  return checks.filter(({ failure }) => failure === null).length;
}

function details({ containerd, comparison, verdict, checks }: CampaignResult): string {
  const block = (title: string, lines: readonly string[]): string[] =>
    lines.length === 0 ? [] : [`containerd ${containerd}: ${title}`, ...lines.map((line) => `  ${line}`)];
  const indented = (text: string): string => text.trim().replaceAll('\n', '\n    ');
  const named = (list: readonly { name: string; reason: string }[]): string[] =>
    list.map(({ name, reason }) => `${name}\n    ${indented(reason)}`);
  return [
    ...block('WORSE THROUGH THE SHIM', named(verdict.real)),
    ...block(
      'CLIENTS WITH UNEXPECTED RESULTS',
      checks.flatMap(({ name, failure }) => (failure === null ? [] : [`${name}\n    ${indented(failure)}`])),
    ),
    ...block('differed once, and not when run alone', named(verdict.flaky)),
    ...block('differed once, and did not pass directly when run alone', named(verdict.unsteady)),
    ...block('outcomes, directly and through the shim', pairLines(comparison)),
    ...block('passed only through the shim', comparison.onlyThrough),
    ...block(
      'fail on both sides',
      comparison.failedBoth.map(({ name, reason }) => `${name}\n    ${cannotPass.get(name) ?? firstLine(reason)}`),
    ),
  ].join('\n');
}

function firstLine(text: string): string {
  return text.trim().split('\n', 1)[0] ?? '';
}
