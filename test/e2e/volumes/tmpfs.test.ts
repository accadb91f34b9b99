import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, openSync, readFileSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import koffi from 'koffi';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { MemoryVolumes } from '../../../src/tmpfs/memory-volumes.ts';
import { chooseRemountMethod, type RemountMethod } from '../../../src/tmpfs/remount.ts';
import { isKnownOption, KubeletFolder, optionsAt, podUid, sizeAt } from '../../support/kubelet-folder.ts';
import { shell } from '../../support/mount-namespace.ts';

// tmpfs on the test node's kernel, as root.
const cache = { podUid, name: 'cache' };

// Which options a kernel supports depends on its build. The test node's kernel has no huge pages and no NUMA.
const MOUNT_OPTIONS = [
  'rw',
  'nosuid,nodev,noexec',
  'nosuid,nodev,noexec,noatime',
  'noswap,nr_inodes=1234,mode=1770,uid=12,gid=13',
  'huge=within_size',
  'mpol=prefer:0',
  'ro,nosuid',
  'inode32',
].filter(isKnownOption);

let kubelet: KubeletFolder;
let volumes: MemoryVolumes;
beforeEach(() => {
  kubelet = new KubeletFolder();
  volumes = new MemoryVolumes({ kubeletRoot: kubelet.root });
});
afterEach(() => kubelet.remove());

const systemCalls = await chooseRemountMethod();
const mountCommand: RemountMethod = { kind: 'mount', because: 'the test says so' };

test('this kernel supports remounts by system calls', async () => {
  expect(systemCalls.kind).toBe('syscalls');
  expect((await volumes.method()).kind).toBe('syscalls');
});

describe.each([
  ['system calls', systemCalls],
  ['mount(8)', mountCommand],
])('KEP-6030: a volume is remounted by %s', (_, method) => {
  beforeEach(() => {
    volumes = new MemoryVolumes({ kubeletRoot: kubelet.root }, method);
  });

  test.for(MOUNT_OPTIONS)(
    'KEP-6030: a remount resizes a volume mounted with %s and keeps its other mount options',
    async (options) => {
      const folder = kubelet.mountVolume('cache', `size=64m,${options}`);
      const before = optionsAt(folder);
      for (const size of [128 * MiB, 32 * MiB, 100_000_001]) {
        const { outcome, after } = await volumes.remount(cache, bytes(size));
        expect(outcome).toBe('remounted');
        expect(sizeAt(folder).size).toBe(Math.ceil(size / 4096) * 4096);
        expect(after.size).toBe(sizeAt(folder).size);
        expect(optionsAt(folder)).toBe(before);
      }
    },
  );

  test('KEP-6030: a resize to the current size, or to a size within the same page, causes no remount', async () => {
    kubelet.mountVolume('cache', 'size=64m');
    expect(await volumes.remount(cache, bytes(64 * MiB))).toMatchObject({ outcome: 'unchanged' });
    expect(await volumes.remount(cache, bytes(64 * MiB - 4095))).toMatchObject({ outcome: 'unchanged' });
    expect(await volumes.remount(cache, bytes(64 * MiB - 4096))).toMatchObject({ outcome: 'remounted' });
  });

  test('a remount below the stored files is rejected with both figures and changes nothing', async () => {
    const folder = kubelet.mountVolume('cache');
    const content = randomBytes(20 * MiB);
    writeFileSync(join(folder, 'data'), content);
    const before = optionsAt(folder);
    const { used } = sizeAt(folder);
    await expect(volumes.remount(cache, bytes(used - 1 - 4096))).rejects.toMatchObject({
      code: 9,
      reason: 'VOLUME_IN_USE',
      context: { pod: podUid, volume: 'cache', asked: String(used - 1 - 4096), found: String(used) },
    });
    expect(sizeAt(folder)).toEqual({ size: 64 * MiB, used });
    expect(optionsAt(folder)).toBe(before);
    // The exact size of the stored files fits.
    expect(await volumes.remount(cache, bytes(used))).toMatchObject({
      outcome: 'remounted',
      after: { size: used, used },
    });
    expect(readFileSync(join(folder, 'data')).equals(content)).toBe(true);
    // Without the files a smaller size fits.
    rmSync(join(folder, 'data'));
    expect(await volumes.remount(cache, bytes(MiB))).toMatchObject({ after: { size: MiB, used: 0 } });
  });

  test.each([0, 1, 4095])('KEP-6030: a remount to less than a page, %i bytes, is rejected', async (size) => {
    const folder = kubelet.mountVolume('cache');
    await expect(volumes.remount(cache, bytes(size))).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    expect(sizeAt(folder).size).toBe(64 * MiB);
  });

  test('a remount keeps the flags of a read-only mount point of a writable tmpfs, or is rejected', async () => {
    const folder = kubelet.mountVolume('cache');
    execFileSync('mount', ['-o', 'remount,bind,ro,nosuid', folder]);
    const before = optionsAt(folder);
    expect(before).toMatch(/ ro,.* - tmpfs tmpfs rw/);
    if (method.kind === 'mount') {
      await expect(volumes.remount(cache, bytes(MiB))).rejects.toMatchObject({ reason: 'REMOUNT_FAILED' });
      expect(sizeAt(folder).size).toBe(64 * MiB);
    } else {
      await volumes.remount(cache, bytes(MiB));
      expect(sizeAt(folder).size).toBe(MiB);
    }
    expect(optionsAt(folder)).toBe(before);
  });
});

describe('a process that uses a remounted volume', () => {
  test('a writer that got ENOSPC continues after a remount with the same descriptor and loses no byte', async () => {
    const folder = kubelet.mountVolume('cache', 'size=1m,noswap');
    const content = randomBytes(3 * MiB);
    const descriptor = openSync(join(folder, 'data'), 'w+');
    let written = 0;
    const writeOn = (): void => {
      while (written < content.length)
        written += writeSync(descriptor, content, written, Math.min(65536, content.length - written));
    };
    for (const size of [1, 2, 3]) {
      await volumes.remount(cache, bytes(size * MiB));
      if (size < 3) expect(writeOn).toThrow(expect.objectContaining({ code: 'ENOSPC' }));
      if (size < 3) expect(sizeAt(folder)).toEqual({ size: size * MiB, used: size * MiB });
    }
    writeOn();
    closeSync(descriptor);
    const sum = (data: Buffer): string => createHash('sha256').update(data).digest('hex');
    expect(sum(readFileSync(join(folder, 'data')))).toBe(sum(content));
  });

  test('KEP-6030: a mapping of a file stays valid: writes through it before and after a remount are in the file', async () => {
    const folder = kubelet.mountVolume('cache');
    const descriptor = openSync(join(folder, 'data'), 'w+');
    writeSync(descriptor, Buffer.alloc(8192));
    const libc = koffi.load(null);
    const mmap = libc.func('void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset)');
    const mapping: unknown = mmap(null, 8192, 3 /* read and write */, 1 /* shared */, descriptor, 0);
    closeSync(descriptor);
    for (const [index, size] of [128, 1, 64].entries()) {
      koffi.encode(mapping, index, 'uint8', 65 + index);
      await volumes.remount(cache, bytes(size * MiB));
      koffi.encode(mapping, 4096 + index, 'uint8', 97 + index);
    }
    const file = readFileSync(join(folder, 'data'), 'latin1');
    expect([file.slice(0, 3), file.slice(4096, 4099)]).toEqual(['ABC', 'abc']);
    libc.func('int munmap(void *address, size_t length)')(mapping, 8192);
  });

  test('a bind mount in another mount namespace has the new size after a remount', async () => {
    const folder = kubelet.mountVolume('cache');
    const inside = kubelet.siblingFolder('container');
    const container = shell(`mount --bind ${folder} ${inside}; while read line; do stat -f -c '%b %S' ${inside}; done`);
    expect(await container.next()).toBe(`${(64 * MiB) / 4096} 4096`);
    await volumes.remount(cache, bytes(96 * MiB));
    expect(await container.next()).toBe(`${(96 * MiB) / 4096} 4096`);
    await container.end();
  });

  test('KEP-6030: a volume in another mount namespace is found and remounted through a process', async () => {
    const folder = join(kubelet.root, 'pods', podUid, 'volumes/kubernetes.io~empty-dir/cache');
    const host = shell(
      `mkdir -p ${folder}; mount -t tmpfs -o size=64m,nosuid tmpfs ${folder}
       while read line; do stat -f -c '%b %S' ${folder}; done`,
    );
    expect(await host.next()).toBe(`${(64 * MiB) / 4096} 4096`);
    await expect(volumes.remount(cache, bytes(MiB))).rejects.toMatchObject({ reason: 'UNKNOWN_VOLUME' });

    const place = { kubeletRoot: kubelet.root, throughPid: host.pid };
    const through = new MemoryVolumes(place);
    expect(through.list()).toEqual([expect.objectContaining(cache)]);
    expect(await through.remount(cache, bytes(96 * MiB))).toMatchObject({ outcome: 'remounted' });
    expect(await host.next()).toBe(`${(96 * MiB) / 4096} 4096`);
    await expect(new MemoryVolumes(place, mountCommand).remount(cache, bytes(MiB))).rejects.toMatchObject({
      reason: 'REMOUNT_FAILED',
    });
    expect(await host.next()).toBe(`${(96 * MiB) / 4096} 4096`);
    await host.end();
  });
});
