import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Bytes, fullestOf, type Limit, podPressure, shareOf } from '../../core/index.ts';
import { type ActualValues, fullName, type PodSummary, type PodView } from '../../sandbox/index.ts';
import { cpuText, Html, html, sizeText } from './html.ts';

/** The table of pods, and the details of one. */

interface Ranked {
  readonly summary: PodSummary;
  /** In percent; undefined: the pod cannot be read. */
  readonly pressure: number | undefined;
}

/** Returns the pods, those closest to their limits first. */
function ranked(pods: readonly PodSummary[]): readonly Ranked[] {
  const all = pods.map((summary) => ({ summary, pressure: pressureOfPod(summary) }));
  const nameOf = ({ summary: { pod } }: Ranked): string => `${fullName(pod)} ${pod.sandboxId}`;
  return all.toSorted(
    (one, other) => (other.pressure ?? -1) - (one.pressure ?? -1) || (nameOf(one) < nameOf(other) ? -1 : 1),
  );
}

function pressureOfPod({ view }: PodSummary): number | undefined {
  if (!('limits' in view)) return undefined;
  const all = [view.limits, ...view.containers.map(({ limits }) => limits)];
  return podPressure(
    all.map(({ memory, load }) => ({
      limit: memory,
      unreclaimable: load?.unreclaimable,
      memoryStalled: load?.memoryStalled,
      cpuStalled: load?.cpuStalled,
    })),
    view.volumes,
  );
}

/** The row of a pod, rendered. */
export interface PodRow {
  /** Name and sandbox id in lower case. */
  readonly searched: string;
  readonly start: string;
  readonly end: string;
}

/** Rows that are rendered in one turn of the event loop: 1 to 3 ms. */
const ROWS_AT_ONCE = 50;

/** Renders a row for each pod, those closest to their limits first. */
export async function podRows(pods: readonly PodSummary[]): Promise<readonly PodRow[]> {
  const rows: PodRow[] = [];
  await nextTurn();
  for (const one of ranked(pods)) {
    if (rows.length % ROWS_AT_ONCE === 0) await nextTurn();
    rows.push(podRow(one));
  }
  // The table is put together in a turn of its own.
  await nextTurn();
  return rows;
}

/** Renders the table. @param filter hides rows whose name does not contain it; the script applies later changes */
export function podsTable(rows: readonly PodRow[], filter: string): Html {
  if (rows.length === 0) return html`<p>none on this node</p>`;
  const wanted = filter.trim().toLowerCase();
  const texts = rows.map(({ searched, start, end }) => `${start}${searched.includes(wanted) ? '' : ' hidden'}${end}`);
  return html`<table class="pods"><thead><tr><th>pressure</th><th>pod</th><th>memory</th><th class="more">cannot be reclaimed</th><th class="more">CPU limit</th><th class="more">waiting for CPU, memory</th><th class="more">fullest volume</th><th class="more">last resize</th></tr></thead><tbody>${new Html(texts.join(''))}</tbody></table>`;
}

function podRow({ summary, pressure }: Ranked): PodRow {
  const { pod, view } = summary;
  const [last] = summary.history;
  const name = fullName(pod);
  // Includes the sandbox id, so that an id from crictl finds its pod.
  const searched = `${name} ${pod.sandboxId}`.toLowerCase();
  const link = html`<a href="?pod=${pod.sandboxId}" data-pod="${pod.sandboxId}">${name}</a>`;
  const cells =
    'limits' in view
      ? html`<td class="${isHigh(pressure) ? 'bad' : ''}">${percent(pressure)}</td><td>${link}</td>${viewCells(view)}`
      : html`<td>?</td><td>${link}</td><td class="bad">${view.reason}</td><td class="more"></td><td class="more"></td><td class="more"></td><td class="more"></td>`;
  const state = last === undefined ? '' : last.state;
  const isBad = last !== undefined && last.state !== 'Completed' && last.state !== 'InProgress';
  const end = html`>${cells}<td class="more${isBad ? ' bad' : ''}">${state}</td></tr>`;
  return { searched, start: html`<tr data-name="${searched}"`.text, end: end.text };
}

function viewCells({ limits, volumes }: PodView): Html {
  const { memory, memoryUsed, cpu, load } = limits;
  const fullest = fullestOf(volumes);
  const volume = fullest === undefined ? '' : `${fullest.name} ${percent(shareOf(fullest.used, fullest.size))}`;
  const stalled = [load?.cpuStalled, load?.memoryStalled].map((share) => (share === undefined ? '?' : percent(share)));
  const waits = stalled.every((text) => text === '?') ? '' : stalled.join(', ');
  const held = load?.unreclaimable === undefined ? '?' : sizeText(load.unreclaimable);
  return html`<td>${usedText(memoryUsed, memory)}${barOf(memoryUsed, memory, 'memory')}</td><td class="more">${held}</td><td class="more">${cpuText(cpu)}</td><td class="more">${waits}</td><td class="more">${volume}</td>`;
}

const percent = (value: number | undefined): string => (value === undefined ? '?' : `${Math.round(value)} %`);
const isHigh = (pressure: number | undefined): boolean => pressure !== undefined && pressure > 95;

/** The details of one pod. */
export function podCard({ pod, view }: PodSummary): Html {
  const title = html`<h3>${fullName(pod)}</h3><p class="dim">${pod.sandboxId.slice(0, 13)}, uid ${pod.uid}</p>`;
  if (!('limits' in view)) return html`<article>${title}<p class="bad">${view.reason}: ${view.message}</p></article>`;
  const { limits, containers, volumes, lastError, kubelet } = view;
  const { decrease } = kubelet ?? {};
  return html`<article>${title}
${lastError === undefined ? '' : html`<p class="bad">${lastError.reason}: ${lastError.message}</p>`}${decrease === undefined ? '' : html`<p class="bad">decrease by kubelet, ${decrease.state}: ${decrease.message}</p>`}
<dl>${memoryRows('pod', limits)}${containers.map((container) => memoryRows(container.name, container.limits))}${volumes.map(({ name, size, used }) => barRows(`volume ${name}`, used, size, 'volume'))}</dl>
</article>`;
}

function memoryRows(name: string, { memory, memoryUsed, cpu, load }: ActualValues): Html {
  const held =
    load?.unreclaimable === undefined
      ? ''
      : html`<dt class="dim">cannot be reclaimed</dt><dd class="dim">${sizeText(load.unreclaimable)}</dd>`;
  return html`${barRows(name, memoryUsed, memory, 'memory')}${held}<dt class="dim">CPU</dt><dd class="dim">${cpuText(cpu)}</dd>`;
}

/** A name, usage and limit, as text and as a bar. */
const barRows = (name: string, used: Bytes | undefined, limit: Limit<Bytes>, look: string): Html =>
  html`<dt>${name}</dt><dd>${usedText(used, limit)}</dd><dd>${barOf(used, limit, look)}</dd>`;

const usedText = (used: Bytes | undefined, limit: Limit<Bytes>): string =>
  `${used === undefined ? '?' : sizeText(used)}${limit === 'max' ? ', no limit' : ` of ${sizeText(limit)}`}`;

function barOf(used: Bytes | undefined, limit: Limit<Bytes>, look: string): Html {
  const share = Math.min(100, shareOf(used ?? 0, limit));
  const width = Math.round(share * 10) / 10;
  return html`<div class="bar ${look}${share > 95 ? ' full' : ''}"><svg viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label="${width} %"><rect class="track" width="100" height="4"/><rect class="used" width="${width}" height="4"/></svg></div>`;
}
