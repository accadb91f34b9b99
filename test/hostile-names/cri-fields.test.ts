import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { cgroupDrivers, driverOf } from '../../src/cgroups/drivers.ts';
import { EventPoster } from '../../src/kubernetes/annotations/events.ts';
import { keyOf, whyForeign, specOf } from '../../src/kubernetes/pods/pod.ts';
import { SpecStore } from '../../src/kubernetes/pods/spec-store.ts';
import { noLog } from '../../src/core/observe/interfaces.ts';
import { podDirectory } from '../../src/sandbox/report/pod-directory.ts';
import { recordFile } from '../../src/sandbox/journal/file-names.ts';
import { isPodUid, volumeMountPoint } from '../../src/tmpfs/volumes.ts';
import type { ApiRequest } from '../../src/kubernetes/client/api.ts';
import { FakeQuickClock, eventually } from '../support/fake-clock.ts';
import { hostileNames } from '../support/kubernetes/hostile-names.ts';

const ROOT = '/var/lib/kubelet';
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'names-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('H2: the CRI fields of a pod', () => {
  test.each(hostileNames)('the journal file of a pod with the uid %s stays in the folder of the journal', (_, uid) => {
    const file = join(folder, recordFile(uid));
    expect(dirname(file)).toBe(folder);
    expect(file.length).toBeLessThan(folder.length + 100);
    expect(readdirSync(folder)).toEqual([]);
  });

  test.each(hostileNames)('a pod with the uid %s has no volume path outside its own folder', (_, uid) => {
    const path = (): string => volumeMountPoint(ROOT, { podUid: uid, name: 'cache' });
    if (isPodUid(uid)) expect(path()).toBe(`${ROOT}/pods/${uid}/volumes/kubernetes.io~empty-dir/cache`);
    else expect(path).toThrow('not a pod uid and a volume');
  });

  test.each(hostileNames)('the volume name %s is rejected', (_, name) => {
    expect(() => volumeMountPoint(ROOT, { podUid: 'uid-1', name })).toThrow('not a pod uid and a volume');
  });

  test.each(hostileNames)('a cgroup_parent with %s stays below the cgroup root or is rejected', (_, name) => {
    for (const parent of [name, `/kubepods/${name}`, `${name}.slice`, `/kubepods.slice/${name}`]) {
      let cgroup: string | undefined;
      try {
        cgroup = driverOf(parent).podCgroup(parent);
      } catch (error) {
        expect((error as Error).message).toContain('invalid cgroup name');
        continue;
      }
      if (cgroup === undefined) continue;
      expect(cgroup.startsWith('/')).toBe(true);
      expect(cgroup.split('/')).not.toContain('..');
      expect(cgroup).not.toContain('\0');
    }
  });

  test.each(hostileNames.filter(([, name]) => name.length < 1000))(
    'the container id %s is rejected as a cgroup name',
    (_, id) => {
      for (const driver of Object.values(cgroupDrivers)) {
        const parent = driver.name === 'systemd' ? 'kubepods-pod1.slice' : '/kubepods/pod1';
        expect(() => driver.containerCgroup(parent, id)).toThrow('invalid cgroup name');
      }
    },
  );

  test.each(hostileNames)('no event is sent to the API server for a pod in the namespace %s', async (_, namespace) => {
    const asked: string[] = [];
    const stop = new AbortController();
    const api = ({ path }: ApiRequest): Promise<never> => {
      asked.push(path);
      return Promise.reject(new Error('not served'));
    };
    const clock = new FakeQuickClock();
    const poster = new EventPoster({ api, nodeName: 'node-1', clock, random: () => 0, log: noLog });
    const running = poster.run(stop.signal);
    const post = (of: string): void =>
      poster.post({ pod: { uid: 'uid-1', namespace: of, name: 'web' }, reason: 'VolumeResized', note: '', at: 0 });
    post(namespace);
    post('shop');
    await eventually(() => asked.length > 0);
    stop.abort();
    await running;
    expect(new Set(asked)).toEqual(new Set(['/apis/events.k8s.io/v1/namespaces/shop/events']));
  });

  test('no two pods have one key, regardless of the separators in their names', () => {
    const parts = ['a', 'a/b', 'b', 'b/c', '/', '', '"', '","', ...hostileNames.map(([, name]) => name)];
    const keys = new Set<string>();
    for (const namespace of parts)
      for (const name of parts) for (const uid of parts) keys.add(keyOf({ namespace, name, uid }));
    expect(keys.size).toBe(new Set(parts).size ** 3);
  });

  test('pods with names that only look alike are different pods', () => {
    const specs = new SpecStore(() => false);
    const spec = specOf({ containers: [{ name: 'web' }] }, undefined);
    // The last letter but one of the first name is Cyrillic, and the second one is not in composed form.
    const names = ['wеb', 'we\u0301b', 'WEB', 'web ', 'web\0'];
    for (const name of names)
      specs.present({ uid: 'uid-1', namespace: 'default', name, isMirror: false, isEnding: false, volumes: {}, spec });
    const web = { uid: 'uid-1', namespace: 'default', name: 'web' };
    expect(specs.of({ ...web, sandboxId: 'a' })).toBeUndefined();
    for (const name of names) expect(whyForeign({ ...web, name, isMirror: false }, web, false)).toBe('other_pod');
  });

  test.each(hostileNames)('a lookup of a pod by %s is rejected before the backend is asked', async (_, text) => {
    const never = (): never => {
      throw new Error('the backend was asked');
    };
    const registry = {
      pods: [],
      pod: never,
      container: never,
      refresh: never,
      refreshPods: never,
      refreshContainers: never,
    };
    const directory = podDirectory({ registry, volumes: { atOnce: never }, isReady: never, readPodView: never });
    const name = 'web';
    await expect(directory.find({ by: 'uid', uid: text })).rejects.toThrow('expected 1 to 253');
    await expect(directory.find({ by: 'sandbox_id', id: text })).rejects.toThrow('expected 1 to 253');
    await expect(directory.find({ by: 'name', namespace: text, name })).rejects.toThrow('expected 1 to 253');
  });
});
