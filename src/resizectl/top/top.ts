import { setTimeout as delay } from 'node:timers/promises';
import type { WirePod, WirePodRef } from '../../api/wire/index.ts';
import { parseDuration } from '../../config/index.ts';
import { steadyNow } from '../../core/concurrency/index.ts';
import { Reason, isServiceError } from '../../core/errors/index.ts';
import type { ResizeClient } from '../client.ts';
import type { Output } from '../command-table/index.ts';
import { UsageError, errorInfoOf, findPod, fullName, objectText, printable } from '../output/index.ts';
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
  /** Writes a line to stderr. */
  readonly say: (line: string) => void;
  /** Rows of the terminal; undefined if stdout is none. */
  readonly screenRows: () => number | undefined;
}

/** How long CPU use is measured, in milliseconds. */
const SAMPLE_MS = 1000;
const DEFAULT_INTERVAL_MS = 2000;
/** From the top left, and nothing of the earlier figures below. */
const CLEAR = '\u001b[H\u001b[2J';

/**
 * `resizectl top`: once, or with --watch until it is interrupted, the reader of its output ends, or the last of the named pods has ended.
 */
export async function top(context: TopContext, texts: readonly string[], options: TopOptions): Promise<void> {
  const intervalMs = intervalOf(options.interval);
  const by = sortKeyOf(options.sortBy);
  const named = texts.length === 0 ? undefined : new NamedPods(context, await refsOf(context, texts));
  const read = async (): Promise<Reading> => {
    const at = steadyNow();
    return { at, pods: await (named?.read() ?? allPods(context)) };
  };
  let before = await read();
  await delay(SAMPLE_MS);
  for (;;) {
    const now = await read();
    if (named?.areGone === true) return;
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

async function allPods({ client, namespace }: TopContext): Promise<readonly WirePod[]> {
  const { pods } = await client.call('ListPods', {});
  return pods.filter(({ identity }) => namespace === undefined || identity.namespace === namespace);
}

/** Finds each pod once: what ends later is not taken for a misspelled name. Rejects with UsageError. */
const refsOf = (context: TopContext, texts: readonly string[]): Promise<NamedPod[]> =>
  Promise.all(texts.map(async (text) => ({ text, ref: await findPod(context, text) })));

interface NamedPod {
  /** As the user has named it. */
  readonly text: string;
  readonly ref: WirePodRef;
}

/** The pods that the user has named. One that ends is reported once, and read no more. */
class NamedPods {
  #left: readonly NamedPod[];
  #wereRead = false;

  constructor(
    readonly context: Pick<TopContext, 'client' | 'say'>,
    pods: readonly NamedPod[],
  ) {
    this.#left = pods;
  }

  get areGone(): boolean {
    return this.#left.length === 0;
  }

  /** Rejects if a pod is not there the first time. */
  async read(): Promise<readonly WirePod[]> {
    const found = await Promise.all(this.#left.map(async (named) => ({ named, pod: await this.#pod(named) })));
    this.#wereRead = true;
    this.#left = found.flatMap(({ named, pod }) => (pod === undefined ? [] : [named]));
    return found.flatMap(({ pod }) => (pod === undefined ? [] : [pod]));
  }

  async #pod({ text, ref }: NamedPod): Promise<WirePod | undefined> {
    const { client, say } = this.context;
    try {
      return (await client.call('GetPod', { pod: ref })).pod;
    } catch (error) {
      const isGone = isServiceError(error) && errorInfoOf(error)?.reason === Reason.UNKNOWN_POD;
      if (!this.#wereRead || !isGone) throw error;
      say(`pod ${printable(text)} has ended`);
      return undefined;
    }
  }
}

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
