import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { cgroupOfPid, cgroupVersion, parseProcCgroup } from '../../src/cgroups/proc.ts';

describe('/proc/<pid>/cgroup', () => {
  test.each([
    ['0::/kubepods/pod1/c1\n', '/kubepods/pod1/c1'],
    ['0::/\n', '/'],
    ['12:memory:/user.slice\n1:name=systemd:/init.scope\n0::/kubepods/pod1\n', '/kubepods/pod1'],
    ['0::/a:b/c::d\n', '/a:b/c::d'],
    ['12:memory:/user.slice\n1:name=systemd:/\n', undefined],
    ['0::/kubepods/pod1 (deleted)\n', undefined],
    ['', undefined],
  ])('/proc/<pid>/cgroup with content %j has the path %s', (text, path) => {
    expect(parseProcCgroup(text)).toBe(path);
  });

  describe('the cgroup of a process', () => {
    let root: string;
    beforeEach(() => {
      root = mkdtempSync(join(tmpdir(), 'cgroup-proc-'));
    });
    afterEach(() => rmSync(root, { recursive: true }));

    test('reads the cgroup of a process from its folder in /proc', async () => {
      mkdirSync(join(root, '42'));
      writeFileSync(join(root, '42/cgroup'), '0::/kubepods/pod1/c1\n');
      await expect(cgroupOfPid(42, root)).resolves.toBe('/kubepods/pod1/c1');
    });

    test('a process that has ended has no cgroup, and an unreadable file is an error', async () => {
      await expect(cgroupOfPid(43, root)).resolves.toBeUndefined();
      mkdirSync(join(root, '44/cgroup'), { recursive: true });
      await expect(cgroupOfPid(44, root)).rejects.toMatchObject({
        reason: 'CGROUP_UNAVAILABLE',
        message: expect.stringContaining(`${join(root, '44/cgroup')} cannot be read: EISDIR`) as string,
        context: { file: join(root, '44/cgroup'), errno: 'EISDIR' },
        cause: { code: 'EISDIR' },
      });
    });

    test('cgroupVersion distinguishes version 2, version 1 and no root', () => {
      expect(cgroupVersion(root)).toBe(1);
      writeFileSync(join(root, 'cgroup.controllers'), 'cpu memory\n');
      expect(cgroupVersion(root)).toBe(2);
      expect(cgroupVersion(join(root, 'nothing'))).toBeUndefined();
    });
  });

  test('the cgroup of this process equals /proc/self/cgroup', async () => {
    expect(await cgroupOfPid(process.pid)).toBe(parseProcCgroup(readFileSync('/proc/self/cgroup', 'utf8')));
    expect(await cgroupOfPid(2 ** 30)).toBeUndefined();
  });
});
