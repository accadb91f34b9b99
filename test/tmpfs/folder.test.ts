import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { bytes } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { MemoryVolumes } from '../../src/tmpfs/memory-volumes.ts';
import { volumeMountPoint } from '../../src/tmpfs/volumes.ts';

// Without root, no mount is possible, so this file tests the rejections before a mount. test/e2e/volumes/tmpfs.test.ts
// and tmpfs-mounts.test.ts test the others.
const podUid = 'u1';
const cache = { podUid, name: 'cache' };
let base: string;
let kubeletRoot: string;
let cachePath: string;
let volumes: MemoryVolumes;

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'volume-folder-')));
  kubeletRoot = join(base, 'kubelet');
  cachePath = volumeMountPoint(kubeletRoot, cache);
  mkdirSync(dirname(cachePath), { recursive: true });
  volumes = new MemoryVolumes({ kubeletRoot }, { kind: 'mount', because: 'the test needs it' });
});
afterEach(() => rmSync(base, { recursive: true }));

const expectRejection = async (error: object): Promise<void> => {
  expect(() => volumes.measure(cache)).toThrow(expect.objectContaining(error));
  await expect(volumes.remount(cache, bytes(MiB))).rejects.toMatchObject(error);
};

describe('a volume', () => {
  test('a volume is unknown if its folder does not exist or is not mounted', async () => {
    const error = { code: 3, reason: 'UNKNOWN_VOLUME' };
    await expectRejection(error);
    mkdirSync(cachePath);
    await expectRejection(error);
    expect(volumes.list()).toEqual([]);
  });

  test('a volume is rejected if its path contains a symbolic link or a file, even if the link leads to a tmpfs', async () => {
    const error = {
      code: 9,
      reason: 'VOLUME_NOT_ELIGIBLE',
      context: { pod: podUid, volume: 'cache', errno: 'ENOTDIR' },
    };
    symlinkSync('/dev/shm', cachePath);
    await expectRejection(error);
    rmSync(cachePath);
    writeFileSync(cachePath, '');
    await expectRejection(error);
    for (const folder of [dirname(cachePath), join(kubeletRoot, 'pods', podUid), join(kubeletRoot, 'pods')]) {
      const real = join(base, 'real');
      mkdirSync(join(real, podUid, 'volumes/kubernetes.io~empty-dir/cache'), { recursive: true });
      rmSync(folder, { recursive: true, force: true });
      symlinkSync(real, folder);
      await expectRejection(error);
      rmSync(folder);
    }
  });

  test('volumes are searched in the mounts of the configured process', () => {
    const through = new MemoryVolumes({ kubeletRoot, throughPid: 2 ** 30 });
    expect(() => through.list()).toThrow(
      expect.objectContaining({ reason: 'VOLUME_NOT_ELIGIBLE', context: { errno: 'ENOENT' } }),
    );
  });
});

describe('the volumes of many pods', () => {
  test('volumes of many pods are found with one reading of the mount table, and with none if no pod has a volume folder', () => {
    for (const uid of ['u2', 'u3'])
      mkdirSync(dirname(volumeMountPoint(kubeletRoot, { podUid: uid, name: 'cache' })), { recursive: true });
    const survey = vi.spyOn(volumes, 'survey');
    const atOnce = volumes.atOnce();
    expect(atOnce.ofPod('without-folder')).toEqual([]);
    expect(survey).not.toHaveBeenCalled();
    for (const uid of [podUid, 'u2', 'u3', podUid]) expect(atOnce.ofPod(uid)).toEqual([]);
    expect(survey).toHaveBeenCalledTimes(1);
    expect(() => atOnce.measure(cache)).toThrow(expect.objectContaining({ reason: 'UNKNOWN_VOLUME' }));
  });

  test('volumes are searched again if the mount table is out of date, and an error of the table is reported for each pod', () => {
    const survey = vi.spyOn(volumes, 'survey');
    const mount = { ...cache, mountPoint: cachePath, device: '0:1' };
    survey.mockReturnValueOnce({ volumes: [mount], refused: [] });
    expect(volumes.atOnce().ofPod(podUid)).toEqual([]);
    expect(survey).toHaveBeenCalledTimes(2);
    survey.mockImplementation(() => {
      throw new Error('no table');
    });
    const atOnce = volumes.atOnce();
    for (const uid of [podUid, podUid]) expect(() => atOnce.ofPod(uid)).toThrow('no table');
  });
});
