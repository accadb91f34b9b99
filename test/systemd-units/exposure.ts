/** The result of `systemd-analyze security` for a service. */
export interface Analysis {
  /** The overall exposure, from 0 (none) to 10. */
  readonly exposure: number;
  /** The points that raise the exposure. */
  readonly open: readonly OpenPoint[];
}

export interface OpenPoint {
  readonly name: string;
  readonly description: string;
  readonly exposure: string;
}

/**
 * @param list the output with --json=short
 * @param summary the output as text, which has the overall exposure
 */
export function analysisOf(list: string, summary: string): Analysis {
  const [, exposure] = /Overall exposure level for \S+: ([\d.]+)/.exec(summary) ?? [];
  if (exposure === undefined) throw new Error(`no overall exposure in: ${summary}`);
  const points = JSON.parse(list) as readonly { name: string; description: string; exposure: string | null }[];
  const open = points.flatMap((point) => (point.exposure === null ? [] : [{ ...point, exposure: point.exposure }]));
  return {
    exposure: Number(exposure),
    open: open.map(({ name, description, exposure: by }) => ({ name, description, exposure: by })),
  };
}

const rowOf = ({ name, exposure }: OpenPoint): string => `| \`${name.replaceAll('|', '\\|')}\` | ${exposure} |`;

/** Returns the faults of a page that has to have `Exposure: **3.1**` and a row with a reason for each open point. */
export function compare(page: string, { exposure, open }: Analysis): readonly string[] {
  const faults: string[] = [];
  const documented = Number(/Exposure: \*\*([\d.]+)\*\*/.exec(page)?.[1]);
  if (exposure > documented || Number.isNaN(documented))
    faults.push(`the exposure is ${exposure}, and docs/units.md says ${documented}`);
  if (exposure < documented)
    faults.push(`the exposure has fallen to ${exposure}: docs/units.md still says ${documented}`);
  for (const point of open) {
    const row = page.split('\n').find((line) => line.startsWith(rowOf(point)));
    const reason = row?.slice(rowOf(point).length).replaceAll('|', '').trim() ?? '';
    if (reason === '') faults.push(`docs/units.md has no reason why ${point.name} stays open (${point.description})`);
  }
  const rows = page.split('\n').filter((line) => /^\| `[^`]+` \| [\d.]+ \|/.test(line));
  for (const row of rows)
    if (!open.some((point) => row.startsWith(rowOf(point)))) faults.push(`docs/units.md: not open any more: ${row}`);
  return faults;
}

/** Returns the page with the current exposure and open points. Existing reasons stay. */
export function withPoints(page: string, { exposure, open }: Analysis): string {
  const reasons = new Map(
    [...page.matchAll(/^\| (`[^`]+`) \| [\d.]+ \|(.*)\|$/gm)].map(([, name = '', reason = '']) => [
      name,
      reason.trim(),
    ]),
  );
  const rows = [...open]
    .sort((a, b) => Number(b.exposure) - Number(a.exposure) || (a.name < b.name ? -1 : 1))
    .map((point) => `${rowOf(point)} ${reasons.get(`\`${point.name}\``) ?? ''} |`);
  return page
    .replace(/Exposure: \*\*[\d.]*\*\*/, `Exposure: **${exposure}**`)
    .replace(
      /^\| open \| exposure \| why \|\n\|---\|---\|---\|(?:\n\|.*)*/m,
      ['| open | exposure | why |', '|---|---|---|', ...rows].join('\n'),
    );
}
