import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { apiOf } from '../../../src/kubernetes/client/api.ts';
import { openConnection } from '../../../src/kubernetes/client/connection.ts';
import { EventPoster, type PodEvent } from '../../../src/kubernetes/annotations/events.ts';
import { type LogFields, noLog } from '../../../src/core/observe/interfaces.ts';
import { FakeApiServer } from '../../support/kubernetes/fake-api-server.ts';
import { FakeQuickClock, eventually } from '../../support/fake-clock.ts';

const event = (note: string, namespace = 'shop'): PodEvent => ({
  pod: { uid: 'uid-web', namespace, name: 'web' },
  reason: 'VolumeResizeDeferred',
  note,
  at: Date.UTC(2026, 0, 2, 3, 4, 5, 678),
});

describe('the event poster', () => {
  let folder: string;
  let server: FakeApiServer;
  let poster: EventPoster;
  let stop: AbortController;
  let posting: Promise<void>;
  let log: string[];

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'events-'));
    server = await new FakeApiServer().reserve();
    const kubeconfig = server.kubeconfig(join(folder, 'config'));
    stop = new AbortController();
    log = [];
    poster = new EventPoster({
      api: apiOf(() => openConnection(kubeconfig)),
      nodeName: 'node-1',
      clock: new FakeQuickClock(),
      random: () => 0,
      log: { ...noLog, warn: ({ error }: LogFields, text) => void log.push(`${text} ${error as string}`) },
    });
    posting = poster.run(stop.signal);
  });
  afterEach(async () => {
    stop.abort();
    await posting;
    await server.stop();
    rmSync(folder, { recursive: true });
  });

  const arrived = (): string[] => server.events.map(({ note }) => note);

  test('posts events in order, including those from before the server started', async () => {
    for (const note of ['a', 'b']) poster.post(event(note));
    await server.start();
    await server.until(() => server.events.length === 2);
    poster.post(event('c'));
    await server.until(() => server.events.length === 3);
    expect(arrived()).toEqual(['a', 'b', 'c']);
    expect(server.of('event')[0]?.path).toBe('/apis/events.k8s.io/v1/namespaces/shop/events');
    expect(log).toEqual([]);
  });

  test.each([401, 429, 503])('retries an event after HTTP status %i', async (status) => {
    server.refuse('event', status, 3);
    await server.start();
    poster.post(event('a'));
    await server.until(() => server.events.length === 1);
    expect(server.of('event')).toHaveLength(4);
  });

  test('drops events that are rejected with 403, logs this once, and posts the next ones', async () => {
    await server.start();
    server.refuse('event', 403, 2);
    for (const note of ['a', 'b', 'c']) poster.post(event(note));
    await server.until(() => server.events.length === 1);
    expect(arrived()).toEqual(['c']);
    expect(log).toEqual(['pod events dropped HTTP 403: refused with 403']);
  });

  test('a namespace with server errors does not delay other namespaces, and its events are posted later', async () => {
    await server.start();
    server.refuse('event', 500, Infinity, {}, '/shop/');
    for (const note of ['a', 'b']) poster.post(event(note));
    for (const note of ['c', 'd']) poster.post(event(note, 'web'));
    await server.until(() => server.events.length === 2);
    expect(arrived()).toEqual(['c', 'd']);
    expect(
      server
        .of('event')
        .slice(0, 5)
        .map(({ path }) => path.split('/')[5]),
    ).toEqual([...['shop', 'shop', 'shop'], ...['web', 'web']]);
    server.accept('event');
    await server.until(() => server.events.length === 4);
    expect(arrived().slice(2).toSorted()).toEqual(['a', 'b']);
    expect(log).toEqual([]);
  });

  test('a namespace with HTTP status 429 does not delay other namespaces, and its events stay in order', async () => {
    await server.start();
    server.refuse('event', 429, Infinity, {}, '/shop/');
    for (const note of ['a', 'b']) poster.post(event(note));
    poster.post(event('c', 'web'));
    await server.until(() => server.events.length === 1);
    server.accept('event');
    await server.until(() => server.events.length === 3);
    expect(arrived()).toEqual(['c', 'a', 'b']);
  });

  test('an event with repeated server errors does not delay other events of its namespace', async () => {
    await server.start();
    server.refuse('event', 500, 3);
    for (const note of ['a', 'b', 'c']) poster.post(event(note));
    await server.until(() => server.events.length === 3);
    expect(arrived()).toEqual(['b', 'c', 'a']);
  });

  test('an event is posted only once even if its response is lost', async () => {
    await server.start();
    server.loseNextEvents(2);
    for (const note of ['a', 'b']) poster.post(event(note));
    await server.until(() => server.of('event').length === 4);
    expect(arrived()).toEqual(['a', 'b']);
    expect(log).toEqual([]);
  });

  test('stores only the newest 256 pending events', async () => {
    for (let number = 0; number < 1000; number += 1) poster.post(event(String(number)));
    await server.start();
    await server.until(() => server.events.length === 256);
    expect(arrived().at(-1)).toBe('999');
    expect(log).toEqual(['pod events dropped too many pending events']);
  });

  test('stops at once although events are pending', async () => {
    poster.post(event('a'));
    await eventually(() => true);
    stop.abort();
    await posting;
    await server.start();
    expect(server.events).toEqual([]);
  });
});
