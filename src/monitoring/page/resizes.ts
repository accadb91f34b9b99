import { roundedDuration } from '../../core/index.ts';
import { fullName, type HistoryEntry, type RecentResize, requesterText, type Step } from '../../sandbox/index.ts';
import { cpuText, Html, html, sizeText } from './html.ts';

/** Resizes: requester, changes and outcome of each, and its steps. */

/** Renders the history. @param none text for an empty history */
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

/** Renders a card for each started resize, with its steps over time. @param none text if there are no resizes */
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

/** Formats a step: the file and its values before and after, with container names instead of ids. */
export function stepText(step: Step, names: ReadonlyMap<string, string>): string {
  switch (step.kind) {
    case 'volume':
      return `volume ${step.volume}: ${change(step, sizeText)}`;
    case 'pod-memory':
      return `pod memory.max: ${change(step, sizeText)}`;
    case 'pod-cpu':
      return `pod cpu.max: ${change(step, cpuText)}`;
    case 'pod-weight':
      return `pod cpu.weight: ${change(step, String)}`;
    case 'pod-unified':
      return `pod ${step.key}: ${change(step, String)}`;
    case 'burst':
      return `${step.id === undefined ? 'pod' : nameIn(names, step.id)} cpu.max.burst: ${change(step, String)}`;
    case 'container': {
      const { id, memory, cpu, shares } = step;
      const changes = [
        ...(memory === undefined ? [] : [`memory.max: ${change(memory, sizeText)}`]),
        ...(cpu === undefined ? [] : [`cpu.max: ${change(cpu, cpuText)}`]),
        ...(shares === undefined ? [] : [`cpu shares: ${change(shares, String)}`]),
      ];
      return `${nameIn(names, id)} ${changes.join(', ')}`;
    }
    case 'runtime':
      return 'runtime';
  }
}

const nameIn = (names: ReadonlyMap<string, string>, id: string): string => names.get(id) ?? id.slice(0, 13);

const change = <Value>({ from, to }: { from: Value; to: Value }, text: (value: Value) => string): string =>
  `${text(from)} → ${text(to)}`;

/** A chart of limits, sizes and usage over the steps of a resize. */

interface Line {
  readonly label: string;
  /** CSS class for the colour. */
  readonly look: string;
  /** Bytes at the start and after each step; undefined: no limit or unknown. */
  readonly values: readonly (number | undefined)[];
}

const WIDTH = 400;
const HEIGHT = 100;

/** Returns the chart of a resize: limits, usage and volumes over the time of its steps. */
function timeline(resize: RecentResize): Html {
  const times = timesOf(resize);
  const lines = linesOf(resize);
  const used = [resize.usedBefore, ...resize.steps.map((step) => step.used), ...(isUndone(resize) ? [undefined] : [])];
  const highest = Math.max(1, ...[...lines.flatMap(({ values }) => values), ...used].map((value) => value ?? 0));
  const top = axisTop(highest);
  const points = { times, top };
  const amounts = [top, top / 2, 0].map((amount) => html`<span>${sizeText(amount)}</span>`);
  const moments = [0, 0.5, 1].map((share) => html`<span>${roundedDuration(durationOf(resize) * share)}</span>`);
  return html`<div class="timeline"><div class="chart"><div class="y dim">${amounts}</div>
<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="memory over the steps">
<path class="guide" d="M0 ${HEIGHT / 2}L${WIDTH} ${HEIGHT / 2}M${WIDTH / 2} 0L${WIDTH / 2} ${HEIGHT}"/>
<path class="area" d="${areaOf(used, points)}"/>
${lines.map(
  ({ look, values }) => html`<path class="${look}" d="${stepPath(values, points)}"/>
`,
)}</svg><div class="x dim">${moments}</div></div>
<ul>${legend('area', 'in use', used)}${lines.map(({ label, look, values }) => legend(look, label, values))}</ul>
</div>`;
}

/** Start of each value as a fraction of the duration: the start, each step's end, and any rollback. */
function timesOf(resize: RecentResize): number[] {
  const { steps, outcome } = resize;
  const whole = durationOf(resize);
  return [0, ...steps.map(({ doneAt }) => doneAt / whole), ...(outcome === 'undone' ? [1] : [])];
}

/** The right end of the axis of time, in milliseconds. */
const durationOf = ({ steps, ms }: RecentResize): number => Math.max(ms, ...steps.map(({ doneAt }) => doneAt), 0.001);

/** Returns the top of the amount axis in bytes: a power of two or 1.5 times one, so that its labels are short. */
function axisTop(highest: number): number {
  const power = 2 ** Math.floor(Math.log2(highest));
  return [power, 1.5 * power].find((top) => top >= highest) ?? 2 * power;
}

function linesOf(resize: RecentResize): Line[] {
  const { before, steps, names } = resize;
  const over = (start: number | 'max', change: (step: Step) => number | 'max' | undefined): (number | undefined)[] => {
    let value = start;
    const values = [
      start,
      ...steps.map(({ step }) => (value = change(step) ?? value)),
      ...(isUndone(resize) ? [start] : []),
    ];
    return values.map((one) => (one === 'max' ? undefined : one));
  };
  const pod = over(before.memory, (step) => (step.kind === 'pod-memory' ? step.to : undefined));
  const containers = before.containers.map(
    ({ id, memory }, index): Line => ({
      label: `limit of ${names.get(id) ?? id.slice(0, 13)}`,
      look: `c${index % 3}`,
      values: over(memory, (step) => (step.kind === 'container' && step.id === id ? step.memory?.to : undefined)),
    }),
  );
  const volumes = before.volumes.map(
    ({ name, size }): Line => ({
      label: `size of volume ${name}`,
      look: 'size',
      values: over(size, (step) => (step.kind === 'volume' && step.volume === name ? step.to : undefined)),
    }),
  );
  return [{ label: 'limit of the pod', look: 'pod', values: pod }, ...containers, ...volumes];
}

/** Whether the values are those of the start again. */
const isUndone = ({ outcome }: RecentResize): boolean => outcome === 'undone';

interface Points {
  readonly times: readonly number[];
  readonly top: number;
}

/** A step line: each value holds until the next. A gap means no limit. */
function stepPath(values: readonly (number | undefined)[], { times, top }: Points): string {
  let isDrawing = false;
  const parts = values.flatMap((value, index) => {
    if (value === undefined) {
      isDrawing = false;
      return [];
    }
    const [from, until] = [(times[index] ?? 1) * WIDTH, (times[index + 1] ?? 1) * WIDTH];
    const y = place(HEIGHT - (value / top) * HEIGHT);
    const start = `${isDrawing ? 'L' : 'M'}${place(from)} ${y}`;
    isDrawing = true;
    return [start, `L${place(until)} ${y}`];
  });
  return parts.join('');
}

/** Returns an area. Draws unknown usage as the last known value. */
function areaOf(values: readonly (number | undefined)[], points: Points): string {
  let last = 0;
  const known = values.map((value) => (last = value ?? last));
  return `${stepPath(known, points)}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`;
}

const place = (value: number): number => Math.round(value * 10) / 10;

function legend(look: string, label: string, values: readonly (number | undefined)[]): Html {
  const text = (value: number | undefined): string =>
    value === undefined ? (look === 'area' ? '?' : 'no limit') : sizeText(value);
  // As in the chart, the last known usage.
  const end = look === 'area' ? values.findLast((value) => value !== undefined) : values.at(-1);
  const [first, last] = [text(values[0]), text(end)];
  const swatch =
    look === 'area' ? html`<rect class="area" width="14" height="6"/>` : html`<path class="${look}" d="M0 3L14 3"/>`;
  return html`<li><svg viewBox="0 0 14 6" aria-hidden="true">${swatch}</svg>${label}: ${first === last ? first : `${first} → ${last}`}</li>`;
}
