/** One metric family as Prometheus reads it. */
export interface ScrapedFamily {
  readonly help: string;
  readonly type: string;
  readonly samples: {
    readonly name: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly value: number;
  }[];
}

/**
 * Parses Prometheus' text format strictly. Throws for an invalid line, a sample before its TYPE, a duplicate family,
 * and a duplicate series.
 */
export function readMetrics(text: string): ReadonlyMap<string, ScrapedFamily> {
  const families = new Map<string, ScrapedFamily>();
  const series = new Set<string>();
  let current: { name: string; family: ScrapedFamily } | undefined;
  if (!text.endsWith('\n')) throw new Error('no line feed at the end');
  const lines = text.slice(0, -1).split('\n');
  for (const [index, line] of lines.entries()) {
    const [, name = '', help] = /^# HELP ([a-zA-Z_:][\w:]*) (.+)$/.exec(line) ?? [];
    if (help !== undefined) {
      const [, typed, type = ''] = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(lines[index + 1] ?? '') ?? [];
      if (typed !== name || families.has(name)) throw new Error(`no family starts with: ${line}`);
      current = { name, family: { help, type, samples: [] } };
      families.set(name, current.family);
      continue;
    }
    if (line.startsWith('# TYPE ')) continue;
    const [, sample = '', labels = '', value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (value === undefined || Number.isNaN(Number(value))) throw new Error(`no sample: ${line}`);
    if (current === undefined || !belongs(sample, current.name, current.family.type))
      throw new Error(`astray: ${line}`);
    const key = line.slice(0, line.lastIndexOf(' '));
    if (series.has(key)) throw new Error(`twice: ${key}`);
    series.add(key);
    current.family.samples.push({ name: sample, labels: readLabels(labels), value: Number(value) });
  }
  return families;
}

function belongs(sample: string, family: string, type: string): boolean {
  if (type !== 'histogram') return sample === family;
  return ['_bucket', '_sum', '_count'].some((end) => sample === family + end);
}

function readLabels(text: string): Record<string, string> {
  const pairs = [...text.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/g)];
  if (pairs.map(([whole]) => whole).join('') !== text) throw new Error(`no labels: ${text}`);
  return Object.fromEntries(pairs.map(([, name = '', value = '']) => [name, value]));
}
