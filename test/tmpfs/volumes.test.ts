import { describe, expect, test } from 'vitest';
import type { Mount } from '../../src/tmpfs/mountinfo.ts';
import { surveyVolumes, volumeMountPoint } from '../../src/tmpfs/volumes.ts';

const kubeletRoot = '/var/lib/kubelet';
const podUid = '3f2504e0-4f89-11d3-9a0c-0305e82c3301';
const cache = { podUid, name: 'cache' };
const cachePath = volumeMountPoint(kubeletRoot, cache);
const pods = `${kubeletRoot}/pods/${podUid}`;

let nextId = 100;
const mount = (mountPoint: string, change: Partial<Mount> = {}): Mount => ({
  id: (nextId += 1),
  parentId: 1,
  device: `0:${nextId}`,
  root: '/',
  mountPoint,
  mountOptions: ['rw'],
  fsType: 'tmpfs',
  source: 'tmpfs',
  superOptions: ['rw', 'size=65536k'],
  ...change,
});
const names = (mounts: readonly Mount[], root = kubeletRoot): string[] =>
  surveyVolumes(mounts, root).volumes.map(({ name }) => name);

describe('volumeMountPoint', () => {
  test('volumeMountPoint returns the path where kubelet mounts a volume', () => {
    expect(cachePath).toBe(`/var/lib/kubelet/pods/${podUid}/volumes/kubernetes.io~empty-dir/cache`);
    expect(volumeMountPoint('/', cache)).toBe(`/pods/${podUid}/volumes/kubernetes.io~empty-dir/cache`);
  });

  test.each([
    ['..', 'cache'],
    ['.', 'cache'],
    ['', 'cache'],
    ['a/b', 'cache'],
    ['a\0', 'cache'],
    ['a\n', 'cache'],
    ['x'.repeat(254), 'cache'],
    [podUid, '..'],
    [podUid, ''],
    [podUid, 'a/b'],
    [podUid, 'Cache'],
    [podUid, 'cache\n'],
    [podUid, 'a.b'],
    [podUid, 'a'.repeat(64)],
  ])('volumeMountPoint rejects pod %j with volume %j', (uid, name) => {
    expect(() => volumeMountPoint(kubeletRoot, { podUid: uid, name })).toThrow(
      expect.objectContaining({ code: 3, reason: 'UNKNOWN_VOLUME' }),
    );
  });

  test('volumeMountPoint accepts a static pod, whose uid is a hash', () => {
    expect(volumeMountPoint('/k', { podUid: '0123456789abcdef0123456789abcdef', name: 'a' })).toContain('/pods/0123');
  });
});

describe('surveyVolumes', () => {
  test('returns the volumes with pod, name, mount point and device', () => {
    const one = mount(cachePath, { device: '0:77' });
    expect(surveyVolumes([mount('/'), one], kubeletRoot)).toEqual({
      volumes: [{ ...cache, mountPoint: cachePath, device: '0:77' }],
      refused: [],
    });
  });

  test.each([
    ['a secret', `${pods}/volumes/kubernetes.io~secret/cache`],
    ['a projected volume', `${pods}/volumes/kubernetes.io~projected/cache`],
    ['a folder in a volume', `${cachePath}/inner`],
    ['the folder of all emptyDirs', `${pods}/volumes/kubernetes.io~empty-dir`],
    ['a subPath', `${pods}/volume-subpaths/cache/web/0`],
    ['a path outside the kubelet root', cachePath.replace('/kubelet/', '/kubelet2/')],
    ['a path in a container', `/run/rootfs${cachePath}`],
    ['an invalid volume name', `${pods}/volumes/kubernetes.io~empty-dir/Cache`],
    ['an invalid pod uid', `${kubeletRoot}/pods/../volumes/kubernetes.io~empty-dir/cache`],
  ])('surveyVolumes ignores %s', (_, mountPoint) => {
    expect(surveyVolumes([mount(mountPoint)], kubeletRoot)).toEqual({ volumes: [], refused: [] });
  });

  test.each<[string, Partial<Mount>, RegExp]>([
    ['another file system', { fsType: 'ext4' }, /ext4/],
    ['a folder of a tmpfs', { root: '/inner' }, /inner/],
    ['a tmpfs without a size', { superOptions: ['rw', 'size=0k'] }, /no size/],
  ])('rejects %s at the mount point of a volume, with the reason', (_, change, why) => {
    expect(surveyVolumes([mount(cachePath, change)], kubeletRoot)).toEqual({
      volumes: [],
      refused: [{ ...cache, mountPoint: cachePath, why: expect.stringMatching(why) as string }],
    });
  });

  test('accepts a tmpfs of the default size, which the kernel does not print', () => {
    expect(names([mount(cachePath, { superOptions: ['rw'] })])).toEqual(['cache']);
  });

  test('surveyVolumes returns only the topmost of stacked mounts', () => {
    const under = mount(cachePath);
    expect(surveyVolumes([under, mount(cachePath, { parentId: under.id, device: '0:99' })], kubeletRoot)).toMatchObject(
      {
        volumes: [{ device: '0:99' }],
      },
    );
    expect(names([under, mount(cachePath, { parentId: under.id, fsType: 'proc' })])).toEqual([]);
    const cover = mount(cachePath, { fsType: 'overlay' });
    expect(names([cover, mount(cachePath, { parentId: cover.id })])).toEqual(['cache']);
  });

  test('rejects two file systems at one mount point when neither is on top', () => {
    expect(surveyVolumes([mount(cachePath), mount(cachePath)], kubeletRoot)).toMatchObject({
      volumes: [],
      refused: [cache],
    });
  });

  test('surveyVolumes returns shared peers of one tmpfs as one volume', () => {
    const peer = mount(cachePath, { device: '0:9', parentId: 50 });
    const copies = [mount(cachePath, { device: '0:9', parentId: 51 }), mount(`/host${cachePath}`, { device: '0:9' })];
    expect(surveyVolumes([peer, ...copies], kubeletRoot)).toMatchObject({ volumes: [cache], refused: [] });
    expect(names([...copies, peer])).toEqual(['cache']);
  });

  test('accepts the subPath mounts of a volume', () => {
    const own = mount(cachePath, { device: '0:9' });
    expect(names([own, mount(`${pods}/volume-subpaths/cache/web/0`, { device: '0:9', root: '/a' })])).toEqual([
      'cache',
    ]);
  });

  test.each([
    ['a secret', `${pods}/volumes/kubernetes.io~secret/password`],
    ['a token of another pod', `${kubeletRoot}/pods/other/volumes/kubernetes.io~projected/kube-api-access-x`],
    ['another volume', `${pods}/volumes/kubernetes.io~empty-dir/other`],
    ['/dev/shm', '/dev/shm'],
  ])('rejects the tmpfs of %s bound over a volume', (_, elsewhere) => {
    const original = mount(elsewhere, { device: '0:9' });
    const bound = mount(cachePath, { device: '0:9' });
    const { volumes, refused } = surveyVolumes([original, bound], kubeletRoot);
    expect(volumes.filter(({ name }) => name === 'cache')).toEqual([]);
    expect(refused).toContainEqual({ ...cache, mountPoint: cachePath, why: `it is the tmpfs of ${elsewhere}` });
  });

  test('accepts bind mounts of a volume, except in other volumes', () => {
    const own = mount(cachePath, { device: '0:9' });
    expect(names([own, mount('/run/containerd/x/rootfs/data', { device: '0:9' })])).toEqual(['cache']);
    expect(names([own, mount(`${pods}/volumes/kubernetes.io~secret/s`, { device: '0:9' })])).toEqual([]);
  });

  test('accepts / as kubelet root', () => {
    expect(names([mount(volumeMountPoint('/', cache))], '/')).toEqual(['cache']);
  });
});
