import { describe, expect, test } from 'vitest';
import { readCheckpoint } from '../../src/kubelet/checkpoint.ts';
import { hostileNames } from '../support/kubernetes/hostile-names.ts';

/** Limits by container, as kubelet writes them. */
const entry = (...containers: readonly string[]): object => ({
  ContainerResources: Object.fromEntries(containers.map((name) => [name, { limits: { memory: '1Mi' } }])),
});
const read = (entries: object) => {
  const result = readCheckpoint(JSON.stringify({ data: JSON.stringify({ entries }), checksum: 1 }));
  if (result.kind !== 'read') throw new Error(result.why);
  return result;
};

describe('H2: the state files of kubelet', () => {
  test.each(hostileNames)('a checkpoint entry with the uid %s does not affect another pod', (_, uid) => {
    const { pods } = read(Object.fromEntries([[uid, entry('web')]]));
    expect([...pods.keys()]).toEqual([uid]);
    expect(pods.get('uid-victim')).toBeUndefined();
    expect(({} as Record<string, unknown>)['ContainerResources']).toBeUndefined();
  });

  test.each(hostileNames)(
    'a checkpoint entry with the container name %s does not affect other containers',
    (_, name) => {
      const { pods, unrecognized } = read({ 'uid-1': entry(name), 'uid-2': entry('web') });
      expect(unrecognized).toBe(0);
      expect([...(pods.get('uid-1')?.containers.keys() ?? [])]).toEqual([name]);
      expect(pods.get('uid-1')?.containers.get('web')).toBeUndefined();
      expect([...(pods.get('uid-2')?.containers.keys() ?? [])]).toEqual(['web']);
    },
  );

  test('the last entry of a pod counts if a checkpoint has the pod twice, as JSON says', () => {
    const [one, two] = [entry('web'), entry('db')].map((value) => JSON.stringify(value));
    const text = JSON.stringify({ data: `{"entries":{"uid-1":${one},"uid-1":${two}}}`, checksum: 1 });
    const result = readCheckpoint(text);
    expect(result.kind === 'read' && [...(result.pods.get('uid-1')?.containers.keys() ?? [])]).toEqual(['db']);
  });
});
