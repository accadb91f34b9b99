import { describe, expect, test } from 'vitest';
import { type NodeEvent, type PodEvent, eventBody, namespaceOf } from '../../../src/kubernetes/annotations/events.ts';
import type { PostedEvent } from '../../support/kubernetes/fake-api-server.ts';

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
