import { roundedDuration } from '../../core/quantities/index.ts';
import { fullName } from '../../sandbox/index.ts';
import { type HistoryEntry, type RecentResize, requesterText } from '../../resize/index.ts';
import { Html, html } from './html.ts';
import { stepText } from './step.ts';
import { timeline } from './timeline.ts';

/** Resizes: who asked for what with which outcome, and how the steps of each went. */

/** @param none says that there are none */
export const historyTable = (history: readonly HistoryEntry[], none: string): Html =>
  history.length === 0
    ? html`<p>${none}</p>`
    : html`<table><thead><tr><th>time</th><th>pod</th><th>by</th><th>changes</th><th>outcome</th></tr></thead><tbody>${history.map(historyRow)}</tbody></table>`;

function historyRow(entry: HistoryEntry): Html {
  const { pod, requester, state, reason, message, changes, isRolledBack, changedAt, count } = entry;
  const values = changes.map(({ value, from, to }) => `${value} ${from === '' ? '?' : from} → ${to}`).join(', ');
  const outcome = `${state}${isRolledBack ? ', rolled back' : ''}${count > 1 ? `, ${count} times` : ''}`;
  const why = reason === undefined ? '' : `: ${reason}: ${message ?? ''}`;
  return html`<tr><td class="dim">${momentText(changedAt)}</td><td>${fullName(pod)}</td><td>${requesterText(requester)}</td><td>${values}</td><td${reason === undefined ? '' : new Html(' class="bad"')}>${outcome}${why}</td></tr>`;
}

/** `2026-11-24 22:51:03Z` @param at in milliseconds since the epoch */
const momentText = (at: number): string => new Date(at).toISOString().replace('T', ' ').replace(/\.\d+/, '');

/** A card for each resize that has begun, with its steps over time. @param none says that there are none */
export const resizeCards = (recent: readonly RecentResize[], none: string): Html =>
  recent.length === 0 ? html`<p>${none}</p>` : html`<div class="grid">${recent.map(resizeCard)}</div>`;

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
