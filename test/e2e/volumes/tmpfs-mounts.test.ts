import { execFileSync } from 'node:child_process';
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { MemoryVolumes } from '../../../src/tmpfs/memory-volumes.ts';
import { bind, KubeletFolder, mountTmpfs, podUid, sizeAt } from '../../support/kubelet-folder.ts';
import { shell } from '../../support/mount-namespace.ts';

// Which mounts of the test node's kernel are volumes, as root.
const cache = { podUid, name: 'cache' };

let kubelet: KubeletFolder;
let volumes: MemoryVolumes;
beforeEach(() => {
  kubelet = new KubeletFolder();
  volumes = new MemoryVolumes({ kubeletRoot: kubelet.root });
});
afterEach(() => kubelet.remove());

describe('the volumes of a node', () => {
  test('only tmpfs at the places of emptyDirs are found as volumes, with size and use', async () => {
    const folder = kubelet.mountVolume('cache', 'size=64m');
    kubelet.mountVolume('scratch', 'size=8m');
    kubelet.mountVolume('cache', 'size=16m', 'another-pod');
    const others = [
      kubelet.mountOther('kubernetes.io~secret', 'password'),
      kubelet.mountOther('kubernetes.io~projected', 'kube-api-access-x7k2p'),
      kubelet.mountOther('kubernetes.io~downward-api', 'podinfo'),
      mountTmpfs(join(folder, 'nested'), 'size=2m'),
      mountTmpfs(kubelet.siblingFolder('host-path'), 'size=2m'),
    ];
    const before = others.map((other) => sizeAt(other).size);
    writeFileSync(join(folder, 'data'), Buffer.alloc(MiB));

    expect(volumes.survey().refused).toEqual([]);
    expect(volumes.ofPod(podUid).map(({ name }) => name)).toEqual(['cache', 'scratch']);
    expect(volumes.ofPod('another-pod').map(({ name }) => name)).toEqual(['cache']);
    expect(volumes.list()).toHaveLength(3);
    expect(volumes.measure(cache)).toEqual({ size: 64 * MiB, used: MiB, pageSize: 4096 });

    for (const name of [
      'password',
      'kube-api-access-x7k2p',
      'podinfo',
      'nested',
      'host-path',
      '..',
      'cache/nested',
      '',
    ]) {
      await expect(volumes.remount({ podUid, name }, bytes(MiB))).rejects.toMatchObject({
        code: 3,
        reason: 'UNKNOWN_VOLUME',
      });
    }
    for (const uid of ['..', '.', '', 'no-such-pod', `${podUid}/..`, `../pods/${podUid}`]) {
      const elsewhere = { podUid: uid, name: 'cache' };
      await expect(volumes.remount(elsewhere, bytes(MiB))).rejects.toMatchObject({ reason: 'UNKNOWN_VOLUME' });
    }
    expect(others.map((other) => sizeAt(other).size)).toEqual(before);
  });

  test('no volume is found without kubelet, without a mount, or after an unmount', async () => {
    expect(new MemoryVolumes({ kubeletRoot: join(kubelet.root, 'nothing') }).list()).toEqual([]);
    const folder = kubelet.mountVolume('cache');
    mkdirSync(join(dirname(folder), 'on-disk'));
    expect(volumes.list()).toHaveLength(1);
    for (const name of ['on-disk', 'nothing']) {
      expect(() => volumes.measure({ podUid, name })).toThrow(expect.objectContaining({ reason: 'UNKNOWN_VOLUME' }));
    }
    execFileSync('umount', [folder]);
    expect(volumes.list()).toEqual([]);
    await expect(volumes.remount(cache, bytes(MiB))).rejects.toMatchObject({ reason: 'UNKNOWN_VOLUME' });
  });

  test('the volumes of many pods are found with one reading of the mount table, including remounted ones', () => {
    const uids = ['pod-1', 'pod-2', 'pod-3'];
    const folders = uids.map((uid) => kubelet.mountVolume('cache', 'size=16m', uid));
    const survey = vi.spyOn(volumes, 'survey');
    const atOnce = volumes.atOnce();
    const found = uids.map((uid) => atOnce.ofPod(uid));
    expect(found).toEqual(
      uids.map((uid, index) => [
        { podUid: uid, name: 'cache', mountPoint: folders[index], device: expect.any(String) as string },
      ]),
    );
    expect(atOnce.measure({ podUid: 'pod-2', name: 'cache' })).toEqual({ size: 16 * MiB, used: 0, pageSize: 4096 });
    expect(survey).toHaveBeenCalledTimes(1);

    // The new one is mounted over the old one, so that its device is another one.
    kubelet.mountVolume('cache', 'size=8m', 'pod-2');
    execFileSync('umount', [folders[2]!]);
    const [now] = volumes.ofPod('pod-2');
    expect(now?.device).not.toBe(found[1]?.[0]?.device);
    expect(uids.map((uid) => atOnce.ofPod(uid))).toEqual([found[0], [now], []]);
    expect(atOnce.measure({ podUid: 'pod-2', name: 'cache' }).size).toBe(8 * MiB);
  });

  test('volumes are found if the kubelet root is a symbolic link', async () => {
    const folder = kubelet.mountVolume('cache');
    const link = join(kubelet.siblingFolder('links'), 'kubelet');
    symlinkSync(kubelet.root, link);
    const linked = new MemoryVolumes({ kubeletRoot: link });
    expect(linked.list()).toEqual([{ ...cache, mountPoint: folder, device: expect.any(String) as string }]);
    await linked.remount(cache, bytes(MiB));
    expect(sizeAt(folder).size).toBe(MiB);
  });

  test('volumes are found once if the kubelet root is a shared mount on itself', async () => {
    bind(kubelet.root, kubelet.root);
    execFileSync('mount', ['--make-shared', kubelet.root]);
    const again = kubelet.siblingFolder('again');
    execFileSync('mount', ['--rbind', kubelet.root, again]);
    const folder = kubelet.mountVolume('cache');
    bind(folder, kubelet.siblingFolder(`kubelet/pods/${podUid}/volume-subpaths/cache/web/0`));
    expect(volumes.survey()).toMatchObject({ volumes: [cache], refused: [] });
    await volumes.remount(cache, bytes(MiB));
    expect(sizeAt(folder.replace(kubelet.root, again)).size).toBe(MiB);
  });

  test('a tmpfs without a size cannot be measured or resized', async () => {
    kubelet.mountVolume('cache', 'size=0');
    expect(volumes.survey()).toMatchObject({ volumes: [], refused: [cache] });
    expect(() => volumes.measure(cache)).toThrow(expect.objectContaining({ reason: 'VOLUME_NOT_ELIGIBLE' }));
    await expect(volumes.remount(cache, bytes(MiB))).rejects.toMatchObject({ reason: 'VOLUME_NOT_ELIGIBLE' });
  });

  test('KEP-6030: two hundred volumes are listed and resized concurrently', async () => {
    const names = Array.from({ length: 200 }, (_, index) => `v${index}`);
    kubelet.mountVolumes(names, 'size=4m');
    expect(
      volumes
        .list()
        .map(({ name }) => name)
        .sort(),
    ).toEqual([...names].sort());
    await Promise.all(names.map((name, index) => volumes.remount({ podUid, name }, bytes((5 + (index % 3)) * MiB))));
    for (const [index, name] of names.entries()) {
      expect(volumes.measure({ podUid, name }).size).toBe((5 + (index % 3)) * MiB);
    }
  });
});

describe('hostile mounts', () => {
  const refused = { code: 9, reason: 'VOLUME_NOT_ELIGIBLE' };

  test.each(['cache', '.'])('a symbolic link to a secret in place of the folder (%s) is rejected', async (which) => {
    const secret = kubelet.mountOther('kubernetes.io~secret', 'cache');
    const folder = kubelet.mountVolume('cache');
    expect(volumes.ofPod(podUid)).toHaveLength(1);
    // Between survey and remount, replaces the folder of the volume or of all volumes.
    const place = join(dirname(folder), which === '.' ? '' : which);
    if (which === '.') renameSync(place, `${place}-away`);
    else {
      execFileSync('umount', [folder]);
      rmSync(folder, { recursive: true });
    }
    symlinkSync(which === '.' ? dirname(secret) : secret, place);
    await expect(volumes.remount(cache, bytes(MiB))).rejects.toMatchObject(refused);
    expect(() => volumes.measure(cache)).toThrow(expect.objectContaining(refused));
    expect(sizeAt(secret).size).toBe(4 * MiB);
  });

  test('KEP-6030: repeated replacement of the volume folder by a link to a secret never changes the secret', async () => {
    const secret = kubelet.mountOther('kubernetes.io~secret', 'cache', 'size=4m');
    const folder = kubelet.mountVolume('cache');
    const place = dirname(folder);
    const racer = shell(
      `ln -s ${dirname(secret)} ${place}-link
       echo ready; ( while [ -e ${place}-link ] || [ -e ${place}-real ]; do
         mv -T ${place} ${place}-real; mv -T ${place}-link ${place}
         mv -T ${place} ${place}-link; mv -T ${place}-real ${place}
         [ -e ${place}-stop ] && exit 0
       done ) & read line; wait; echo over`,
    );
    const outcomes = new Map<string, number>();
    const seen = (outcome: string): number => outcomes.get(outcome) ?? 0;
    // Runs at least this many rounds, and until a remount has met the link.
    for (let round = 0; round < 400 || (seen('VOLUME_NOT_ELIGIBLE') === 0 && round < 20_000); round += 1) {
      const outcome = await volumes.remount(cache, bytes((8 + (round % 8)) * MiB)).then(
        ({ outcome: done }) => done,
        (error: unknown) => (error as { reason: string }).reason,
      );
      outcomes.set(outcome, seen(outcome) + 1);
      expect(sizeAt(secret).size).toBe(4 * MiB);
    }
    writeFileSync(`${place}-stop`, '');
    expect(await racer.next()).toBe('ready');
    await racer.end();
    rmSync(`${place}-stop`);
    for (const outcome of outcomes.keys()) {
      expect(['remounted', 'unchanged', 'VOLUME_NOT_ELIGIBLE', 'UNKNOWN_VOLUME']).toContain(outcome);
    }
    expect(seen('remounted')).toBeGreaterThan(0);
    expect(seen('VOLUME_NOT_ELIGIBLE')).toBeGreaterThan(0);
  });

  test('KEP-6030: a tmpfs bound over the volume is rejected: a secret, a tmpfs of the host, a subfolder of the volume', async () => {
    const folder = kubelet.mountVolume('cache');
    mkdirSync(join(folder, 'inner'));
    const secret = kubelet.mountOther('kubernetes.io~secret', 'password');
    const host = mountTmpfs(kubelet.siblingFolder('host'), 'size=2m');
    for (const other of [secret, host, join(folder, 'inner')]) {
      bind(other, folder);
      const before = sizeAt(folder);
      expect(volumes.survey()).toMatchObject({ volumes: [], refused: [cache] });
      await expect(volumes.remount(cache, bytes(8 * MiB))).rejects.toMatchObject(refused);
      expect(sizeAt(folder)).toEqual(before);
      execFileSync('umount', [folder]);
    }
    // Without the bind mount, the folder is the volume again.
    await volumes.remount(cache, bytes(8 * MiB));
    expect(sizeAt(folder).size).toBe(8 * MiB);
  });

  test('another file system mounted over the volume is rejected', async () => {
    const folder = kubelet.mountVolume('cache');
    execFileSync('mount', ['-t', 'proc', 'proc', folder]);
    expect(volumes.survey()).toMatchObject({
      volumes: [],
      refused: [{ ...cache, why: expect.stringContaining('proc') as string }],
    });
    await expect(volumes.remount(cache, bytes(MiB))).rejects.toMatchObject(refused);
    execFileSync('umount', [folder]);
    expect(sizeAt(folder).size).toBe(64 * MiB);
  });

  test('a volume bound over another volume is rejected, and the upper one of two mounted tmpfs is resized', async () => {
    const folder = kubelet.mountVolume('cache');
    const other = kubelet.mountVolume('other', 'size=16m');
    bind(other, folder);
    await expect(volumes.remount(cache, bytes(MiB))).rejects.toMatchObject(refused);
    expect(sizeAt(other).size).toBe(16 * MiB);
    execFileSync('umount', [folder]);

    kubelet.mountVolume('cache', 'size=32m');
    await volumes.remount(cache, bytes(8 * MiB));
    expect(sizeAt(folder).size).toBe(8 * MiB);
    execFileSync('umount', [folder]);
    expect(sizeAt(folder).size).toBe(64 * MiB);
  });
});
