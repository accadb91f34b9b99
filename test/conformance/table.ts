import type { CampaignResult } from './campaign.ts';
import { cannotPass } from './known.ts';

/** Rows under a line of titles, in columns as wide as need be. */
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

/** Everything that a run found, for a person. */
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

/** What CI counts: specs that pass direct and through alike, and clients that got what they should. */
function countLine(results: readonly CampaignResult[]): string {
  let [good, bad] = [0, 0];
  for (const { comparison, verdict, checks } of results) {
    good += comparison.passedDirect - verdict.real.length + passed(checks);
    bad += verdict.real.length + checks.length - passed(checks);
  }
  return `conformance: ${good} passed, ${bad} failed`;
}

/** Whether nothing passes direct and fails through the shim, and all clients got what they should. */
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
    ...block('PASS DIRECT AND NOT THROUGH THE SHIM', named(verdict.real)),
    ...block(
      'CLIENTS THAT DID NOT GET WHAT THEY SHOULD',
      checks.flatMap(({ name, failure }) => (failure === null ? [] : [`${name}\n    ${indented(failure)}`])),
    ),
    ...block('differed once, and passed through the shim when run alone', named(verdict.flaky)),
    ...block('differed once, and did not pass direct when run alone', named(verdict.unsteady)),
    ...block('passed through the shim only', comparison.onlyThrough),
    ...block(
      'fail on both sides',
      comparison.failedBoth.map(({ name, reason }) => `${name}\n    ${cannotPass.get(name) ?? firstLine(reason)}`),
    ),
  ].join('\n');
}

function firstLine(text: string): string {
  return text.trim().split('\n', 1)[0] ?? '';
}
