/**
 * The only script of the page; the Content-Security-Policy has its hash. It filters the rows, and replaces the parts of the page by those
 * that arrive at `live`, which the shim has rendered and escaped. Without it, the links and the filter load the page again.
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

// Parts that wait for the end of a selection.
const waiting = new Map();

function show(parts) {
  const focused = document.activeElement?.getAttribute('href');
  for (const [id, content] of Object.entries(parts)) {
    const part = byId(id);
    const selection = getSelection();
    // What somebody is about to copy stays.
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
