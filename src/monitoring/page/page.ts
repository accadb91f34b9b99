import { createHash } from 'node:crypto';
import type { ReadinessReport } from '../../core/index.ts';
import type { Overview } from '../../sandbox/index.ts';
import type { Answer } from '../answer.ts';
import { script, style } from './assets.ts';
import { Html, html } from './html.ts';
import { type PodRow, podCard, podRows, podsTable } from './pods.ts';
import { historyTable, resizeCards } from './resizes.ts';

const hashOf = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** Content security policy: the page's own style and script, and requests to its own origin; nothing else. */
const policy = [
  "default-src 'none'",
  `style-src ${hashOf(style)}`,
  `script-src ${hashOf(script)}`,
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ');

/** Constant text, which needs no escaping. */
const styleElement = new Html(`<style>${style}</style>`);
const scriptElement = new Html(`<script>${script}</script>`);

/** Timelines on the page without a pod: a busy node has resizes all the time. */
const SHOWN_TIMELINES = 10;

export interface PageOptions {
  readonly version: string;
  readonly readiness: ReadinessReport;
  readonly overview: Overview;
  readonly now: Date;
}

/** A request for the page. */
export interface PageQuery {
  /** The sandbox id of the pod whose details are shown; empty: none. */
  readonly pod: string;
  /** Filter: only pods whose name or sandbox id contains this text. */
  readonly filter: string;
}

/** The sections of the page that change, as markup, by the id of their element. */
export type Sections = Readonly<Record<'state' | 'card' | 'pods' | 'history' | 'resizes', string>>;

/** Answers to `/` that are cached for one reading. */
const CACHED_ANSWERS = 8;

/** The page of one reading of the node: pods by pressure, the details of one, and resizes. Renders nothing twice. */
export class NodePage {
  readonly #sections = new Map<string, Sections>();
  readonly #answers = new Map<string, Answer>();
  readonly #state: string;
  #allPods: string | undefined;

  private constructor(
    private readonly options: PageOptions,
    private readonly rows: readonly PodRow[],
  ) {
    this.#state = stateOf(options).text;
  }

  /** Renders the table of pods, in several turns of the event loop. */
  static async of(options: PageOptions): Promise<NodePage> {
    return new NodePage(options, await podRows(options.overview.pods));
  }

  /** Returns the sections of the page that change. @param pod sandbox id of the detailed pod, empty if none */
  sections(pod: string): Sections {
    return cachedIn(this.#sections, pod, () => {
      const { overview } = this.options;
      return {
        state: this.#state,
        card: pod === '' ? '' : cardOf(overview, pod).text,
        pods: (this.#allPods ??= podsTable(this.rows, '').text),
        history: historyOf(overview, pod).text,
        resizes: timelinesOf(overview, pod).text,
      };
    });
  }

  /** Returns the whole page. */
  answer(query: PageQuery): Answer {
    return cachedIn(this.#answers, JSON.stringify([query.pod, query.filter]), () => {
      const sections = this.sections(query.pod);
      const pods = query.filter === '' ? sections.pods : podsTable(this.rows, query.filter).text;
      const text = pageOf({ ...sections, pods }, query, this.rows.length).text;
      // As bytes, which all connections share.
      return { status: 200, type: 'text/html; charset=utf-8', body: Buffer.from(text), headers };
    });
  }
}

/** Returns the cached value of a key, or makes it and removes the oldest value if there are too many. */
function cachedIn<Value>(cache: Map<string, Value>, key: string, make: () => Value): Value {
  const value = cache.get(key) ?? make();
  cache.delete(key);
  cache.set(key, value);
  const [oldest] = cache.keys();
  if (cache.size > CACHED_ANSWERS && oldest !== undefined) cache.delete(oldest);
  return value;
}

function stateOf({ version, readiness, now }: PageOptions): Html {
  const failing = readiness.checks.filter(({ ready }) => !ready);
  const states =
    failing.length === 0
      ? stateLine(readiness)
      : failing.map(({ name, says }) => html`<p class="bad">${name}: ${says}</p>`);
  return html`<p class="dim">${version}, ${now.toISOString()}</p>${states}`;
}

/** The part `state` of a page that cannot be read now. */
export const failureSection = (says: string): string => html`<p class="bad">${says}</p>`.text;

function cardOf({ pods }: Overview, sandboxId: string): Html {
  const found = pods.find(({ pod }) => pod.sandboxId === sandboxId);
  const back = html`<p><a href="?" data-pod="">all pods</a></p>`;
  if (found === undefined) return html`${back}<p class="bad">the pod is not on this node, or no longer</p>`;
  return html`${back}${podCard(found)}`;
}

/** Returns a pod's own history, which is longer than its part of the node's. Uses the node's for a pod that is gone. */
function historyOf({ pods, history }: Overview, sandboxId: string): Html {
  if (sandboxId === '') return historyTable(history, NONE);
  const found = pods.find(({ pod }) => pod.sandboxId === sandboxId);
  if (found !== undefined) return historyTable(found.history, NONE);
  return historyTable(
    history.filter(({ pod }) => pod.sandboxId === sandboxId),
    NONE_RECENT,
  );
}

function timelinesOf({ recent }: Overview, pod: string): Html {
  if (pod === '') return resizeCards(recent.slice(0, SHOWN_TIMELINES), NONE);
  return resizeCards(
    recent.filter(({ sandboxId }) => sandboxId === pod),
    NONE_RECENT,
  );
}

const NONE = 'none since the start of the shim';
const NONE_RECENT = 'none among the last resizes of the node';

const headers = {
  'content-security-policy': policy,
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
} as const;

function pageOf(sections: Sections, query: PageQuery, count: number): Html {
  return html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>cri-resize-shim</title>${styleElement}</head><body>
<header><h1>cri-resize-shim</h1><div id="state">${new Html(sections.state)}</div></header>
<main><h2>Pods</h2>
<form method="get" role="search"><label>filter <input type="search" name="q" value="${query.filter}" placeholder="namespace/name" autocomplete="off"></label>${query.pod === '' ? '' : html`<input type="hidden" name="pod" value="${query.pod}">`} <span id="count" class="dim">${countText(count)}</span> <span id="live" class="dim" role="status"></span></form>
<div id="card">${new Html(sections.card)}</div>
<div id="pods">${new Html(sections.pods)}</div>
<h2>History</h2><div id="history">${new Html(sections.history)}</div>
<h2>Timelines</h2><div id="resizes">${new Html(sections.resizes)}</div>
</main>${scriptElement}</body></html>
`;
}

const countText = (count: number): string => `${count} pods`;

const stateLine = ({ passThrough }: ReadinessReport): Html =>
  passThrough === undefined
    ? html`<p>ready: the shim can resize pods</p>`
    : html`<p class="bad">intercept is off by configuration: every call is forwarded unchanged</p>`;
