import { type Description, type Family, type Series, bounds } from '../observe/index.ts';

/** The content type of Prometheus' text format. */
export const expositionType = 'text/plain; version=0.0.4; charset=utf-8';

/**
 * Formats families in Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats). A family without
 * series appears with its help and type.
 */
export function expositionOf(families: Iterable<Family>): string {
  const lines: string[] = [];
  for (const family of families) {
    const { description } = family;
    const { name, type, help } = description;
    lines.push(`# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}`, `# TYPE ${name} ${type}`);
    for (const series of family.series()) lines.push(...linesOf(description, series));
  }
  return `${lines.join('\n')}\n`;
}

function linesOf({ name, labels }: Description, series: Series): string[] {
  const pairs = labels.map((label, index): Pair => [label, series.labels[index] ?? '']);
  if (series.kind === 'number') return [`${name}${braced(pairs)} ${numberText(series.value)}`];
  let upTo = 0;
  const buckets = bounds.map((bound, index) => {
    upTo += series.counts[index] ?? 0;
    return `${name}_bucket${braced([...pairs, ['le', String(bound)]])} ${upTo}`;
  });
  return [
    ...buckets,
    `${name}_bucket${braced([...pairs, ['le', '+Inf']])} ${series.count}`,
    `${name}_sum${braced(pairs)} ${numberText(series.sum)}`,
    `${name}_count${braced(pairs)} ${series.count}`,
  ];
}

type Pair = readonly [label: string, value: string];

const braced = (pairs: readonly Pair[]): string =>
  pairs.length === 0 ? '' : `{${pairs.map(([label, value]) => `${label}="${escaped(value)}"`).join(',')}}`;

const escaped = (value: string): string =>
  value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');

/** Rounds fractions to nanoseconds, the resolution of the measured times. */
const numberText = (value: number): string => String(Number.isInteger(value) ? value : Number(value.toFixed(9)));
