/** The only style of the page; the Content-Security-Policy has its hash. Supports light and dark mode. */
export const style = `
:root { color-scheme: light dark; --bg: #fff; --fg: #1c2024; --dim: #5b6570; --line: #d5dae0; --bad: #b42318;
  --pod: #1f5fbf; --c0: #b35900; --c1: #6b3fa0; --c2: #0f766e; --volume: #a21c5b; --use: #9aa5b1; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #14171a; --fg: #e6e9ec; --dim: #9aa5b1; --line: #343b42; --bad: #ff8a7a;
    --pod: #7fb0ff; --c0: #ffb066; --c1: #c9a5f7; --c2: #5fd0c5; --volume: #ff8fc0; --use: #5b6570; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 80rem; background: var(--bg); color: var(--fg); font: 0.95rem/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } h3 { font-size: 1rem; margin: 0 0 0.5rem; }
p { margin: 0.3rem 0; } .dim { color: var(--dim); } .bad { color: var(--bad); }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 1rem; }
article { border: 1px solid var(--line); border-radius: 0.4rem; padding: 0.8rem; min-width: 0; }
dl { margin: 0; display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 0.1rem 0.8rem; }
dd { margin: 0; text-align: right; } dd:has(.bar) { grid-column: 1 / -1; }
a { color: var(--pod); } form { margin: 0.5rem 0; } input { font: inherit; width: 16rem; max-width: 100%; color: var(--fg); background: var(--bg); border: 1px solid var(--dim); border-radius: 0.3rem; padding: 0.15rem 0.4rem; }
#card article { margin: 0.5rem 0 1rem; max-width: 40rem; } table { width: 100%; } [hidden] { display: none; }
.pods td:nth-child(3) { min-width: 7rem; } .pods th { position: sticky; top: 0; background: var(--bg); }
@media (max-width: 55rem) { .more { display: none; } }
@media (min-width: 55rem) { th { overflow-wrap: normal; } .pods td:nth-child(2) { min-width: 13rem; } #history td:nth-child(-n + 2) { min-width: 10rem; } }
#count, #live { margin-left: 0.6rem; }
svg { display: block; width: 100%; } .bar svg { height: 0.5rem; margin: 0.15rem 0 0.3rem; }
.track { fill: var(--line); } .used { fill: var(--pod); } .volume .used { fill: var(--volume); } .full .used { fill: var(--bad); }
.chart { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: 0.2rem 0.4rem; margin: 0.5rem 0; font-size: 0.75rem; }
.chart > svg { height: 9rem; border-bottom: 1px solid var(--line); border-left: 1px solid var(--line); overflow: visible; }
.y { display: flex; flex-direction: column; justify-content: space-between; text-align: right; white-space: nowrap; } .x { grid-column: 2; display: flex; justify-content: space-between; white-space: nowrap; }
path { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; } path.area { stroke: none; fill: var(--use); opacity: 0.5; }
.pod { stroke: var(--pod); } .c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
path.size { stroke: var(--volume); stroke-dasharray: 5 3; } path.guide { stroke: var(--line); stroke-width: 1; stroke-dasharray: 2 3; }
table { border-collapse: collapse; font-size: 0.85rem; } th, td { text-align: left; vertical-align: top; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid var(--line); }
ul { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: 0.85rem; }
li svg { display: inline-block; vertical-align: middle; width: 1.4rem; height: 0.6rem; margin: 0 0.3rem 0 0; border: 0; }
li rect.area { fill: var(--use); } ol { padding-left: 1.4rem; font-size: 0.85rem; } ol .dim { white-space: nowrap; }
`;

/**
 * The only script of the page; the Content-Security-Policy has its hash. It filters the rows, and replaces parts of the
 * page by those that arrive at `live`, which the shim has rendered and escaped. Without the script, the links and the
 * filter load the page again.
 */
export const script = `
'use strict';
const byId = (id) => document.getElementById(id);
const filter = document.querySelector('input[name=q]');
let pod = new URLSearchParams(location.search).get('pod') ?? '';
let source;

function applyFilter() {
  const wanted = filter.value.trim().toLowerCase();
  const rows = [...document.querySelectorAll('#pods tbody tr')];
  for (const row of rows) row.hidden = !row.dataset.name.includes(wanted);
  const shown = rows.filter((row) => !row.hidden).length;
  byId('count').textContent = shown === rows.length ? rows.length + ' pods' : shown + ' of ' + rows.length + ' pods';
}

// Updates that are delayed while their part contains a selection.
const waiting = new Map();

function show(parts) {
  const focused = document.activeElement?.getAttribute('href');
  for (const [id, content] of Object.entries(parts)) {
    const part = byId(id);
    const selection = getSelection();
    // Text that the user is about to copy is not replaced.
    const isSelected = !selection.isCollapsed && part.contains(selection.anchorNode);
    if (isSelected) waiting.set(id, content);
    else {
      waiting.delete(id);
      part.innerHTML = content;
    }
  }
  if (focused) [...document.querySelectorAll('a')].find((link) => link.getAttribute('href') === focused)?.focus({ preventScroll: true });
  applyFilter();
}

function connect() {
  source?.close();
  waiting.clear();
  source = new EventSource('live?pod=' + encodeURIComponent(pod));
  source.addEventListener('message', ({ data }) => {
    show(JSON.parse(data));
    byId('live').textContent = 'live';
  });
  source.addEventListener('error', () => {
    const isRefused = source.readyState === EventSource.CLOSED;
    byId('live').textContent = isRefused ? 'not live: refused, load the page again' : 'not live: connecting again';
  });
}

document.addEventListener('click', (event) => {
  const link = event.target.closest('a[data-pod]');
  if (!link || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  pod = link.dataset.pod;
  history.pushState({}, '', link.href);
  byId('card').innerHTML = '';
  connect();
  byId('card').scrollIntoView({ block: 'nearest' });
});
addEventListener('popstate', () => {
  pod = new URLSearchParams(location.search).get('pod') ?? '';
  byId('card').innerHTML = '';
  connect();
});
document.addEventListener('selectionchange', () => {
  if (waiting.size > 0 && getSelection().isCollapsed) show(Object.fromEntries(waiting));
});
filter.addEventListener('input', applyFilter);
applyFilter();
connect();
`;
