import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type LogFields, noLog } from '../../../src/core/observe/interfaces.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { apiOf } from '../../../src/kubernetes/client/api.ts';
import { openConnection } from '../../../src/kubernetes/client/connection.ts';
import { AllocatableStore, feedNode } from '../../../src/kubernetes/pods/node-feed.ts';
import { eventually, FakeClock } from '../../support/fake-clock.ts';
import { FakeApiServer } from '../../support/kubernetes/fake-api-server.ts';

let folder: string;
let server: FakeApiServer;
let clock: FakeClock;
let store: AllocatableStore;
let log: string[];
let stop: AbortController;
let fed: Promise<void>;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'node-feed-'));
  server = await new FakeApiServer().start();
  clock = new FakeClock({ endsWaits: true });
  store = new AllocatableStore();
  log = [];
  stop = new AbortController();
});
afterEach(async () => {
  stop.abort();
  await fed;
  await server.stop();
  rmSync(folder, { recursive: true });
});

function begin(): void {
  const kubeconfig = server.kubeconfig(join(folder, 'kubeconfig'));
  const info = ({ error, memory, milliCpu }: LogFields, text: string): void =>
    void log.push(`${text}: ${(error as string | undefined) ?? `${memory as number} ${milliCpu as number}`}`);
  const api = apiOf(() => openConnection(kubeconfig));
  fed = feedNode({ api, nodeName: 'node-1', store, clock, log: { ...noLog, info } }, stop.signal);
}

test('reads the allocatable of the Node, and reads it again every five minutes', async () => {
  server.nodes.set('node-1', { cpu: '3920m', memory: '7636Mi', pods: '110' });
  begin();
  await eventually(() => store.amounts() !== undefined);
  expect(store.amounts()).toEqual({ memory: 7636 * MiB, milliCpu: 3920 });
  server.nodes.set('node-1', { cpu: 8, memory: '1Gi' });
  await eventually(() => store.amounts()?.milliCpu === 8000);
  expect(clock.waits[0]).toBe(300_000);
  const read = 'allocatable of the node read';
  expect(log).toEqual([`${read}: ${7636 * MiB} 3920`, `${read}: ${1024 ** 3} 8000`]);
});

test('the allocatable stays unknown without the right or without the node, and each reason is logged once', async () => {
  server.refuse('node', 403);
  begin();
  await server.until(() => server.of('node').length >= 3);
  expect(log).toEqual(['allocatable of the node not read: HTTP 403: refused with 403']);
  expect(clock.waits[0]).toBe(60_000);
  server.accept('node');
  await eventually(() => log.length === 2);
  expect(log[1]).toBe('allocatable of the node not read: HTTP 404: nodes "node-1" not found');
  expect(store.amounts()).toBeUndefined();
});

test('a failed read keeps the known allocatable, and a response of another shape is a failure', async () => {
  server.nodes.set('node-1', { cpu: '1' });
  begin();
  await eventually(() => store.amounts() !== undefined);
  server.nodes.set('node-1', { cpu: ['x'] });
  await eventually(() => log.length === 2);
  expect(log.slice(1)).toEqual(['allocatable of the node not read: the response is not a node with an allocatable']);
  expect(store.amounts()).toEqual({ milliCpu: 1000 });
});
