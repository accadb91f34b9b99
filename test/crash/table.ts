import type { ScenarioReport } from './campaign.ts';

/** Returns a readable table of scenarios with the numbers of their points. */
export function crashTable(title: string, scenarios: readonly ScenarioReport[]): string {
  const rows = scenarios.map(({ name, points, recoveries, failures, seconds }) => [
    name,
    String(points.length),
    String(recoveries.length),
    String(failures.length),
    `${seconds} s`,
  ]);
  const sum = (of: (scenario: ScenarioReport) => number): string =>
    String(scenarios.reduce((all, scenario) => all + of(scenario), 0));
  const all = [
    `${scenarios.length} scenarios`,
    sum(({ points }) => points.length),
    sum(({ recoveries }) => recoveries.length),
    sum(({ failures }) => failures.length),
    `${sum(({ seconds }) => seconds)} s`,
  ];
  const lines = [[title, 'points', 'in recovery', 'failed', 'time'], ...rows, all];
  const widths = [0, 1, 2, 3, 4].map((column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
        .join('  '),
    )
    .join('\n');
}
