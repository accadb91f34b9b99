import { setTimeout as delay } from 'node:timers/promises';
import type { WirePod } from '../../api/wire/index.ts';
import { parseDuration } from '../../config/index.ts';
import { steadyNow } from '../../core/concurrency/index.ts';
import type { ResizeClient } from '../client.ts';
import type { Output } from '../command-table/index.ts';
import { UsageError, findPod, fullName, objectText } from '../output/index.ts';
import { type Reading, type SortKey, figuresOf, sortKeys } from './figures.ts';
import { topObject, topTable } from './view.ts';

export interface TopOptions {
  readonly containers?: boolean;
  readonly sortBy?: string;
  readonly watch?: boolean;
  readonly interval?: string;
}

export interface TopContext {
  readonly client: Pick<ResizeClient, 'call'>;
  readonly output: Output;
  readonly namespace: string | undefined;
  readonly print: (text: string) => void;
  /** Rows of the terminal; undefined if stdout is none. */
  readonly screenRows: () => number | undefined;
}

/** How long CPU use is measured, in milliseconds. */
const SAMPLE_MS = 1000;
const DEFAULT_INTERVAL_MS = 2000;
/** From the top left, and nothing of the earlier figures below. */
const CLEAR = '\u001b[H\u001b[2J';

/** `resizectl top`: once, or with --watch until it is interrupted or the reader of its output ends. */
export async function top(context: TopContext, texts: readonly string[], options: TopOptions): Promise<void> {
  const intervalMs = intervalOf(options.interval);
  const by = sortKeyOf(options.sortBy);
  let before = await readingOf(context, texts);
  await delay(SAMPLE_MS);
  for (;;) {
    const now = await readingOf(context, texts);
    show(context, before, now, { by, ...options });
    if (options.watch !== true) return;
    before = now;
    await delay(intervalMs);
  }
}

function show(
  { output, print, screenRows }: TopContext,
  before: Reading,
  now: Reading,
  { by, containers = false, watch = false }: TopOptions & { readonly by: SortKey },
): void {
  const pods = figuresOf(before, now, by);
  if (output === 'name') print(pods.map(({ identity }) => `${fullName(identity)}\n`).join(''));
  else if (output !== 'table') print(objectText(topObject(pods), output, watch));
  else {
    const text = topTable(pods, containers);
    const rows = watch ? screenRows() : undefined;
    if (rows === undefined) print(`${text}${watch ? '\n' : ''}`);
    else
      print(
        `${CLEAR}${text
          .split('\n')
          .slice(0, Math.max(2, rows) - 1)
          .join('\n')}\n`,
      );
  }
}

async function readingOf({ client, namespace }: TopContext, texts: readonly string[]): Promise<Reading> {
  const at = steadyNow();
  const { pods } =
    texts.length === 0 ? await client.call('ListPods', {}) : { pods: await podsOf({ client, namespace }, texts) };
  return { at, pods: pods.filter(({ identity }) => namespace === undefined || identity.namespace === namespace) };
}

const podsOf = (context: Pick<TopContext, 'client' | 'namespace'>, texts: readonly string[]): Promise<WirePod[]> =>
  Promise.all(
    texts.map(async (text) => (await context.client.call('GetPod', { pod: await findPod(context, text) })).pod),
  );

function intervalOf(text: string | undefined): number {
  if (text === undefined) return DEFAULT_INTERVAL_MS;
  const ms = parseDuration(text);
  if (ms === undefined || ms < 100)
    throw new UsageError(`--interval: invalid duration ${JSON.stringify(text)}: expected 100ms or more, such as 2s`);
  return ms;
}

function sortKeyOf(text = 'pressure'): SortKey {
  const found = sortKeys.find((key) => key === text);
  if (found === undefined)
    throw new UsageError(`--sort-by: invalid key ${JSON.stringify(text)}: expected ${sortKeys.join(', ')}`);
  return found;
}
