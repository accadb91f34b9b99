import { join } from 'node:path';
import { cacheRoot } from '../../tools/download/places.ts';
import type { Progress } from '../../tools/download/progress.ts';
import type { PackagedPart } from '../support/node/parts/packaged.ts';
import { keep, obtainPackaged, of } from '../support/node/parts/packaged.ts';

/** Metrics and labels of a PromQL expression. {@link namesIn} parses as much of PromQL as deploy/ uses. */
export interface Named {
  readonly metrics: readonly string[];
  readonly labels: readonly string[];
}

const words = new Set(
  (
    'and or unless on by without ignoring bool offset sum count min max avg topk rate increase changes time ' +
    'histogram_quantile min_over_time max_over_time group clamp_min label_replace absent'
  ).split(' '),
);

export function namesIn(expression: string): Named {
  const labels: string[] = [];
  const metrics: string[] = [];
  const rest = expression
    .replace(/"(?:[^"\\]|\\.)*"/g, '""')
    .replace(/\{([^}]*)\}/g, (_, inside: string) => {
      labels.push(...[...inside.matchAll(/([a-z_]+)\s*(?:=~|!~|!=|=)/g)].map(([, label]) => label!));
      return ' ';
    })
    .replace(/\[[^\]]*\]/g, ' ')
    .replace(/\b(?:by|without|on|ignoring)\s*\(([^)]*)\)/g, (_, inside: string) => {
      labels.push(...inside.split(',').map((label) => label.trim()));
      return ' ';
    });
  for (const [word] of rest.matchAll(/[a-zA-Z_:][\w:]*/g)) if (!words.has(word)) metrics.push(word);
  return { metrics, labels };
}

/** The program of Debian's prometheus that checks and tests rules. It links only to the C library. */
const promtoolPart: PackagedPart = {
  name: 'promtool',
  packages: [...of('bookworm', 'prometheus')],
  revision: 1,
  arrange: (unpacked, folder) => keep(unpacked, ['usr/bin/promtool'], join(folder, 'bin')),
};

/** Returns the path of the program, in the cache of the test node's parts. */
export async function preparePromtool(progress: Progress): Promise<string> {
  const [{ folder }] = await obtainPackaged(cacheRoot(), [promtoolPart], progress);
  return join(folder, 'bin/promtool');
}
