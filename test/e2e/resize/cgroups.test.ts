import type { ChildProcessByStdio } from 'node:child_process';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { CGROUP_ROOT, isCgroupVanished, isFileMissing } from '../../../src/cgroups/file.ts';
import { cgroupOfPid, cgroupVersion } from '../../../src/cgroups/proc.ts';
import { CgroupTree } from '../../../src/cgroups/tree.ts';
import { weightOfShares } from '../../../src/cgroups/values/conversions.ts';
import type { CgroupWrite } from '../../../src/cgroups/values/write.ts';
import { bytes, cpuShares, cpuWeight, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';

// cgroup v2 of the test node's kernel, as root.
const parent = `/shim-e2e-${process.pid}`;
const pod = `${parent}/pod1`;
const inRoot = (path: string): string => join(CGROUP_ROOT, path);
const kernelSays = (file: string, cgroup = pod): string => readFileSync(inRoot(`${cgroup}/${file}`), 'utf8').trim();
const tree = new CgroupTree();

/** A small process in a cgroup. It executes commands and acknowledges each one. */
class Tenant {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #answers: AsyncIterator<string>;
  static readonly #script = `$| = 1; my @held;
    while (<STDIN>) { chomp; my ($do, $what) = split / /, $_, 2;
      if ($do eq "hold") { my $x = ""; vec($x, $what - 1, 8) = 1; push @held, \\$x; }
      if ($do eq "run") { system($what) == 0 or print("failed\\n"), next; }
      print "done\\n"; }`;

  constructor(cgroup: string) {
    // Enters the cgroup first, so that all of its pages are charged there.
    this.#child = spawn(
      'sh',
      ['-c', 'echo $$ > "$0" && exec perl -e "$1"', inRoot(`${cgroup}/cgroup.procs`), Tenant.#script],
      {
        stdio: ['pipe', 'pipe', 'inherit'],
      },
    );
    this.#answers = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get alive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  async run(command: string): Promise<void> {
    this.#child.stdin.write(`${command}\n`);
    const { value } = (await this.#answers.next()) as { value: unknown };
    expect(value, command).toBe('done');
  }

  async end(): Promise<void> {
    if (!this.alive) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
  }
}

const tenants: Tenant[] = [];
const tenantIn = (cgroup: string): Tenant => {
  const tenant = new Tenant(cgroup);
  tenants.push(tenant);
  return tenant;
};

beforeAll(() => {
  mkdirSync(inRoot(parent));
  writeFileSync(inRoot(`${parent}/cgroup.subtree_control`), '+cpu +memory +pids');
});
afterAll(() => rmdirSync(inRoot(parent)));
beforeEach(() => mkdirSync(inRoot(pod)));
afterEach(async () => {
  for (const tenant of tenants.splice(0)) await tenant.end();
  if (tree.exists(pod)) rmdirSync(inRoot(pod));
});

describe('limits of a cgroup', () => {
  test('a new cgroup has limits of max and the default weight', async () => {
    expect(await tree.readLimits(pod)).toEqual({
      memoryMax: 'max',
      cpuMax: { quota: 'max', period: 100_000 },
      cpuWeight: 100,
    });
    const swap = statSync(inRoot(`${pod}/memory.swap.max`), { throwIfNoEntry: false }) ? 'max' : undefined;
    expect(tree.readSwapMax(pod)).toBe(swap);
  });

  test('memory.max reads back as written, rounded down to a page', async () => {
    const step = { file: 'memory.max', value: bytes(100_000_000) } as const;
    expect(await tree.write(pod, step)).toEqual({ outcome: 'written', found: '99999744' });
    expect(kernelSays('memory.max')).toBe('99999744');
    expect((await tree.readLimits(pod)).memoryMax).toBe(99_999_744);
    // Writing the same value or the rounded one changes nothing.
    expect(await tree.write(pod, step)).toEqual({ outcome: 'unchanged', found: '99999744' });
    expect(await tree.write(pod, { ...step, value: bytes(99_999_744) })).toMatchObject({ outcome: 'unchanged' });
    // One more page is a different limit.
    expect(await tree.write(pod, { ...step, value: bytes(99_999_744 + 4096) })).toMatchObject({ outcome: 'written' });
    expect(await tree.write(pod, { ...step, value: 'max' })).toEqual({ outcome: 'written', found: 'max' });
    expect(kernelSays('memory.max')).toBe('max');
  });

  test.each(['memory.high', 'memory.low', 'memory.min'] as const)('%s reads back as written', async (file) => {
    await tree.write(pod, { file, value: bytes(64 * MiB) });
    expect(kernelSays(file)).toBe(String(64 * MiB));
  });

  test('cpu.max reads back with quota, period and "max"', async () => {
    for (const [quota, period, found] of [
      [microseconds(50_000), 100_000, '50000 100000'],
      [microseconds(1000), 1_000_000, '1000 1000000'],
      [microseconds(50_000), 1000, '50000 1000'],
      ['max', 50_000, 'max 50000'],
    ] as const) {
      const step = { file: 'cpu.max', value: { quota, period: microseconds(period) } } as const;
      expect(await tree.write(pod, step)).toEqual({ outcome: 'written', found });
      expect(kernelSays('cpu.max')).toBe(found);
      expect(await tree.write(pod, step)).toEqual({ outcome: 'unchanged', found });
    }
  });

  test('cpu.weight reads back each weight that results from shares', async () => {
    const shares = [2, 3, 10, 102, 512, 1000, 1024, 2048, 4096, 10240, 65536, 262143, 262144].map(cpuShares);
    const weights = shares.flatMap((value) => [weightOfShares(value, 'old'), weightOfShares(value, 'new')]);
    for (const weight of [...weights, ...[1, 2, 99, 101, 9999].map(cpuWeight)]) {
      await tree.write(pod, { file: 'cpu.weight', value: weight });
      expect(kernelSays('cpu.weight')).toBe(String(weight));
    }
  });

  test('cpu.weight of an idle cgroup is 0, or 1 in newer kernels', async () => {
    await tree.write(pod, { file: 'unified', key: 'cpu.idle', value: '1' });
    const { cpuWeight: weight } = await tree.readLimits(pod);
    expect(weight).toBe(Number(kernelSays('cpu.weight')));
    expect(weight).toBeLessThanOrEqual(1);
  });

  test('unified keys read back in the format of the kernel', async () => {
    const group = { file: 'unified', key: 'memory.oom.group', value: '1' } as const;
    expect(await tree.write(pod, group)).toEqual({ outcome: 'written', found: '1' });
    expect(await tree.write(pod, group)).toEqual({ outcome: 'unchanged', found: '1' });
    const high = { file: 'unified', key: 'memory.high', value: '100M' } as const;
    expect(await tree.write(pod, high)).toEqual({ outcome: 'written', found: String(100 * MiB) });
  });
});

describe('a value that the kernel rejects', () => {
  test.each<[CgroupWrite, object]>([
    [
      { file: 'unified', key: 'memory.high', value: 'plenty' },
      { code: 3, context: { errno: 'EINVAL', asked: 'plenty' } },
    ],
    [
      { file: 'unified', key: 'pids.max', value: '-5' },
      { code: 3, context: { errno: 'EINVAL' } },
    ],
    // The burst exceeds this quota, which the kernel reports only at this write.
    [
      { file: 'cpu.max', value: { quota: microseconds(10_000), period: microseconds(100_000) } },
      { code: 3, context: { errno: 'EINVAL', asked: '10000 100000' } },
    ],
  ])('a rejected write returns an error with file, value and errno, and changes nothing: %j', async (step, error) => {
    await tree.write(pod, { file: 'cpu.max', value: { quota: microseconds(40_000), period: microseconds(100_000) } });
    await tree.write(pod, { file: 'unified', key: 'cpu.max.burst', value: '40000' });
    const file = step.file === 'unified' ? step.key : step.file;
    const before = kernelSays(file);
    await expect(tree.write(pod, step)).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED', ...error });
    await expect(tree.write(pod, step)).rejects.toMatchObject({ context: { file: inRoot(`${pod}/${file}`) } });
    expect(kernelSays(file)).toBe(before);
  });

  test('a cgroup file that the kernel lacks is reported as missing, not as a vanished cgroup', async () => {
    const step = { file: 'unified', key: 'memory.no.such.thing', value: '1' } as const;
    await expect(tree.write(pod, step)).rejects.toSatisfy(isFileMissing);
  });
});

describe('a cgroup that is removed', () => {
  test('every operation reports a removed cgroup as vanished', async () => {
    rmdirSync(inRoot(pod));
    expect(tree.exists(pod)).toBe(false);
    await expect(tree.readLimits(pod)).rejects.toSatisfy(isCgroupVanished);
    await expect(tree.readMemoryUse(pod)).rejects.toSatisfy(isCgroupVanished);
    await expect(tree.write(pod, { file: 'memory.max', value: 'max' })).rejects.toSatisfy(isCgroupVanished);
    expect(() => tree.children(pod)).toThrow(expect.objectContaining({ reason: 'CGROUP_UNAVAILABLE' }));
  });

  test('a call during which the cgroup is removed succeeds or reports the cgroup as vanished', async () => {
    const outcomes = new Set<string>();
    for (let round = 0; round < 60; round += 1) {
      if (!tree.exists(pod)) mkdirSync(inRoot(pod));
      const calls = [
        tree.readMemoryUse(pod),
        tree.write(pod, { file: 'memory.max', value: bytes((round + 1) * MiB) }),
        tree.readMemoryUse(pod),
        tree.write(pod, { file: 'cpu.weight', value: cpuWeight(round + 200) }),
      ];
      // Waits for a different number of event loop turns, so that the removal hits a different point each time.
      for (let turn = 0; turn < round % 12; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      rmdirSync(inRoot(pod));
      for (const outcome of await Promise.allSettled(calls)) {
        if (outcome.status === 'rejected') expect(isCgroupVanished(outcome.reason), String(outcome.reason)).toBe(true);
        outcomes.add(outcome.status);
      }
    }
    expect(outcomes).toContain('rejected');
  });
});

describe('memory usage', () => {
  const volume = mkdtempSync(join(tmpdir(), 'cgroup-volume-'));
  afterEach(() => execFileSync('sh', ['-c', 'umount "$0" 2>/dev/null; true', volume]));
  afterAll(() => rmSync(volume, { recursive: true }));
  const near = (found: number, expected: number): void => {
    expect(found).toBeGreaterThan(expected - MiB);
    expect(found).toBeLessThan(expected + 3 * MiB);
  };

  test('memory usage is separated into reclaimable and unreclaimable memory', async () => {
    const tenant = tenantIn(pod);
    await tenant.run('warm up');
    const start = await tree.readMemoryUse(pod);
    expect(start.current).toBe(Number(kernelSays('memory.current')));

    await tenant.run(`hold ${30 * MiB}`);
    const anonymous = await tree.readMemoryUse(pod);
    near(anonymous.anon - start.anon, 30 * MiB);
    near(anonymous.unreclaimable - start.unreclaimable, 30 * MiB);

    // Mounted as kubelet mounts a volume. Its pages are both shmem and unevictable, and must count once.
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64m,noswap', 'tmpfs', volume]);
    await tenant.run(`run dd if=/dev/zero of=${volume}/data bs=1M count=20 status=none`);
    const stored = await tree.readMemoryUse(pod);
    near(stored.shmem - anonymous.shmem, 20 * MiB);
    near(stored.unevictable - anonymous.unevictable, 20 * MiB);
    near(stored.unreclaimable - anonymous.unreclaimable, 20 * MiB);

    // Page cache of a file that no other process has read: in use, and fully reclaimable.
    const file = join(import.meta.dirname, '../../../node_modules/typescript/lib/typescript.js');
    writeFileSync('/proc/sys/vm/drop_caches', '1');
    await tenant.run(`run cat ${file} > /dev/null`);
    const cached = await tree.readMemoryUse(pod);
    expect(cached.file - stored.file).toBeGreaterThan(statSync(file).size - MiB);
    expect(cached.current - stored.current).toBeGreaterThan(statSync(file).size - MiB);
    expect(cached.unreclaimable - stored.unreclaimable).toBeLessThan(2 * MiB);
    expect(cached.unreclaimable).toBeLessThanOrEqual(cached.current);
  });

  test('a limit above unreclaimable usage kills nothing, and one below it kills', async () => {
    const tenant = tenantIn(pod);
    await tenant.run(`hold ${40 * MiB}`);
    const { unreclaimable, oomKills } = await tree.readMemoryUse(pod);
    expect(oomKills).toBe(0);
    await tree.write(pod, { file: 'memory.max', value: bytes(unreclaimable + 2 * MiB) });
    await tenant.run('still there');
    expect((await tree.readMemoryUse(pod)).oomKills).toBe(0);

    await tree.write(pod, { file: 'memory.max', value: bytes(unreclaimable - 16 * MiB) });
    await expect(tenant.run(`hold ${MiB}`)).rejects.toThrow(/hold/);
    expect((await tree.readMemoryUse(pod)).oomKills).toBe(1);
  });

  test('a limit below usage kills nothing by itself on this kernel', async () => {
    const tenant = tenantIn(pod);
    await tenant.run(`hold ${40 * MiB}`);
    const step = { file: 'memory.max', value: bytes(8 * MiB) } as const;
    expect(await tree.write(pod, step)).toMatchObject({ outcome: 'written' });
    // Nothing was charged after the write. Only the next charge would kill.
    expect(kernelSays('memory.events')).toContain('oom_kill 0');
    expect(await tree.write(pod, { ...step, value: 'max' })).toMatchObject({ outcome: 'written' });
    await tenant.run(`hold ${MiB}`);
    expect(tenant.alive).toBe(true);
  });
});

describe('the cgroup of a process', () => {
  test('the cgroup of a process is known until the process ends', async () => {
    const tenant = tenantIn(pod);
    await tenant.run('be there');
    expect(await cgroupOfPid(tenant.pid)).toBe(pod);
    const { pid } = tenant;
    await tenant.end();
    expect(await cgroupOfPid(pid)).toBeUndefined();
  });

  test('detects the cgroup version of a folder, and lists the children of a cgroup', () => {
    expect(cgroupVersion()).toBe(2);
    expect(cgroupVersion('/proc')).toBe(1);
    mkdirSync(inRoot(`${parent}/pod2`));
    expect([...tree.children(parent)].sort()).toEqual(['pod1', 'pod2']);
    rmdirSync(inRoot(`${parent}/pod2`));
  });
});
