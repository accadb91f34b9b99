import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { apiOf } from '../../../src/kubernetes/client/api.ts';
import { openConnection } from '../../../src/kubernetes/client/connection.ts';
import { EventPoster } from '../../../src/kubernetes/annotations/event-poster.ts';
import { type PodEvent, eventBody } from '../../../src/kubernetes/annotations/events.ts';
import { type LogFields, noLog } from '../../../src/observe/index.ts';
import { ApiServer, type PostedEvent } from '../../support/fake-api-server.ts';
import { QuickClock, eventually } from '../../support/fake-clock.ts';

const event = (note: string, name = 'web'): PodEvent => ({
  pod: { uid: 'uid-web', namespace: 'shop', name },
  reason: 'VolumeResizeDeferred',
  note,
  at: Date.UTC(2026, 0, 2, 3, 4, 5, 678),
});

describe('an event', () => {
  test('is one of events.k8s.io/v1 about the pod', () => {
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

  test('about memory that kubelet does not lower is a warning of another action', () => {
    const body = eventBody({ ...event('in use'), reason: 'MemoryDecreaseDeferred' }, 'node-1') as PostedEvent;
    expect(body).toMatchObject({ action: 'LowerMemory', type: 'Warning', reason: 'MemoryDecreaseDeferred' });
  });

  test.each([`${'a'.repeat(219)}-${'b'.repeat(33)}`, 'a'.repeat(253), 'a.b'])(
    'of a pod named %s has a name that is legal',
    (name) => {
      const { metadata } = eventBody(event('', name), 'node-1') as PostedEvent;
      expect(metadata.name).toMatch(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/);
      expect(metadata.name.length).toBeLessThanOrEqual(253);
    },
  );

  test('has a note of at most 1024 bytes, without half a character', () => {
    const { note } = eventBody(event('ä'.repeat(1000)), 'node-1') as PostedEvent;
    expect(Buffer.byteLength(note)).toBeLessThanOrEqual(1024);
    expect(note).toMatch(/^ä{500,}\.\.\.$/);
  });
});

describe('posting', () => {
  let folder: string;
  let server: ApiServer;
  let poster: EventPoster;
  let stop: AbortController;
  let posting: Promise<void>;
  let log: string[];

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'events-'));
    server = await new ApiServer().reserve();
    const kubeconfig = server.kubeconfig(join(folder, 'config'));
    stop = new AbortController();
    log = [];
    poster = new EventPoster({
      api: apiOf(() => openConnection(kubeconfig)),
      nodeName: 'node-1',
      clock: new QuickClock(),
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

  test('keeps their order, and what was said while the server was away', async () => {
    for (const note of ['a', 'b']) poster.post(event(note));
    await server.start();
    await server.until(() => server.events.length === 2);
    poster.post(event('c'));
    await server.until(() => server.events.length === 3);
    expect(arrived()).toEqual(['a', 'b', 'c']);
    expect(server.of('event')[0]?.path).toBe('/apis/events.k8s.io/v1/namespaces/shop/events');
    expect(log).toEqual([]);
  });

  test.each([401, 429, 503])('is tried again after %i', async (status) => {
    server.refuse('event', status, 3);
    await server.start();
    poster.post(event('a'));
    await server.until(() => server.events.length === 1);
    expect(server.of('event')).toHaveLength(4);
  });

  test('drops what is refused for good (403), says so once, and goes on', async () => {
    await server.start();
    server.refuse('event', 403, 2);
    for (const note of ['a', 'b', 'c']) poster.post(event(note));
    await server.until(() => server.events.length === 1);
    expect(arrived()).toEqual(['c']);
    expect(log).toEqual(['pod events dropped HTTP 403: refused with 403']);
  });

  test('keeps no more than a bounded number of them, the newest', async () => {
    for (let number = 0; number < 1000; number += 1) poster.post(event(String(number)));
    await server.start();
    await server.until(() => server.events.length === 256);
    expect(arrived().at(-1)).toBe('999');
    expect(log).toEqual(['pod events dropped too many pending events']);
  });

  test('ends at once with events that wait', async () => {
    poster.post(event('a'));
    await eventually(() => true);
    stop.abort();
    await posting;
    await server.start();
    expect(server.events).toEqual([]);
  });
});
