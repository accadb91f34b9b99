import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { cgroupDrivers, driverOf } from '../../src/cgroups/drivers.ts';
import { noLog } from '../../src/core/observe/interfaces.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { readCheckpoint } from '../../src/kubelet/checkpoint.ts';
import { firstChange } from '../../src/kubernetes/annotations/change.ts';
import { EventPoster } from '../../src/kubernetes/annotations/events.ts';
import type { ApiRequest } from '../../src/kubernetes/client/api.ts';
import { PodClaims } from '../../src/kubernetes/pods/claims.ts';
import type { ApiPod } from '../../src/kubernetes/pods/pod.ts';
import { keyOf, podOf, specOf, whyForeign } from '../../src/kubernetes/pods/pod.ts';
import { SpecStore } from '../../src/kubernetes/pods/spec-store.ts';
import { decode, encode } from '../../src/runtime/codec.ts';
import { recordFile } from '../../src/sandbox/journal/file-names.ts';
import { declarePod } from '../../src/sandbox/pods/declare-pod.ts';
import { noPodSpecs } from '../../src/sandbox/pods/pod-spec.ts';
import { readRequested } from '../../src/sandbox/queue/request.ts';
import { podDirectory } from '../../src/sandbox/report/pod-directory.ts';
import { VolumePolicies } from '../../src/sandbox/volumes/policies.ts';
import { parseVolumeAnnotation, readVolumeAnnotations } from '../../src/tmpfs/sizes.ts';
import { isPodUid, volumeMountPoint } from '../../src/tmpfs/volumes.ts';
import { eventually, FakeClock } from '../support/fake-clock.ts';
import { FakeRuntime, SANDBOX } from '../support/fake-runtime.ts';
import { hostileNames } from '../support/kubernetes/hostile-names.ts';

const KEY = 'volume.cri-resize-shim.io/';
const none = { limits: { cpu: '', memory: '' }, requests: { cpu: '', memory: '' } };

describe('H2: the annotations of a pod', () => {
  test.each(hostileNames)('an annotation with %s as its volume name is rejected', (_, name) => {
    const { policies, errors } = readVolumeAnnotations(Object.fromEntries([[KEY + name, '1Mi']]));
    expect([...policies]).toEqual([]);
    expect(errors.map(({ reason }) => reason)).toEqual(['INVALID_ANNOTATION']);
    expect(() => readRequested({ pod: none, containers: {}, volumes: Object.fromEntries([[name, '1Mi']]) })).toThrow(
      'not the name of a volume',
    );
  });

  test.each(hostileNames)('an annotation with %s as its container name is rejected', (_, name) => {
    expect(() => parseVolumeAnnotation(`${KEY}cache`, `50%/${name}`)).toThrow('not the name of a container');
  });

  test.each(hostileNames)('a mirror annotation with %s is ignored, unless it has the form of a uid', (_, uid) => {
    const annotations = { 'kubernetes.io/config.mirror': uid };
    const ownerReferences = [{ kind: 'Node', name: 'node-1' }];
    const metadata = { uid: 'uid-own', name: 'web', namespace: 'tenant', resourceVersion: '1' };
    const pod = podOf({ metadata: { ...metadata, annotations, ownerReferences } }, 'node-1');
    // Only this name consists of characters that a uid may have. No pod of the node has it.
    const isUid = uid === '__proto__';
    expect(pod).toMatchObject({ uid: isUid ? uid : 'uid-own', isMirror: isUid, namespace: 'tenant', name: 'web' });
  });

  test('annotations set the size of volumes of their own pod only', () => {
    const policies = new VolumePolicies();
    policies.annotate('attacker', { [`${KEY}cache`]: '1Mi', [`${KEY}victim/cache`]: '1Mi' });
    expect(policies.policy('attacker', 'cache')).toEqual({ kind: 'absolute', size: MiB });
    expect(policies.policy('victim', 'cache')).toEqual({ kind: 'fixed' });
  });

  test('a volume may have the name of a member of every object, such as constructor', () => {
    const policy = () => ({ kind: 'fixed' }) as const;
    const requested = { constructor: '1Mi' } as Record<string, string>;
    expect(firstChange({ web: '1Mi' }, { atCreation: {}, requested: {}, policy })).toEqual({
      volume: 'web',
      text: '1Mi',
    });
    expect(firstChange(requested, { atCreation: {}, requested: {}, policy })).toEqual({
      volume: 'constructor',
      text: '1Mi',
    });
    expect(firstChange(requested, { atCreation: {}, requested, policy })).toBeUndefined();
    expect(firstChange({}, { atCreation: {}, requested, policy })).toEqual({ volume: 'constructor', text: undefined });
  });
});

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
    const specs = new SpecStore({ isStatic: () => false, sizeLimitsSeen: () => undefined });
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

describe('H2: the CRI fields of a pod', () => {
  const ROOT = '/var/lib/kubelet';
  let folder: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'names-'));
  });

  afterEach(() => rmSync(folder, { recursive: true }));

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
    const clock = new FakeClock({ endsWaits: true });
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
    const specs = new SpecStore({ isStatic: () => false, sizeLimitsSeen: () => undefined });
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

describe('H2: the labels of a container', () => {
  const RUNNING = 1;
  let runtime: FakeRuntime;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
  });

  afterEach(() => runtime.close());

  test.each(hostileNames.filter(([, name]) => !name.includes('\uD800')))(
    'labels with %s neither name a container nor move it to another pod',
    async (_, name) => {
      const labels = Object.fromEntries([
        ['io.kubernetes.container.name', name],
        ['io.kubernetes.pod.uid', 'uid-victim'],
        ['io.kubernetes.pod.name', name],
        ['io.kubernetes.pod.namespace', 'victim'],
        [name, name],
      ]);
      const asked: unknown[] = [];
      runtime.on('ListContainers', (request) => {
        asked.push(decode('ListContainersRequest', request).filter?.pod_sandbox_id);
        return encode('ListContainersResponse', {
          containers: [{ id: 'web-0', pod_sandbox_id: SANDBOX, metadata: { name: 'web' }, state: RUNNING, labels }],
        });
      });
      const { registry, kubelet } = runtime.node;
      const pod = await registry.pod(SANDBOX);
      const declared = await declarePod({ registry, kubelet, specs: noPodSpecs }, pod!);
      expect(asked).toEqual([SANDBOX]);
      expect(declared.containers.map(({ name: found }) => found)).toEqual(['web']);
      expect(pod?.metadata).toMatchObject({ uid: 'uid-1' });
    },
  );
});
