import { describe, expect, test } from 'vitest';
import { parseChanges } from '../../../src/resizectl/commands/changes.ts';
import { kubeletNotes, roundingNotes } from '../../../src/resizectl/commands/resize.ts';
import type { Messages } from '../../../src/server/api/messages.ts';

const pod = (source: string, name = 'web') => ({
  identity: { sandbox_id: 'a', uid: 'u', namespace: 'default', name },
  declared: { source, containers: [] },
});

describe('a resize of a pod that kubelet manages', () => {
  test('the notes of a resize say what kubelet does, and which command makes the resize permanent', () => {
    const notes = kubeletNotes(pod('kubelet-state'), parseChanges(['app.memory=1Gi', 'app.requests.cpu=250m']));
    expect(notes[0]).toContain('kubelet manages pod default/web and does not know of this resize.');
    expect(notes[1]).toBe(
      'To make it last, tell the API server:\n' +
        '  kubectl patch pod web -n default --subresource resize --patch ' +
        `'{"spec":{"containers":[{"name":"app","resources":{"limits":{"memory":"1Gi"},"requests":{"cpu":"250m"}}}]}}'`,
    );
    expect(notes).toHaveLength(2);
  });

  test('the patch command lists sidecars and init containers under initContainers of the spec', () => {
    const kinds = { proxy: 'sidecar', setup: 'init', app: 'app' };
    const containers = Object.entries(kinds).map(([name, kind]) => ({
      name,
      kind,
      state: 'running',
      limits: { cpu: '', memory: '' },
    }));
    const changes = parseChanges(['proxy.cpu=1', 'app.cpu=2', 'setup.cpu=3']);
    const [, command] = kubeletNotes({ ...pod('spec'), declared: { source: 'spec', containers } }, changes);
    expect(JSON.parse(/--patch '(.*)'$/.exec(command ?? '')?.[1] ?? '')).toEqual({
      spec: {
        containers: [{ name: 'app', resources: { limits: { cpu: '2' } } }],
        initContainers: [
          { name: 'proxy', resources: { limits: { cpu: '1' } } },
          { name: 'setup', resources: { limits: { cpu: '3' } } },
        ],
      },
    });
    const only = kubeletNotes(
      { ...pod('spec'), declared: { source: 'spec', containers } },
      parseChanges(['proxy.cpu=1']),
    );
    expect(only[1]).toContain('{"spec":{"initContainers":[{"name":"proxy"');
  });

  test('the notes for a static pod name its manifest, because the API server does not resize it', () => {
    const { identity, declared } = pod('kubelet-state');
    const uid = '0123456789abcdef0123456789abcdef';
    const notes = kubeletNotes({ identity: { ...identity, uid }, declared }, parseChanges(['app.memory=1Gi']));
    expect(notes[1]).toBe('To make it last, change the manifest of this static pod on its node.');
    expect(notes).toHaveLength(2);
  });

  test('the notes name the changes that have no value in the API server', () => {
    const only = kubeletNotes(pod('spec'), parseChanges(['app.memory=max', 'volume.cache=50%', 'pod.cpu=1']));
    expect(only).toHaveLength(2);
    expect(only[1]).toContain("a removed limit, the pod's own values and volumes; docs/volumes.md has the annotation");
    const both = kubeletNotes(pod('spec'), parseChanges(['app.memory=max', 'app.cpu=1']));
    expect(both[1]).toContain(`{"name":"app","resources":{"limits":{"cpu":"1"}}}`);
    expect(both).toHaveLength(3);
  });

  test('a resize of a pod that a CRI client manages has no note', () => {
    expect(kubeletNotes(pod('inference'), parseChanges(['app.memory=1Gi']))).toEqual([]);
  });

  test('the patch command quotes names for the shell, and has no control characters', () => {
    const [, command] = kubeletNotes(pod('spec', "x'; rm -rf /\u001b"), parseChanges(['app.memory=1Gi']));
    expect(command).toContain(`kubectl patch pod 'x'\\''; rm -rf /?' -n default`);
  });
});

describe('a limit that the kernel rounds', () => {
  const values = (cpu: string, memory: string): Messages['Values'] => ({
    limits: { cpu, memory },
    requests: { cpu: '', memory: '' },
    ...{ cpu_max: '', memory_max: '', cpu_shares: 0, cpu_weight: 0, memory_used_bytes: 0 },
  });
  const after = (cpu: string, memory: string) => ({
    after: {
      pod: values('max', 'max'),
      containers: [{ id: 'c', name: 'app', values: values(cpu, memory) }],
      volumes: [],
    },
  });

  test.each([
    [
      ['app.cpu=1m'],
      after('10m', 'max'),
      ['note: container app.cpu: 1m becomes 10m: the smallest CPU limit is 10m (1 ms of each 100 ms)'],
    ],
    // Another program has set the limit, or systemd has rounded it.
    [['app.cpu=125m'], after('130m', 'max'), ['note: container app.cpu: 125m becomes 130m']],
    [
      ['app.memory=66000'],
      after('max', '65536'),
      ['note: container app.memory: 66000 becomes 64Ki: the kernel counts whole pages'],
    ],
    [['app.cpu=0.5', 'app.memory=1Gi'], after('500m', '1Gi'), []],
    [['app.memory=max'], after('max', 'max'), []],
    [['app.cpu=1m'], {}, []],
  ])('prints a note only if the kernel rounds a limit: %j', (changes, result, notes) => {
    expect(roundingNotes(parseChanges(changes), result)).toEqual(notes);
  });
});
