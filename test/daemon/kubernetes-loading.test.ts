import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';

// As it is shipped: tools/build.mjs, in a folder of its own.
let folder: string;
const text = (name: string): string => readFileSync(join(folder, name), 'utf8');

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'built-'));
  execFileSync(process.execPath, ['tools/build.mjs', folder]);
}, 120_000);
afterAll(() => rmSync(folder, { recursive: true }));

/** The files that are read at each start: those that the daemon's file imports, and what these import. */
function readAtStart(name = 'cri-resize-shim.js', found = new Set<string>()): Set<string> {
  found.add(name);
  for (const [, , chunk] of text(name).matchAll(/(from|import)"\.\/(?:chunks\/)?([^"]+\.js)"/g)) {
    const file = `chunks/${chunk!}`;
    if (!found.has(file)) readAtStart(file, found);
  }
  return found;
}

test('the client of the Kubernetes API is in a file that is read with --kubeconfig alone', () => {
  const atStart = [...readAtStart()];
  expect(atStart.length).toBeGreaterThan(1);
  const withClient = readdirSync(join(folder, 'chunks'))
    .filter((name) => name.endsWith('.js'))
    .map((name) => `chunks/${name}`)
    .filter((name) => text(name).includes('loadFromCluster'));
  expect(withClient).toEqual([expect.stringMatching(/^chunks\/annotations-/)]);
  expect(atStart).not.toContain(withClient[0]);
  expect(atStart.filter((name) => /loadFromCluster|events\.k8s\.io/.test(text(name)))).toEqual([]);
});

test('what serves metrics, health and the page is in files that are read with --metrics-bind alone', () => {
  const words = /readyz check|<!doctype html>|# TYPE/;
  const files = readdirSync(join(folder, 'chunks')).filter((name) => name.endsWith('.js'));
  const withThem = files.map((name) => `chunks/${name}`).filter((name) => words.test(text(name)));
  expect(withThem.length).toBeGreaterThan(0);
  const atStart = readAtStart();
  expect(withThem.filter((name) => atStart.has(name))).toEqual([]);
});

test('the manual page lies beside resizectl', () => {
  expect(text('resizectl.1')).toMatch(/^\.TH RESIZECTL 1 /);
});

test('V8 is told how much memory to hold by what is read at each start', () => {
  const telling = [...readAtStart()].filter((name) => text(name).includes('--semi-space-growth-factor=1'));
  expect(telling).toEqual(['cri-resize-shim.js']);
});
