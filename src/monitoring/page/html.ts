import { type Bytes, type CpuMax, type Limit, roundedSizeWithUnit } from '../../core/index.ts';
import { formatCpuLimit } from '../../sandbox/index.ts';

/** Markup with all inserted values escaped. */
export class Html {
  constructor(readonly text: string) {}
}

type Part = string | number | Html | readonly Part[];

/** Template tag for markup. Escapes text and double-quoted attributes, except {@link Html} values and lists. */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  const [first = '', ...rest] = strings;
  return new Html(rest.reduce((text, next, index) => text + markup(parts[index] ?? '') + next, first));
}

function markup(part: Part): string {
  if (part instanceof Html) return part.text;
  if (typeof part === 'object') return part.map(markup).join('');
  return escaped(String(part));
}

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};
const escaped = (text: string): string => text.replace(/[&<>"']/g, (character) => entities[character] ?? '');

/** Formats a limit in bytes: `12.3 MiB`, `no limit`. */
export const sizeText = (limit: Limit<Bytes> | number): string =>
  limit === 'max' ? 'no limit' : roundedSizeWithUnit(limit);

/** Formats CPUs as in Kubernetes: `500m`, `2`. */
export const cpuText = (cpu: CpuMax): string => (cpu.quota === 'max' ? 'no limit' : formatCpuLimit(cpu));
