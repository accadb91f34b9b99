import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';

/** The output of tools/build.mjs. */
let folder: string;
const text = (name: string): string => readFileSync(join(folder, name), 'utf8');

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'built-'));
  execFileSync(process.execPath, ['tools/build.mjs', folder]);
}, 120_000);
afterAll(() => rmSync(folder, { recursive: true }));

/** Returns the files that each start reads: the daemon's file and its static imports, with theirs. */
function filesAtStart(name = 'cri-resize-shim.js', found = new Set<string>()): Set<string> {
  found.add(name);
  for (const [, , chunk] of text(name).matchAll(/(from|import)"\.\/(?:chunks\/)?([^"]+\.js)"/g)) {
    const file = `chunks/${chunk!}`;
    if (!found.has(file)) filesAtStart(file, found);
  }
  return found;
}

test('the client of the Kubernetes API is in a file that is read only with --kubeconfig', () => {
  const atStart = [...filesAtStart()];
  expect(atStart.length).toBeGreaterThan(1);
  const withClient = readdirSync(join(folder, 'chunks'))
    .filter((name) => name.endsWith('.js'))
    .map((name) => `chunks/${name}`)
    .filter((name) => text(name).includes('loadFromCluster'));
  expect(withClient).toEqual([expect.stringMatching(/^chunks\/annotations-/)]);
  expect(atStart).not.toContain(withClient[0]);
  expect(atStart.filter((name) => /loadFromCluster|events\.k8s\.io/.test(text(name)))).toEqual([]);
});

test('metrics, health checks and status page are in files that are read only with --metrics-bind', () => {
  const words = /readyz check|<!doctype html>|# TYPE/;
  const files = readdirSync(join(folder, 'chunks')).filter((name) => name.endsWith('.js'));
  const serving = files.map((name) => `chunks/${name}`).filter((name) => words.test(text(name)));
  expect(serving.length).toBeGreaterThan(0);
  const atStart = filesAtStart();
  expect(serving.filter((name) => atStart.has(name))).toEqual([]);
});

test('the manual page is in the folder of resizectl', () => {
  expect(text('resizectl.1')).toMatch(/^\.TH RESIZECTL 1 /);
});

test('the heap settings for V8 are in the file of the daemon', () => {
  const withSettings = [...filesAtStart()].filter((name) => text(name).includes('--semi-space-growth-factor=1'));
  expect(withSettings).toEqual(['cri-resize-shim.js']);
});
