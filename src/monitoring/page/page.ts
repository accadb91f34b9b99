import { createHash } from 'node:crypto';
import type { ReadinessReport } from '../../observe/index.ts';
import { type Bytes, type Limit, roundedDuration } from '../../core/quantities/index.ts';
import { fullName } from '../../sandbox/index.ts';
import type { Answer } from '../answer.ts';
import { cpuText, sizeText } from './amounts.ts';
import { Html, html } from './html.ts';
import { stepText } from './step.ts';
import { style } from './style.ts';
import { timeline } from './timeline.ts';
import {
  type ActualValues,
  type HistoryEntry,
  type Overview,
  type PodSummary,
  type RecentResize,
  requesterText,
} from '../../resize/index.ts';

/** Allows only the style: no scripts, images, fonts, frames or forms. */
const policy = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'`,
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/** Constant text, which needs no escaping. */
const styleElement = new Html(`<style>${style}</style>`);

export interface PageParts {
  readonly version: string;
  readonly readiness: ReadinessReport;
  readonly overview: Overview;
  readonly now: Date;
}

/** The overview page of the node: pods with limits and usage, and recent resizes. */
export function pageAnswer(parts: PageParts): Answer {
  return {
    status: 200,
    type: 'text/html; charset=utf-8',
    body: pageOf(parts).text,
    headers: {
      'content-security-policy': policy,
      'referrer-policy': 'no-referrer',
      'cross-origin-resource-policy': 'same-origin',
    },
  };
}

function pageOf({ version, readiness, overview, now }: PageParts): Html {
  const { pods, recent, history } = overview;
  const failing = readiness.checks.filter(({ ready }) => !ready);
  const sorted = [...pods].sort((a, b) => (fullName(a.pod) < fullName(b.pod) ? -1 : 1));
  return html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>cri-resize-shim</title>${styleElement}</head><body>
<header><h1>cri-resize-shim</h1>
<p class="dim">${version}, ${now.toISOString()}</p>
${failing.length === 0 ? stateLine(readiness) : failing.map(({ name, says }) => html`<p class="bad">${name}: ${says}</p>`)}</header>
<main><h2>Pods</h2>
${sorted.length === 0 ? html`<p>none on this node</p>` : html`<div class="grid">${sorted.map(podCard)}</div>`}
${history.length === 0 ? '' : html`<h2>History</h2>${historyTable(history)}`}<h2>Resizes</h2>
${recent.length === 0 ? html`<p>none since the start of the shim</p>` : html`<div class="grid">${recent.map(resizeCard)}</div>`}
</main></body></html>
`;
}

const stateLine = ({ passThrough }: ReadinessReport): Html =>
  passThrough === undefined
    ? html`<p>ready: the shim can resize pods</p>`
    : html`<p class="bad">intercept is off by configuration: every call is forwarded unchanged</p>`;

function podCard(glance: PodSummary): Html {
  const { pod, view } = glance;
  const title = html`<h3>${fullName(pod)}</h3><p class="dim">${pod.sandboxId.slice(0, 13)}</p>`;
  if (!('limits' in view)) return html`<article>${title}<p class="bad">${view.reason}: ${view.message}</p></article>`;
  const { limits, containers, volumes, lastError } = view;
  return html`<article>${title}
${lastError === undefined ? '' : html`<p class="bad">${lastError.reason}: ${lastError.message}</p>`}
<dl>${memoryRows('pod', limits)}${containers.map((container) => memoryRows(container.name, container.limits))}${volumes.map(({ name, size, used }) => barRows(`volume ${name}`, used, size, 'volume'))}</dl>
</article>`;
}

const memoryRows = (name: string, { memory, memoryUsed, cpu }: ActualValues): Html =>
  html`${barRows(name, memoryUsed, memory, 'memory')}<dt class="dim">CPU</dt><dd class="dim">${cpuText(cpu)}</dd>`;

/** A name, usage and limit, as text and as a bar. */
function barRows(name: string, used: Bytes | undefined, limit: Limit<Bytes>, look: string): Html {
  const text = `${used === undefined ? '?' : sizeText(used)}${limit === 'max' ? ', no limit' : ` of ${sizeText(limit)}`}`;
  const share = used === undefined || limit === 'max' || limit === 0 ? 0 : Math.min(1, used / limit);
  const width = Math.round(share * 1000) / 10;
  const bar = html`<svg viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label="${width} %"><rect class="track" width="100" height="4"/><rect class="used" width="${width}" height="4"/></svg>`;
  return html`<dt>${name}</dt><dd>${text}</dd><dd class="bar ${look}${share > 0.95 ? ' full' : ''}">${bar}</dd>`;
}

const historyTable = (history: readonly HistoryEntry[]): Html =>
  html`<table><tr><th>time</th><th>pod</th><th>by</th><th>changes</th><th>outcome</th></tr>${history.map(historyRow)}</table>`;

function historyRow(entry: HistoryEntry): Html {
  const { pod, requester, state, reason, message, changes, isRolledBack, changedAt, count } = entry;
  const values = changes.map(({ value, from, to }) => `${value} ${from === '' ? '?' : from} → ${to}`).join(', ');
  const outcome = `${state}${isRolledBack ? ', rolled back' : ''}${count > 1 ? `, ${count} times` : ''}`;
  const why = reason === undefined ? '' : `: ${reason}: ${message ?? ''}`;
  return html`<tr><td class="dim">${new Date(changedAt).toISOString()}</td><td>${pod.namespace}/${pod.name}</td><td>${requesterText(requester)}</td><td>${values}</td><td${reason === undefined ? '' : new Html(' class="bad"')}>${outcome}${why}</td></tr>`;
}

function resizeCard(resize: RecentResize): Html {
  const { at, ms, outcome, message, steps } = resize;
  const items = steps.map(
    (step) => html`<li>${stepText(step.step, resize.names)} <span class="dim">${roundedDuration(step.ms)}</span></li>`,
  );
  return html`<article><h3>${fullName(resize)}</h3>
<p class="dim">${new Date(at).toISOString()}, ${roundedDuration(ms)}</p>
<p${outcome === 'done' ? '' : new Html(' class="bad"')}>${outcome}${message === undefined ? '' : `: ${message}`}</p>
${timeline(resize)}<ol>${items}</ol></article>`;
}
