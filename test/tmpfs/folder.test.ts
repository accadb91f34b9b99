import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MemoryVolumes, volumeMountPoint } from '../../src/tmpfs/index.ts';
import { bytes } from '../../src/core/quantities/index.ts';

// Without root nothing can be mounted: what is refused on the way to the mount. The rest is in test/e2e/volumes/tmpfs.test.ts.
const podUid = 'u1';
const cache = { podUid, name: 'cache' };
let base: string;
let kubeletRoot: string;
let place: string;
let volumes: MemoryVolumes;

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'volume-folder-')));
  kubeletRoot = join(base, 'kubelet');
  place = volumeMountPoint(kubeletRoot, cache);
  mkdirSync(dirname(place), { recursive: true });
  volumes = new MemoryVolumes({ kubeletRoot }, { kind: 'mount', because: 'the test says so' });
});
afterEach(() => rmSync(base, { recursive: true }));

const expectRefusal = async (error: object): Promise<void> => {
  expect(() => volumes.measure(cache)).toThrow(expect.objectContaining(error));
  await expect(volumes.remount(cache, bytes(2 ** 20))).rejects.toMatchObject(error);
};

describe('the folder of a volume', () => {
  test('that is not there, or not mounted, is an unknown volume', async () => {
    const error = { code: 3, reason: 'UNKNOWN_VOLUME' };
    await expectRefusal(error);
    mkdirSync(place);
    await expectRefusal(error);
    expect(volumes.list()).toEqual([]);
  });

  test('that a symbolic link stands for, or leads to, is refused, even when it leads to a tmpfs', async () => {
    const error = {
      code: 9,
      reason: 'VOLUME_NOT_ELIGIBLE',
      context: { pod: podUid, volume: 'cache', errno: 'ENOTDIR' },
    };
    symlinkSync('/dev/shm', place);
    await expectRefusal(error);
    rmSync(place);
    writeFileSync(place, '');
    await expectRefusal(error);
    for (const folder of [dirname(place), join(kubeletRoot, 'pods', podUid), join(kubeletRoot, 'pods')]) {
      const real = join(base, 'real');
      mkdirSync(join(real, podUid, 'volumes/kubernetes.io~empty-dir/cache'), { recursive: true });
      rmSync(folder, { recursive: true, force: true });
      symlinkSync(real, folder);
      await expectRefusal(error);
      rmSync(folder);
    }
  });

  test('is the table of mounts of the process that is named', () => {
    const through = new MemoryVolumes({ kubeletRoot, throughPid: 2 ** 30 });
    expect(() => through.list()).toThrow(
      expect.objectContaining({ reason: 'VOLUME_NOT_ELIGIBLE', context: { errno: 'ENOENT' } }),
    );
  });
});
