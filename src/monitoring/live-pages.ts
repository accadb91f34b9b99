import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { ShimError, loggableError } from '../core/errors/index.ts';
import type { Budget, Log } from '../observe/index.ts';
import { type Answer, plain } from './answer.ts';
import type { MonitoringLimits } from './limits.ts';
import { type PageParts, type Sections, failureSection, sectionsOf } from './page/index.ts';

export interface LivePagesParts {
  /** Reads what the page shows. Rejects with ShimError. */
  readonly read: () => Promise<PageParts>;
  /** The same, as another page has read it a moment before. */
  readonly readCached: () => Promise<PageParts>;
  /** Calls `onResize` for each event of a resize, until the function that it returns is called. */
  readonly watchResizes: (onResize: () => void) => () => void;
  readonly refused: (budget: Budget) => void;
  /** Releases a connection from the limits of short ones. */
  readonly release: (socket: IncomingMessage['socket']) => void;
  readonly log: Log;
}

interface LivePage {
  readonly response: ServerResponse;
  /** The sandbox id of the pod whose details it shows. */
  readonly pod: string;
  /** What it has, by section. */
  readonly has: Map<string, string>;
}

/**
 * Sends the parts of open status pages that change, as server-sent events (HTML Living Standard, 9.2). All pages share one reading, which
 * nobody makes while none is open.
 */
export class LivePages {
  readonly #parts: LivePagesParts;
  readonly #limits: MonitoringLimits;
  readonly #pages = new Set<LivePage>();
  readonly #closing = new AbortController();
  #isUpdating = false;
  /** Resolves when the pages have to be updated, or the last one is closed. */
  #due = Promise.withResolvers<undefined>();

  constructor(parts: LivePagesParts, limits: MonitoringLimits) {
    this.#parts = parts;
    this.#limits = limits;
  }

  /** Answers a request with a stream. Returns a refusal if too many pages are open. */
  open(request: IncomingMessage, response: ServerResponse, pod: string): Answer | undefined {
    if (this.#pages.size >= this.#limits.streams) {
      this.#parts.refused('page_streams');
      return plain(503, `${this.#limits.streams} pages get live updates already: close one of them`);
    }
    const page = { response, pod, has: new Map<string, string>() };
    this.#pages.add(page);
    this.#parts.release(request.socket);
    response.once('close', () => {
      this.#pages.delete(page);
      if (this.#pages.size === 0) this.#due.resolve(undefined);
    });
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      // Otherwise a proxy such as nginx holds back what belongs to the page now.
      'x-accel-buffering': 'no',
    });
    void this.#update([page], this.#parts.readCached);
    if (!this.#isUpdating) void this.#updateUntilClosed();
    return undefined;
  }

  /** The number of open pages. */
  get size(): number {
    return this.#pages.size;
  }

  close(): void {
    this.#closing.abort();
    for (const { response } of this.#pages) response.destroy();
  }

  /** Updates all pages after each resize, and from time to time. Ends with the last page. Never rejects. */
  async #updateUntilClosed(): Promise<void> {
    const { streamMs, streamPauseMs } = this.#limits;
    this.#isUpdating = true;
    const stopWatching = this.#parts.watchResizes(() => this.#due.resolve(undefined));
    try {
      for (;;) {
        await Promise.race([this.#due.promise, this.#pause(streamMs)]);
        this.#due = Promise.withResolvers();
        if (this.#pages.size === 0) break;
        const begun = performance.now();
        await this.#update([...this.#pages], this.#parts.read);
        // A node with many pods is read half of the time at most.
        await this.#pause(Math.max(streamPauseMs, performance.now() - begun));
      }
    } catch (error) {
      if (!this.#closing.signal.aborted) throw error;
    } finally {
      stopWatching();
      this.#isUpdating = false;
    }
  }

  #pause(ms: number): Promise<void> {
    return delay(ms, undefined, { signal: this.#closing.signal, ref: false });
  }

  async #update(pages: readonly LivePage[], read: () => Promise<PageParts>): Promise<void> {
    const render = await this.#renderer(read);
    for (const page of pages) this.#send(page, render(page.pod));
  }

  /** Never rejects: a failure is shown by the page. Renders once for all pages that show the same pod. */
  async #renderer(read: () => Promise<PageParts>): Promise<(pod: string) => Partial<Sections>> {
    try {
      const parts = await read();
      const rendered = new Map<string, Sections>();
      return (pod) => {
        const sections = rendered.get(pod) ?? textsOf(parts, pod);
        rendered.set(pod, sections);
        return sections;
      };
    } catch (error) {
      if (!(error instanceof ShimError))
        this.#parts.log.error(loggableError(error), 'status page not updated because of an internal error');
      const says = error instanceof ShimError ? `${error.reason}: ${error.message}` : 'internal error; see the log';
      return () => ({ state: failureSection(says) });
    }
  }

  #send(page: LivePage, sections: Partial<Sections>): void {
    const { response, has } = page;
    const changed = Object.entries(sections).filter(([id, text]) => has.get(id) !== text);
    if (changed.length === 0 || response.destroyed) return;
    const text = `data: ${JSON.stringify(Object.fromEntries(changed))}\n\n`;
    const waiting = response.writableLength;
    // Its browser connects again, and then gets the present state alone.
    if (waiting > 0 && waiting + Buffer.byteLength(text) > this.#limits.streamBytes) {
      this.#parts.refused('page_updates');
      response.destroy();
      return;
    }
    response.write(text);
    for (const [id, sent] of changed) has.set(id, sent);
  }
}

function textsOf(parts: PageParts, pod: string): Sections {
  const { state, card, pods, history, resizes } = sectionsOf(parts, { pod, filter: '' });
  return { state: state.text, card: card.text, pods: pods.text, history: history.text, resizes: resizes.text };
}
