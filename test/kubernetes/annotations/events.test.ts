import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { LogFields } from '../../../src/core/observe/interfaces.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import type { NodeEvent, PodEvent } from '../../../src/kubernetes/annotations/events.ts';
import { EventPoster, eventBody, namespaceOf } from '../../../src/kubernetes/annotations/events.ts';
import { apiOf } from '../../../src/kubernetes/client/api.ts';
import { openConnection } from '../../../src/kubernetes/client/connection.ts';
import { eventually, FakeClock } from '../../support/fake-clock.ts';
import type { PostedEvent } from '../../support/kubernetes/fake-api-server.ts';
import { FakeApiServer } from '../../support/kubernetes/fake-api-server.ts';

const event = (note: string, name = 'web'): PodEvent => ({
  pod: { uid: 'uid-web', namespace: 'shop', name },
  reason: 'VolumeResizeDeferred',
  note,
  at: Date.UTC(2026, 0, 2, 3, 4, 5, 678),
});

describe('an event', () => {
  test('an event of a pod is an events.k8s.io/v1 event that refers to the pod', () => {
    const body = eventBody(event('volume cache stays'), 'node-1') as PostedEvent;
    expect(body).toEqual({
      apiVersion: 'events.k8s.io/v1',
      kind: 'Event',
      metadata: { namespace: 'shop', name: expect.stringMatching(/^web\.[0-9a-f]{16}$/) as string },
      eventTime: '2026-01-02T03:04:05.678000Z',
      reportingController: 'cri-resize-shim',
      reportingInstance: 'node-1',
      action: 'ResizeVolume',
      type: 'Warning',
      reason: 'VolumeResizeDeferred',
      regarding: { apiVersion: 'v1', kind: 'Pod', namespace: 'shop', name: 'web', uid: 'uid-web' },
      note: 'volume cache stays',
    });
  });

  test('an event about a deferred memory decrease is a warning with the action LowerMemory', () => {
    const body = eventBody({ ...event('in use'), reason: 'MemoryDecreaseDeferred' }, 'node-1') as PostedEvent;
    expect(body).toMatchObject({ action: 'LowerMemory', type: 'Warning', reason: 'MemoryDecreaseDeferred' });
  });

  test.each([`${'a'.repeat(219)}-${'b'.repeat(33)}`, 'a'.repeat(253), 'a.b'])(
    'an event of a pod named %s has a valid name',
    (name) => {
      const { metadata } = eventBody(event('', name), 'node-1') as PostedEvent;
      expect(metadata.name).toMatch(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/);
      expect(metadata.name.length).toBeLessThanOrEqual(253);
    },
  );

  test.each([
    ['ShimBypassed', 'Warning', 'Bypass'],
    ['ShimDrift', 'Warning', 'Watch'],
    ['ShimDriftEnded', 'Normal', 'Watch'],
  ] as const)('an event of the node has the reason %s, the type %s and the action %s', (reason, type, action) => {
    const body = eventBody({ node: 'node-2', reason, note: 'why', at: 0 }, 'node-1');
    expect(body).toMatchObject({ reason, type, action, note: 'why', regarding: { kind: 'Node', uid: 'node-2' } });
  });

  test('the note of an event has at most 1024 bytes, and is cut between characters', () => {
    const { note } = eventBody(event('ä'.repeat(1000)), 'node-1') as PostedEvent;
    expect(Buffer.byteLength(note)).toBeLessThanOrEqual(1024);
    expect(note).toMatch(/^ä{500,}\.\.\.$/);
  });
});

test('M3: an event of the node refers to the node as kubelet’s own events do, so that kubectl describe node finds it', () => {
  const bypassed: NodeEvent = { node: 'node-1', reason: 'ShimBypassed', note: 'from then to now', at: 0 };
  expect(namespaceOf(bypassed)).toBe('default');
  expect(eventBody(bypassed, 'node-1')).toMatchObject({
    metadata: { namespace: 'default', name: expect.stringMatching(/^node-1\.[0-9a-f]{16}$/) as string },
    reportingController: 'cri-resize-shim',
    action: 'Bypass',
    type: 'Warning',
    reason: 'ShimBypassed',
    regarding: { apiVersion: 'v1', kind: 'Node', name: 'node-1', uid: 'node-1' },
    note: 'from then to now',
  });
});

describe('the event poster', () => {
  const event = (note: string, namespace = 'shop'): PodEvent => ({
    pod: { uid: 'uid-web', namespace, name: 'web' },
    reason: 'VolumeResizeDeferred',
    note,
    at: Date.UTC(2026, 0, 2, 3, 4, 5, 678),
  });

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
      clock: new FakeClock({ endsWaits: true }),
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
