import { families } from './families.ts';
import type { Description } from './family.ts';

/** The table of docs/metrics.md, made from the families: a test fails when the file has become old. */
export function metricsTable(): string {
  const rows = Object.values(families).map(
    ({ name, type, labels, help }: Description) =>
      `| \`${name}\` | ${type} | ${labels.length === 0 ? '' : labels.map((label) => `\`${label}\``).join(', ')} | ${help} |`,
  );
  return ['| metric | type | labels | meaning |', '|---|---|---|---|', ...rows].join('\n');
}
