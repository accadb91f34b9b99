import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { nodeEvent, type PostEvent } from '../../../src/install/rollout/events.ts';
import { apiOf } from '../../../src/kubernetes/client/api.ts';
import { openConnection } from '../../../src/kubernetes/client/connection.ts';
import { FakeApiServer } from '../../support/kubernetes/fake-api-server.ts';

let folder: string;
let server: FakeApiServer;
let post: PostEvent;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'events-'));
  server = await new FakeApiServer().start();
  const kubeconfig = server.kubeconfig(join(folder, 'config'));
  post = nodeEvent(
    apiOf(() => openConnection(kubeconfig)),
    'node-1',
    'ShimDrift',
    'kubelet uses another socket',
  );
});
afterEach(async () => {
  await server.stop();
  rmSync(folder, { recursive: true });
});

const { signal } = new AbortController();

test('an event whose response is lost exists once after another try', async () => {
  server.loseNextEvents(1);
  await expect(post(signal)).rejects.toThrow('socket hang up');
  await post(signal);
  expect(server.of('event')).toHaveLength(2);
  expect(server.events.map(({ reason, note }) => [reason, note])).toEqual([
    ['ShimDrift', 'kubelet uses another socket'],
  ]);
});

test('an event that the server rejects is an error', async () => {
  server.refuse('event', 403);
  await expect(post(signal)).rejects.toThrow('HTTP 403');
});
