import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import { type Budget, type ConnectionLimits, type Log, loggableError, ShimError } from '../core/index.ts';
import { type Answer, plain } from './answer.ts';
import type { MonitoringLimits } from './limits.ts';
import { failureSection, type NodePage, type Sections } from './page/page.ts';

export interface LivePagesOptions extends Pick<ConnectionLimits, 'admit' | 'release'> {
  /** Reads what the page shows. Rejects with ShimError, or with the signal's reason once it aborts. */
  readonly read: (signal: AbortSignal) => Promise<NodePage>;
  /** Returns content that another page has just read, or reads it. Rejects like `read`. */
  readonly readCached: (signal: AbortSignal) => Promise<NodePage>;
  /** Calls `onResize` for each event of a resize, until the function that it returns is called. */
  readonly watchResizes: (onResize: () => void) => () => void;
  readonly refused: (budget: Budget) => void;
  readonly log: Log;
}

interface LivePage {
  readonly response: ServerResponse;
  readonly socket: IncomingMessage['socket'];
  /** The sandbox id of the pod whose details it shows. */
  readonly pod: string;
  /** Its present content, by section. */
  readonly has: Map<string, string>;
  readonly openedAt: number;
  /** Aborts when it is closed. */
  readonly closed: AbortController;
  /** Bytes that were sent to the page. */
  sent: number;
  /** The part of them that its client had read at the time `movedAt`. */
  taken: number;
  movedAt: number;
}

/**
 * Sends the changed parts of open status pages as server-sent events (HTML Living Standard, 9.2). All pages share one
 * reading, which is made only while a page is open.
 */
export class LivePages {
  readonly #pages = new Set<LivePage>();
  readonly #closing = new AbortController();
  #isUpdating = false;
  /** Resolves when the pages have to be updated, or when the last page is closed. */
  #due = Promise.withResolvers<undefined>();
  /** Aborts when the last page is closed: the reading for all pages is no longer needed. */
  #unread = new AbortController();

  constructor(
    private readonly options: LivePagesOptions,
    private readonly limits: MonitoringLimits,
  ) {}

  /** Answers with a stream, ending the oldest if there are too many. Refuses a page of another site. */
  open(request: IncomingMessage, response: ServerResponse, pod: string): Answer | undefined {
    // Browsers say where a request comes from (Fetch Metadata, W3C): `none` is the user.
    const site = request.headers['sec-fetch-site'] ?? 'none';
    if (site !== 'none' && site !== 'same-origin') return plain(403, 'live updates are for the status page alone');
    // The client may have disconnected while the token was read: no event reports it afterwards.
    if (request.socket.destroyed || response.closed) return undefined;
    response.writeHead(200, streamHeaders);
    if (request.method === 'HEAD') response.end();
    else this.#start(request, response, pod);
    return undefined;
  }

  #start({ socket }: IncomingMessage, response: ServerResponse, pod: string): void {
    const [oldest] = this.#pages;
    if (this.#pages.size >= this.limits.streams && oldest !== undefined) {
      this.options.refused('page_streams');
      this.#end(oldest, this.limits.streamRetryMs);
    }
    const now = performance.now();
    const page = {
      response,
      socket,
      pod,
      has: new Map<string, string>(),
      openedAt: now,
      closed: new AbortController(),
      sent: 0,
      taken: 0,
      movedAt: now,
    };
    this.#pages.add(page);
    this.options.release(socket);
    response.once('close', () => this.#remove(page));
    void this.#update([page], this.options.readCached, page.closed.signal);
    if (!this.#isUpdating) void this.#updateUntilClosed();
  }

  #remove(page: LivePage): void {
    this.#pages.delete(page);
    page.closed.abort();
    if (this.#pages.size > 0) return;
    this.#unread.abort();
    this.#due.resolve(undefined);
  }

  /** Ends a stream. Its browser connects again. */
  #end(page: LivePage, retryMs?: number): void {
    this.#remove(page);
    const { response, socket } = page;
    if (response.writableLength > 0) {
      response.destroy();
      return;
    }
    this.options.admit(socket);
    response.end(retryMs === undefined ? '' : `retry: ${retryMs}\n\n`);
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
    const { streamMs, streamPauseMs } = this.limits;
    this.#isUpdating = true;
    let stopWatching: (() => void) | undefined;
    try {
      stopWatching = this.options.watchResizes(() => this.#due.resolve(undefined));
      for (;;) {
        await Promise.race([this.#due.promise, this.#pause(streamMs)]);
        this.#due = Promise.withResolvers();
        if (this.#pages.size === 0) break;
        const begun = performance.now();
        this.#unread = new AbortController();
        await this.#update([...this.#pages], this.options.read, this.#unread.signal);
        // A node with many pods is read half of the time at most.
        await this.#pause(Math.max(streamPauseMs, performance.now() - begun));
      }
    } catch (error) {
      if (!this.#closing.signal.aborted) this.#logError(error);
    } finally {
      stopWatching?.();
      this.#isUpdating = false;
    }
  }

  #logError(error: unknown): void {
    this.options.log.error(loggableError(error), 'status page not updated because of an internal error');
  }

  #pause(ms: number): Promise<void> {
    return delay(ms, undefined, { signal: this.#closing.signal, ref: false });
  }

  /** Updates pages. Never rejects: the page shows a failure. */
  async #update(pages: readonly LivePage[], read: LivePagesOptions['read'], signal: AbortSignal): Promise<void> {
    const sections = await this.#sections(read, signal);
    for (const page of pages) {
      this.#send(page, sections(page.pod));
      // Others have their turn: pages may show different pods.
      await nextTurn();
    }
  }

  /** Reads the sections of pages. Neither this nor the returned function throws or rejects. */
  async #sections(read: LivePagesOptions['read'], signal: AbortSignal): Promise<(pod: string) => Partial<Sections>> {
    const failed = (error: unknown): Partial<Sections> => {
      if (signal.aborted && error === signal.reason) return {};
      if (error instanceof ShimError) return { state: failureSection(`${error.reason}: ${error.message}`) };
      this.#logError(error);
      return { state: failureSection('internal error; see the log') };
    };
    try {
      const rendered = await read(signal);
      return (pod) => {
        try {
          return rendered.sections(pod);
        } catch (error) {
          return failed(error);
        }
      };
    } catch (error) {
      const sections = failed(error);
      return () => sections;
    }
  }

  #send(page: LivePage, sections: Partial<Sections>): void {
    const { response, has, openedAt } = page;
    if (!this.#pages.has(page) || response.destroyed) return;
    const now = performance.now();
    if (now - openedAt >= this.limits.streamAgeMs) {
      this.#end(page);
      return;
    }
    const changed = Object.entries(sections).filter(([id, text]) => has.get(id) !== text);
    const text = changed.length === 0 ? '' : `data: ${JSON.stringify(Object.fromEntries(changed))}\n\n`;
    // Its browser connects again, and then gets the present state alone.
    if (this.#isStuck(page, now) || this.#hasTooMuch(response, Buffer.byteLength(text))) {
      this.options.refused('page_updates');
      response.destroy();
      return;
    }
    if (text === '') return;
    response.write(text);
    page.sent += Buffer.byteLength(text);
    for (const [id, sent] of changed) has.set(id, sent);
  }

  #hasTooMuch({ writableLength: waiting }: ServerResponse, more: number): boolean {
    return waiting > 0 && waiting + more > this.limits.streamBytes;
  }

  /** Whether bytes wait and the client has read nothing for the interval of an update. */
  #isStuck(page: LivePage, now: number): boolean {
    const waiting = page.response.writableLength;
    const taken = page.sent - waiting;
    if (waiting === 0 || taken > page.taken) Object.assign(page, { taken, movedAt: now });
    return now - page.movedAt >= this.limits.streamMs;
  }
}

const streamHeaders = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  // Otherwise a proxy such as nginx buffers the updates.
  'x-accel-buffering': 'no',
  connection: 'close',
} as const;
