import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  CgroupFiles,
  cgroupFilePath,
  isCgroupVanished,
  isFileMissing,
  reclaimsOnWrite,
} from '../../src/cgroups/file.ts';

let folder: string;
let root: string;
let files: CgroupFiles;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'cgroup-file-'));
  root = join(folder, 'root');
  mkdirSync(join(root, 'kubepods/pod1'), { recursive: true });
  writeFileSync(join(root, 'kubepods/pod1/memory.max'), 'max\n');
  writeFileSync(join(folder, 'memory.max'), 'outside\n');
  files = new CgroupFiles(root);
});

afterEach(() => rmSync(folder, { recursive: true }));

const caught = async (run: () => unknown): Promise<unknown> => {
  try {
    await run();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
};

describe('the path of a cgroup file', () => {
  test('the path of a cgroup file consists of the root, the cgroup and the file', () => {
    expect(cgroupFilePath('/sys/fs/cgroup', '/kubepods/pod1', 'memory.max')).toBe(
      '/sys/fs/cgroup/kubepods/pod1/memory.max',
    );
    expect(cgroupFilePath('/sys/fs/cgroup', '/', 'cgroup.procs')).toBe('/sys/fs/cgroup/cgroup.procs');
  });

  test.each([
    ['kubepods', 'memory.max'],
    ['', 'memory.max'],
    ['/kubepods/../..', 'memory.max'],
    ['/..', 'memory.max'],
    ['/kubepods\0', 'memory.max'],
    ['/kubepods', '../memory.max'],
    ['/kubepods', 'pod1/memory.max'],
    ['/kubepods', '..'],
    ['/kubepods', ''],
    ['/kubepods', 'memory.max\n'],
  ])('rejects a cgroup or file name that can leave the root: %j %j', (cgroup, file) => {
    expect(() => cgroupFilePath('/sys/fs/cgroup', cgroup, file)).toThrow(
      expect.objectContaining({ reason: 'CGROUP_UNAVAILABLE' }),
    );
  });

  test('the path of a cgroup file may contain names with dots', () => {
    expect(cgroupFilePath('/r', '/a..b/...c', 'cpu.max')).toBe('/r/a..b/...c/cpu.max');
  });
});

describe('reading a cgroup file', () => {
  test('a read returns the content without its last newline, synchronously and asynchronously', async () => {
    expect(files.readNow('/kubepods/pod1', 'memory.max')).toBe('max');
    await expect(files.read('/kubepods/pod1', 'memory.max')).resolves.toBe('max');
  });

  test('a read distinguishes a removed cgroup from a missing file', async () => {
    for (const read of [
      () => files.readNow('/kubepods/pod2', 'memory.max'),
      () => files.read('/kubepods/pod2', 'memory.max'),
    ]) {
      const gone = await caught(read);
      expect(isCgroupVanished(gone)).toBe(true);
      expect(isFileMissing(gone)).toBe(false);
    }
    for (const read of [
      () => files.readNow('/kubepods/pod1', 'memory.high'),
      () => files.read('/kubepods/pod1', 'memory.high'),
    ]) {
      const missing = await caught(read);
      expect(isCgroupVanished(missing)).toBe(false);
      expect(isFileMissing(missing)).toBe(true);
      expect(missing).toMatchObject({
        reason: 'CGROUP_UNAVAILABLE',
        context: { file: join(root, 'kubepods/pod1/memory.high'), errno: 'ENOENT' },
      });
    }
  });

  test('a read does not follow a symbolic link, neither as the file nor as a parent folder', async () => {
    symlinkSync(join(folder, 'memory.max'), join(root, 'kubepods/pod1/memory.high'));
    symlinkSync(folder, join(root, 'kubepods/pod9'));
    for (const [cgroup, file] of [
      ['/kubepods/pod1', 'memory.high'],
      ['/kubepods/pod9', 'memory.max'],
    ] as const) {
      expect(await caught(() => files.readNow(cgroup, file))).toMatchObject({ context: { errno: 'ELOOP' } });
      expect(await caught(() => files.read(cgroup, file))).toMatchObject({ context: { errno: 'ELOOP' } });
    }
  });

  test('a read works when the root is a symbolic link', () => {
    symlinkSync(root, join(folder, 'link'));
    expect(new CgroupFiles(join(folder, 'link')).readNow('/kubepods/pod1', 'memory.max')).toBe('max');
  });
});

describe('reading a cgroup file again', () => {
  const path = (): string => join(root, 'kubepods/pod1/memory.max');
  const read = (): string => files.readNow('/kubepods/pod1', 'memory.max');

  test('a repeated read returns the content that was written in the meantime', () => {
    expect(read()).toBe('max');
    writeFileSync(path(), '4096\n');
    expect(read()).toBe('4096');
    writeFileSync(path(), `${'1 '.repeat(5000)}\n`);
    for (let times = 0; times < 2; times += 1) expect(read()).toHaveLength(10_000);
  });

  test('keeps one descriptor of a cgroup file that is read again', () => {
    const descriptors = (): number =>
      readdirSync('/proc/self/fd').filter((fd) => {
        try {
          return readlinkSync(`/proc/self/fd/${fd}`) === path();
        } catch {
          // The descriptor of the folder itself.
          return false;
        }
      }).length;
    for (let times = 0; times < 3; times += 1) read();
    expect(descriptors()).toBe(1);
  });

  test('a repeated read returns the content of the file that replaced the first one', () => {
    read();
    writeFileSync(`${path()}.new`, '8192\n');
    renameSync(`${path()}.new`, path());
    expect(read()).toBe('8192');
  });

  test('a repeated read reports a removed cgroup, and works again when the cgroup is created again', async () => {
    read();
    rmSync(join(root, 'kubepods/pod1'), { recursive: true });
    expect(isCgroupVanished(await caught(read))).toBe(true);
    mkdirSync(join(root, 'kubepods/pod1'));
    writeFileSync(path(), '1\n');
    expect(read()).toBe('1');
  });
});

describe('writing a cgroup file', () => {
  test('a write sets the content of a cgroup file', async () => {
    await files.write('/kubepods/pod1', 'memory.max', '4096');
    expect(readFileSync(join(root, 'kubepods/pod1/memory.max'), 'utf8')).toBe('4096');
  });

  test('a write creates no missing file, and fails with ENOENT', async () => {
    expect(await caught(() => files.write('/kubepods/pod1', 'memory.high', '4096'))).toMatchObject({
      reason: 'CGROUP_WRITE_FAILED',
      context: { file: join(root, 'kubepods/pod1/memory.high'), asked: '4096', errno: 'ENOENT' },
    });
    expect(readdirSync(join(root, 'kubepods/pod1'))).toEqual(['memory.max']);
  });

  test('a write reports a removed cgroup', async () => {
    const error = await caught(() => files.write('/kubepods/pod2', 'memory.max', '4096'));
    expect(isCgroupVanished(error)).toBe(true);
    expect(error).toMatchObject({ context: { asked: '4096' } });
  });

  test('does not write through a symbolic link', async () => {
    symlinkSync(join(folder, 'memory.max'), join(root, 'kubepods/pod1/memory.high'));
    symlinkSync(folder, join(root, 'kubepods/pod9'));
    for (const [cgroup, file] of [
      ['/kubepods/pod1', 'memory.high'],
      ['/kubepods/pod9', 'memory.max'],
    ] as const) {
      expect(await caught(() => files.write(cgroup, file, '4096'))).toMatchObject({ context: { errno: 'ELOOP' } });
    }
    expect(readFileSync(join(folder, 'memory.max'), 'utf8')).toBe('outside\n');
  });
});

describe('a cgroup', () => {
  test('a cgroup exists when it is a folder', () => {
    expect(files.exists('/kubepods/pod1')).toBe(true);
    expect(files.exists('/kubepods/pod2')).toBe(false);
    expect(files.exists('/kubepods/pod1/memory.max')).toBe(false);
  });

  test('a cgroup has folders but no files as children', async () => {
    mkdirSync(join(root, 'kubepods/pod1/c1'));
    expect(files.children('/kubepods/pod1')).toEqual(['c1']);
    expect(isCgroupVanished(await caught(() => files.children('/kubepods/pod2')))).toBe(true);
  });
});

test.each([
  ['6.15.11', true],
  ['5.14.0-503.el9.x86_64', true],
  ['6.16', false],
  ['6.18.5-cloud', false],
  ['6.16-rc1', false],
  ['7.0.0', false],
  ['custom', true],
])('a write of a lower limit reclaims on kernels before 6.16: %s', (release, reclaims) => {
  expect(reclaimsOnWrite(release)).toBe(reclaims);
});
