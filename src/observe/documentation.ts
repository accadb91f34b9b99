import { families } from './families.ts';
import type { Description } from './family.ts';

/** Returns the table of docs/metrics.md, generated from the families. A test compares it with the file. */
export function metricsTable(): string {
  const rows = Object.values(families).map(
    ({ name, type, labels, help }: Description) =>
      `| \`${name}\` | ${type} | ${labels.length === 0 ? '' : labels.map((label) => `\`${label}\``).join(', ')} | ${help} |`,
  );
  return ['| metric | type | labels | meaning |', '|---|---|---|---|', ...rows].join('\n');
}
