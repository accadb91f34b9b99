import { createHash } from 'node:crypto';
import type { ReadinessReport } from '../../observe/index.ts';
import type { Overview } from '../../resize/index.ts';
import type { Answer } from '../answer.ts';
import { Html, html } from './html.ts';
import { podCard, podsTable } from './pods.ts';
import { historyTable, resizeCards } from './resizes.ts';
import { script } from './script.ts';
import { style } from './style.ts';

const hashOf = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** Allows the style and the script of the page, and its own address: no images, fonts, frames or other places. */
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

export interface PageParts {
  readonly version: string;
  readonly readiness: ReadinessReport;
  readonly overview: Overview;
  readonly now: Date;
}

/** What somebody asks the page for. */
export interface PageQuery {
  /** The sandbox id of the pod whose details are shown; empty: none. */
  readonly pod: string;
  /** Only pods whose name or sandbox id contains it. */
  readonly filter: string;
}

/** The parts of the page that change, by the id of their element. */
export type Sections = Readonly<Record<'state' | 'card' | 'pods' | 'history' | 'resizes', string>>;

/** Renders the parts of the page that change. */
export function sectionsOf(
  { version, readiness, overview, now }: PageParts,
  { pod, filter }: PageQuery,
): Readonly<Record<keyof Sections, Html>> {
  const { pods, recent, history } = overview;
  const failing = readiness.checks.filter(({ ready }) => !ready);
  const states =
    failing.length === 0
      ? stateLine(readiness)
      : failing.map(({ name, says }) => html`<p class="bad">${name}: ${says}</p>`);
  const isOfPod = (sandboxId: string): boolean => pod === '' || sandboxId === pod;
  const ofPod = recent.filter(({ sandboxId }) => isOfPod(sandboxId));
  return {
    state: html`<p class="dim">${version}, ${now.toISOString()}</p>${states}`,
    card: pod === '' ? html`` : cardOf(overview, pod),
    pods: podsTable(pods, filter),
    history: historyTable(history.filter((entry) => isOfPod(entry.pod.sandboxId))),
    resizes: resizeCards(pod === '' ? ofPod.slice(0, SHOWN_TIMELINES) : ofPod),
  };
}

/** The part `state` of a page that cannot be read now. */
export const failureSection = (says: string): string => html`<p class="bad">${says}</p>`.text;

function cardOf({ pods }: Overview, sandboxId: string): Html {
  const found = pods.find(({ pod }) => pod.sandboxId === sandboxId);
  const back = html`<p><a href="?" data-pod="">all pods</a></p>`;
  if (found === undefined) return html`${back}<p class="bad">the pod is not on this node, or no longer</p>`;
  return html`${back}${podCard(found)}`;
}

/** The page of the node: pods by pressure, the details of one, and resizes. */
export function pageAnswer(parts: PageParts, query: PageQuery = { pod: '', filter: '' }): Answer {
  return {
    status: 200,
    type: 'text/html; charset=utf-8',
    body: pageOf(parts, query).text,
    headers: {
      'content-security-policy': policy,
      'referrer-policy': 'no-referrer',
      'cross-origin-resource-policy': 'same-origin',
    },
  };
}

function pageOf(parts: PageParts, query: PageQuery): Html {
  const { state, card, pods, history, resizes } = sectionsOf(parts, query);
  return html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>cri-resize-shim</title>${styleElement}</head><body>
<header><h1>cri-resize-shim</h1><div id="state">${state}</div></header>
<main><h2>Pods</h2>
<form method="get" role="search"><label>filter <input type="search" name="q" value="${query.filter}" placeholder="namespace/name" autocomplete="off"></label>${query.pod === '' ? '' : html`<input type="hidden" name="pod" value="${query.pod}">`} <span id="count" class="dim">${countText(parts.overview.pods.length)}</span> <span id="live" class="dim" role="status"></span></form>
<div id="card">${card}</div>
<div id="pods">${pods}</div>
<h2>History</h2><div id="history">${history}</div>
<h2>Timelines</h2><div id="resizes">${resizes}</div>
</main>${scriptElement}</body></html>
`;
}

const countText = (count: number): string => `${count} pods`;

const stateLine = ({ passThrough }: ReadinessReport): Html =>
  passThrough === undefined
    ? html`<p>ready: the shim can resize pods</p>`
    : html`<p class="bad">intercept is off by configuration: every call is forwarded unchanged</p>`;
