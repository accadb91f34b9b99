import { describe, expect, test } from 'vitest';
import type { Mount } from '../../src/tmpfs/mountinfo.ts';
import { surveyVolumes, volumeMountPoint } from '../../src/tmpfs/index.ts';

const kubeletRoot = '/var/lib/kubelet';
const podUid = '3f2504e0-4f89-11d3-9a0c-0305e82c3301';
const cache = { podUid, name: 'cache' };
const place = volumeMountPoint(kubeletRoot, cache);
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

describe('the place of a volume', () => {
  test('is where kubelet mounts it', () => {
    expect(place).toBe(`/var/lib/kubelet/pods/${podUid}/volumes/kubernetes.io~empty-dir/cache`);
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
  ])('is nowhere for pod %j and volume %j', (uid, name) => {
    expect(() => volumeMountPoint(kubeletRoot, { podUid: uid, name })).toThrow(
      expect.objectContaining({ code: 3, reason: 'UNKNOWN_VOLUME' }),
    );
  });

  test('may be that of a static pod, whose uid is a hash', () => {
    expect(volumeMountPoint('/k', { podUid: '0123456789abcdef0123456789abcdef', name: 'a' })).toContain('/pods/0123');
  });
});

describe('a survey of the mounts', () => {
  test('finds the volumes, with pod, name, place and file system', () => {
    const one = mount(place, { device: '0:77' });
    expect(surveyVolumes([mount('/'), one], kubeletRoot)).toEqual({
      volumes: [{ ...cache, mountPoint: place, device: '0:77' }],
      refused: [],
    });
  });

  test.each([
    ['a secret', `${pods}/volumes/kubernetes.io~secret/cache`],
    ['a projected volume', `${pods}/volumes/kubernetes.io~projected/cache`],
    ['a folder in a volume', `${place}/inner`],
    ['the folder of all emptyDirs', `${pods}/volumes/kubernetes.io~empty-dir`],
    ['a subPath', `${pods}/volume-subpaths/cache/web/0`],
    ['a place beside kubelet', place.replace('/kubelet/', '/kubelet2/')],
    ['a place in a container', `/run/rootfs${place}`],
    ['a name that is none', `${pods}/volumes/kubernetes.io~empty-dir/Cache`],
    ['a uid that is none', `${kubeletRoot}/pods/../volumes/kubernetes.io~empty-dir/cache`],
  ])('does not take %s for a volume', (_, mountPoint) => {
    expect(surveyVolumes([mount(mountPoint)], kubeletRoot)).toEqual({ volumes: [], refused: [] });
  });

  test.each<[string, Partial<Mount>, RegExp]>([
    ['another file system', { fsType: 'ext4' }, /ext4/],
    ['a folder of a tmpfs', { root: '/inner' }, /inner/],
    ['a tmpfs without a size', { superOptions: ['rw', 'size=0k'] }, /no size/],
  ])('refuses %s at the place, and says why', (_, change, why) => {
    expect(surveyVolumes([mount(place, change)], kubeletRoot)).toEqual({
      volumes: [],
      refused: [{ ...cache, mountPoint: place, why: expect.stringMatching(why) as string }],
    });
  });

  test('takes a tmpfs of the default size, which the kernel does not print', () => {
    expect(names([mount(place, { superOptions: ['rw'] })])).toEqual(['cache']);
  });

  test('counts the top-most of mounts on top of each other', () => {
    const under = mount(place);
    expect(surveyVolumes([under, mount(place, { parentId: under.id, device: '0:99' })], kubeletRoot)).toMatchObject({
      volumes: [{ device: '0:99' }],
    });
    expect(names([under, mount(place, { parentId: under.id, fsType: 'proc' })])).toEqual([]);
    const cover = mount(place, { fsType: 'overlay' });
    expect(names([cover, mount(place, { parentId: cover.id })])).toEqual(['cache']);
  });

  test('refuses when two file systems are there and neither is on top', () => {
    expect(surveyVolumes([mount(place), mount(place)], kubeletRoot)).toMatchObject({ volumes: [], refused: [cache] });
  });

  test('takes shared peers of one tmpfs for one volume, at both ends', () => {
    const peer = mount(place, { device: '0:9', parentId: 50 });
    const copies = [mount(place, { device: '0:9', parentId: 51 }), mount(`/host${place}`, { device: '0:9' })];
    expect(surveyVolumes([peer, ...copies], kubeletRoot)).toMatchObject({ volumes: [cache], refused: [] });
    expect(names([...copies, peer])).toEqual(['cache']);
  });

  test("takes a volume's own subPath mounts for what they are", () => {
    const own = mount(place, { device: '0:9' });
    expect(names([own, mount(`${pods}/volume-subpaths/cache/web/0`, { device: '0:9', root: '/a' })])).toEqual([
      'cache',
    ]);
  });

  test.each([
    ['a secret', `${pods}/volumes/kubernetes.io~secret/password`],
    ['a token of another pod', `${kubeletRoot}/pods/other/volumes/kubernetes.io~projected/kube-api-access-x`],
    ['another volume', `${pods}/volumes/kubernetes.io~empty-dir/other`],
    ['/dev/shm', '/dev/shm'],
  ])('refuses the tmpfs of %s bound over the place', (_, elsewhere) => {
    const original = mount(elsewhere, { device: '0:9' });
    const bound = mount(place, { device: '0:9' });
    const { volumes, refused } = surveyVolumes([original, bound], kubeletRoot);
    expect(volumes.filter(({ name }) => name === 'cache')).toEqual([]);
    expect(refused).toContainEqual({ ...cache, mountPoint: place, why: `it is the tmpfs of ${elsewhere}` });
  });

  test('does not mind where a volume is bound to later, outside of other volumes', () => {
    const own = mount(place, { device: '0:9' });
    expect(names([own, mount('/run/containerd/x/rootfs/data', { device: '0:9' })])).toEqual(['cache']);
    expect(names([own, mount(`${pods}/volumes/kubernetes.io~secret/s`, { device: '0:9' })])).toEqual([]);
  });

  test('works where the kubelet root is the root', () => {
    expect(names([mount(volumeMountPoint('/', cache))], '/')).toEqual(['cache']);
  });
});
