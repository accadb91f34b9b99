import { describe, expect, test } from 'vitest';
import { PodClaims } from '../../src/kubernetes/pods/claims.ts';
import { type ApiPod, specOf } from '../../src/kubernetes/pods/pod.ts';
import { SpecStore } from '../../src/kubernetes/pods/spec-store.ts';
import { noLog } from '../../src/core/observe/interfaces.ts';

const victim = { uid: 'uid-victim', namespace: 'shop', name: 'web' };
const pod = (more: Partial<ApiPod>): ApiPod => {
  const spec = specOf({ containers: [{ name: more.name ?? 'web' }] }, undefined);
  return { ...victim, isMirror: false, isEnding: false, volumes: {}, spec, ...more };
};
const attacker = pod({ namespace: 'tenant', name: 'attacker', isMirror: true });

/** A node with these pods, and what it reports. */
function node(...running: readonly (typeof victim & { readonly isStatic?: boolean })[]) {
  const here = [...running];
  const counted: string[] = [];
  const log: object[] = [];
  const claims = new PodClaims({
    podsOf: (uid) => here.filter((one) => one.uid === uid).map((one) => ({ isStatic: false, ...one })),
    log: { ...noLog, warn: (fields) => void log.push(fields) },
    counters: { ignoredPod: (reason) => void counted.push(reason) },
  });
  return { here, claims, counted, log };
}

describe('H2: an object of the API server that claims the uid of another pod', () => {
  test.each([
    ['after it', [pod({}), attacker]],
    ['before it', [attacker, pod({})]],
  ])('a foreign object with the uid of a pod, listed %s, is ignored and counted once', (_, objects) => {
    const { claims, counted, log } = node(victim);
    claims.replace(objects);
    claims.present(attacker);
    claims.replace(objects);
    claims.look(victim.uid);
    expect(counted).toEqual(['other_pod']);
    expect(log).toEqual([{ namespace: 'tenant', pod: 'attacker', uid: 'uid-victim', reason: 'other_pod' }]);
    const specs = new SpecStore(() => false);
    specs.replace(objects);
    expect(specs.of({ ...victim, sandboxId: 'a' })?.containers[0]?.name).toBe('web');
  });

  test('a foreign object with the uid of a pod is counted when the pod starts after it', () => {
    const { here, claims, counted } = node();
    claims.present(attacker);
    expect(counted).toEqual([]);
    here.push(victim);
    claims.look(victim.uid);
    expect(counted).toEqual(['other_pod']);
  });

  test('a foreign object with the uid of a pod is counted again when it was deleted and created again', () => {
    const { claims, counted } = node(victim);
    claims.present(attacker);
    claims.gone(attacker);
    claims.present(attacker);
    claims.replace([]);
    claims.present(attacker);
    expect(counted).toEqual(['other_pod', 'other_pod', 'other_pod']);
  });

  test('further objects with one uid are counted as duplicates while no pod of this node has the uid', () => {
    const { claims, counted } = node();
    claims.present(pod({}));
    claims.present(attacker);
    claims.present(pod({ namespace: 'tenant', name: 'another', isMirror: true }));
    expect(counted).toEqual(['duplicate_uid', 'duplicate_uid']);
  });

  test('a mirror object is counted if its pod is not static, and is not counted if its pod is static', () => {
    const mirror = pod({ isMirror: true });
    const ordinary = node(victim);
    ordinary.claims.present(mirror);
    expect(ordinary.counted).toEqual(['not_static']);
    const ofFile = node({ ...victim, isStatic: true });
    ofFile.claims.present(mirror);
    expect(ofFile.counted).toEqual([]);
  });

  test('the object of a pod with several sandboxes, as after a restart of its sandbox, is not counted', () => {
    const { claims, counted } = node(victim, victim);
    claims.present(pod({}));
    expect(counted).toEqual([]);
  });
});
