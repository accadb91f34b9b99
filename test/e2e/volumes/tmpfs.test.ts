import { execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  closeSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import koffi from 'koffi';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { RemountMethod } from '../../../src/tmpfs/index.ts';
import { MemoryVolumes, chooseRemountMethod } from '../../../src/tmpfs/index.ts';
import { bytes } from '../../../src/core/quantities/index.ts';
import {
  KubeletFolder,
  bind,
  isKnownOption,
  mountTmpfs,
  optionsAt,
  podUid,
  sizeAt,
} from '../../support/kubelet-folder.ts';

// tmpfs on the test node's kernel, as root.
const MiB = 1024 * 1024;
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

/** A shell that executes one command after another and reports the end of each. */
function shell(script: string): { next(): Promise<string>; end(): Promise<void>; readonly pid: number } {
  const child = spawn('unshare', ['-m', '--propagation', 'slave', 'sh', '-ec', script], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const ended = once(child, 'exit');
  return {
    pid: child.pid ?? 0,
    async next() {
      child.stdin.write('\n');
      const { value } = (await lines.next()) as { value: unknown };
      return String(value);
    },
    async end() {
      child.stdin.end();
      await ended;
    },
  };
}

const systemCalls = await chooseRemountMethod();
const mountCommand: RemountMethod = { kind: 'mount', because: 'the test says so' };

test('this kernel supports remounts by system calls', async () => {
  expect(systemCalls.kind).toBe('syscalls');
  expect((await volumes.method()).kind).toBe('syscalls');
});

describe.each([
  ['system calls', systemCalls],
  ['mount(8)', mountCommand],
])('a remount by %s', (_, method) => {
  beforeEach(() => {
    volumes = new MemoryVolumes({ kubeletRoot: kubelet.root }, method);
  });

  test.for(MOUNT_OPTIONS)('a remount changes only the size of a volume mounted with %s', async (options) => {
    const folder = kubelet.mountVolume('cache', `size=64m,${options}`);
    const before = optionsAt(folder);
    for (const size of [128 * MiB, 32 * MiB, 100_000_001]) {
      const { outcome, after } = await volumes.remount(cache, bytes(size));
      expect(outcome).toBe('remounted');
      expect(sizeAt(folder).size).toBe(Math.ceil(size / 4096) * 4096);
      expect(after.size).toBe(sizeAt(folder).size);
      expect(optionsAt(folder)).toBe(before);
    }
  });

  test('a remount to the current size, or to one within the same page, does nothing', async () => {
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

  test.each([0, 1, 4095])('a remount to %i bytes, less than a page or no limit, is rejected', async (size) => {
    const folder = kubelet.mountVolume('cache');
    await expect(volumes.remount(cache, bytes(size))).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    expect(sizeAt(folder).size).toBe(64 * MiB);
  });

  test('a remount keeps a mount point that is read-only by itself, or is rejected', async () => {
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
  test('a writer at ENOSPC continues with the same descriptor and loses no byte', async () => {
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

  test('mappings stay valid: writes through them before and after a remount are in the file', async () => {
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

  test('a bind mount in another mount namespace has the new size', async () => {
    const folder = kubelet.mountVolume('cache');
    const inside = kubelet.siblingFolder('container');
    const container = shell(`mount --bind ${folder} ${inside}; while read line; do stat -f -c '%b %S' ${inside}; done`);
    expect(await container.next()).toBe(`${(64 * MiB) / 4096} 4096`);
    await volumes.remount(cache, bytes(96 * MiB));
    expect(await container.next()).toBe(`${(96 * MiB) / 4096} 4096`);
    await container.end();
  });

  test('a volume in another mount namespace is reached through a process', async () => {
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

describe('the volumes of a node', () => {
  test('volumes are the tmpfs at the places of emptyDirs, with size and use, and no other tmpfs', async () => {
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

  test('a tmpfs without a size has no measurable use and cannot be resized', async () => {
    kubelet.mountVolume('cache', 'size=0');
    expect(volumes.survey()).toMatchObject({ volumes: [], refused: [cache] });
    expect(() => volumes.measure(cache)).toThrow(expect.objectContaining({ reason: 'VOLUME_NOT_ELIGIBLE' }));
    await expect(volumes.remount(cache, bytes(MiB))).rejects.toMatchObject({ reason: 'VOLUME_NOT_ELIGIBLE' });
  });

  test('two hundred volumes are listed and resized concurrently', async () => {
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

  test.each(['cache', '.'])('a symbolic link to a secret instead of the folder (%s) is rejected', async (which) => {
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

  test('repeatedly exchanging the folder for a link to a secret never reaches the secret', async () => {
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

  test("a tmpfs bound over the volume is rejected: a secret, a host's, a subfolder of the volume", async () => {
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
    // Without the bind mount it is the volume again.
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

  test('a volume bound over another volume is rejected, and of two mounted tmpfs the upper one counts', async () => {
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
