import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Busctl, type Systemd, type UnitState } from '../../src/cgroups/busctl.ts';
import type { CgroupDriverName } from '../../src/cgroups/drivers.ts';
import { isCgroupVanished } from '../../src/cgroups/file.ts';
import { DriverCgroupTree } from '../../src/cgroups/systemd-tree.ts';
import type { UnitProperty } from '../../src/cgroups/systemd-units.ts';
import type { CgroupWrite } from '../../src/cgroups/values/write.ts';
import { Reason, ShimError } from '../../src/core/errors.ts';
import { Code } from '../../src/core/grpc.ts';
import { bytes, cpuWeight, microseconds } from '../../src/core/quantities/numbers.ts';

// A folder and a map replace the cgroup file system and systemd. test/e2e/systemd/systemd.test.ts uses the real ones.
const POD = '/kubepods.slice/kubepods-podx.slice';
const UNIT = 'kubepods-podx.slice';

let root: string;
let systemd: FakeSystemd;
let driver: CgroupDriverName;
let tree: DriverCgroupTree;
const content = (file: string): string => readFileSync(join(root, POD, file), 'utf8').trim();
const put = (file: string, text: string): void => writeFileSync(join(root, POD, file), `${text}\n`);

const CPUSETS = [
  ['cpuset.cpus', 'AllowedCPUs'],
  ['cpuset.mems', 'AllowedMemoryNodes'],
] as const;

const unavailable = (): ShimError => new ShimError(Code.UNAVAILABLE, Reason.SYSTEMD_UNAVAILABLE, 'no D-Bus');

/** Writes all files of the unit when a property is set, as systemd does. */
class FakeSystemd implements Systemd {
  cgroup = POD;
  isAway = false;
  readonly unit = new Map<string, bigint>();
  readonly sets: (readonly UnitProperty[])[] = [];
  onSet: () => void | Promise<void> = () => undefined;
  onRead: () => void = () => undefined;

  read(_unit: string, names: readonly string[]): Promise<UnitState> {
    this.onRead();
    if (this.isAway) return Promise.reject(unavailable());
    const unset = (name: string): bigint => (name.startsWith('Allowed') ? 0n : 2n ** 64n - 1n);
    const properties = new Map(names.map((name) => [name, this.unit.get(name) ?? unset(name)]));
    return Promise.resolve({ cgroup: this.cgroup, properties });
  }

  async set(unit: string, properties: readonly UnitProperty[]): Promise<void> {
    expect(unit).toBe(UNIT);
    if (this.isAway) throw unavailable();
    this.sets.push(properties);
    for (const { name, value } of properties) this.unit.set(name, value);
    this.writeAll();
    await this.onSet();
  }

  writeAll(): void {
    const of = (name: string): bigint | undefined => this.unit.get(name);
    const [memory, weight, quota] = [of('MemoryMax'), of('CPUWeight'), of('CPUQuotaPerSecUSec')];
    if (memory !== undefined) put('memory.max', memory === 2n ** 64n - 1n ? 'max' : String(memory));
    if (weight !== undefined) put('cpu.weight', String(weight));
    if (quota !== undefined) put('cpu.max', `${quota / 10n} 100000`);
    put('memory.oom.group', '0');
    for (const [file, name] of CPUSETS) {
      // systemd clears the file if the property has no value.
      const bits = (of(name) ?? 0n).toString(2);
      const numbers = Array.from(bits)
        .reverse()
        .flatMap((bit, number) => (bit === '1' ? [number] : []));
      if (existsSync(join(root, POD, file))) put(file, numbers.join());
    }
  }
}

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'systemd-tree-'));
  mkdirSync(join(root, POD), { recursive: true });
  systemd = new FakeSystemd();
  driver = 'systemd';
  tree = new DriverCgroupTree({ root, driver: () => Promise.resolve(driver), systemd });
  systemd.unit.set('MemoryMax', 4096n).set('CPUWeight', 39n).set('CPUQuotaPerSecUSec', 200_000n);
  systemd.unit.set('CPUQuotaPeriodUSec', 100_000n);
  systemd.writeAll();
});
afterEach(() => rmSync(root, { recursive: true }));

const memory: CgroupWrite = { file: 'memory.max', value: bytes(8192) };
const cpuMax = (quota: number): CgroupWrite => ({
  file: 'cpu.max',
  value: { quota: microseconds(quota), period: microseconds(100_000) },
});

describe('a limit of a systemd unit', () => {
  test('systemd: a limit of a pod is set on its unit and written to the file', async () => {
    expect(await tree.write(POD, memory)).toEqual({ outcome: 'written', found: '8192' });
    expect(systemd.sets).toEqual([[{ name: 'MemoryMax', value: 8192n }]]);
    expect(content('memory.max')).toBe('8192');
  });

  test('a limit that the unit already has is not set again', async () => {
    expect(await tree.write(POD, { file: 'cpu.weight', value: cpuWeight(39) })).toMatchObject({ outcome: 'unchanged' });
    expect(systemd.sets).toEqual([]);
  });

  test('a limit that only the file has is set on the unit', async () => {
    put('memory.max', '8192');
    await tree.write(POD, memory);
    expect(systemd.unit.get('MemoryMax')).toBe(8192n);
  });

  test('a limit that only the unit has is written to the file', async () => {
    systemd.unit.set('MemoryMax', 8192n);
    expect(await tree.write(POD, memory)).toMatchObject({ outcome: 'written' });
    expect([systemd.sets, content('memory.max')]).toEqual([[], '8192']);
  });

  test('the file has the exact CPU quota, also after another limit is set on the unit', async () => {
    await tree.write(POD, cpuMax(34_560));
    expect(systemd.unit.get('CPUQuotaPerSecUSec')).toBe(350_000n);
    expect(content('cpu.max')).toBe('34560 100000');
    put('memory.oom.group', '1');
    await tree.write(POD, memory);
    expect([content('cpu.max'), content('memory.oom.group')]).toEqual(['34560 100000', '1']);
  });

  test('a limit set on a unit keeps the cpusets that only the files have', async () => {
    put('cpuset.cpus', '0-1,4');
    put('cpuset.mems', '');
    await tree.write(POD, memory);
    await tree.write(POD, cpuMax(34_560));
    expect([content('cpuset.cpus'), content('cpuset.mems')]).toEqual(['0-1,4', '']);
    put('cpuset.mems', '0');
    await tree.write(POD, { file: 'cpu.weight', value: cpuWeight(50) });
    expect([content('cpuset.cpus'), content('cpuset.mems'), content('cpu.max')]).toEqual([
      '0-1,4',
      '0',
      '34560 100000',
    ]);
  });

  test.each(CPUSETS)(
    'a limit in %s is kept when systemd writes all settings again, as after a reload',
    async (file, name) => {
      for (const [each] of CPUSETS) put(each, '');
      put(file, '7');
      const write = (value: string): Promise<unknown> => tree.write(POD, { file: 'unified', key: file, value });
      await write('0-1,3');
      expect(systemd.sets).toEqual([[{ name, value: 0b1011n }]]);
      systemd.writeAll();
      expect(content(file)).toBe('0,1,3');
      await write('2');
      systemd.writeAll();
      expect(content(file)).toBe('2');
      await write('');
      systemd.writeAll();
      expect([content(file), systemd.unit.get(name)]).toEqual(['', 0n]);
    },
  );

  test('a cpuset is only written to the file if systemd does not have the property', async () => {
    put('cpuset.cpus', '');
    const program = join(root, 'busctl');
    writeFileSync(program, '#!/bin/sh\necho "Unknown interface x or property AllowedCPUs." >&2; exit 1\n', {
      mode: 0o755,
    });
    const old = new DriverCgroupTree({ root, driver: () => Promise.resolve(driver), systemd: new Busctl(program) });
    await old.write(POD, { file: 'unified', key: 'cpuset.cpus', value: '0-1' });
    expect(content('cpuset.cpus')).toBe('0-1');
    await expect(old.write(POD, { file: 'unified', key: 'cpuset.cpus', value: 'N' })).resolves.toMatchObject({
      found: 'N',
    });
  });

  test('a cpuset that only the file had is restored when the write is rolled back', async () => {
    put('cpuset.cpus', '0-1');
    systemd.onSet = () => {
      systemd.onSet = () => undefined;
      throw new Error('disconnected');
    };
    await expect(tree.write(POD, { file: 'unified', key: 'cpuset.cpus', value: '3' })).rejects.toThrow('disconnected');
    expect([content('cpuset.cpus'), systemd.unit.get('AllowedCPUs')]).toEqual(['0-1', 0n]);
  });

  test('settings that only the files have are kept when a write to the unit is rolled back', async () => {
    await tree.write(POD, cpuMax(34_560));
    put('cpuset.cpus', '0-1');
    put('memory.oom.group', '1');
    systemd.onSet = () => {
      systemd.onSet = () => undefined;
      throw new Error('disconnected');
    };
    await expect(tree.write(POD, memory)).rejects.toThrow('disconnected');
    expect(content('memory.max')).toBe('4096');
    expect(['cpu.max', 'cpuset.cpus', 'memory.oom.group'].map(content)).toEqual(['34560 100000', '0-1', '1']);
  });

  test('a write to a unit does not overwrite a CPU quota that another process sets concurrently', async () => {
    await tree.write(POD, cpuMax(34_560));
    systemd.onSet = () => {
      systemd.unit.set('CPUQuotaPerSecUSec', 990_000n);
      systemd.writeAll();
    };
    await tree.write(POD, memory);
    expect(content('cpu.max')).toBe('99000 100000');
  });

  test.each([
    ['with the cgroupfs driver', POD, 'cgroupfs'],
    ['in a cgroup whose name is not that of a unit', '/kubepods/podx', 'systemd'],
  ] as const)('a limit %s is only written to the file', async (_what, cgroup, name) => {
    driver = name;
    mkdirSync(join(root, cgroup), { recursive: true });
    writeFileSync(join(root, cgroup, 'memory.max'), 'max\n');
    await tree.write(cgroup, memory);
    expect(readFileSync(join(root, cgroup, 'memory.max'), 'utf8')).toBe('8192');
    expect(systemd.sets).toEqual([]);
  });

  test('a temporary memory.high is not set on the unit', async () => {
    put('memory.high', 'max');
    await tree.write(POD, { file: 'memory.high', value: bytes(4096) });
    expect([systemd.sets, content('memory.high')]).toEqual([[], '4096']);
  });
});

describe('a failed write of a unit limit', () => {
  const unchanged = (): void => {
    expect(content('memory.max')).toBe('4096');
    expect(systemd.unit.get('MemoryMax')).toBe(4096n);
  };

  test('a limit write without D-Bus changes nothing, and accepts a limit that is already set', async () => {
    systemd.isAway = true;
    await expect(tree.write(POD, memory)).rejects.toMatchObject({ reason: 'SYSTEMD_UNAVAILABLE' });
    unchanged();
    expect(await tree.write(POD, { file: 'memory.max', value: bytes(4096) })).toMatchObject({ outcome: 'unchanged' });
  });

  test.each([
    ['that does not exist', '', 'no active unit'],
    ['of another cgroup', '/other.slice', '/other.slice'],
  ])('a limit write to a unit %s changes nothing', async (_what, cgroup, words) => {
    systemd.cgroup = cgroup;
    const message = expect.stringContaining(words) as string;
    await expect(tree.write(POD, memory)).rejects.toMatchObject({ reason: 'UNIT_UNAVAILABLE', message });
    unchanged();
  });

  test('a limit write to a cgroup that is removed concurrently reports a removed cgroup', async () => {
    systemd.onRead = () => rmSync(join(root, POD), { recursive: true, force: true });
    systemd.cgroup = '';
    await expect(tree.write(POD, memory)).rejects.toSatisfy(isCgroupVanished);
    await expect(tree.write(POD, memory)).rejects.toSatisfy(isCgroupVanished);
  });

  test('systemd: a limit write without a D-Bus reply fails with SYSTEMD_UNAVAILABLE, and the unit and the cgroup file are restored', async () => {
    systemd.onSet = () => {
      systemd.onSet = () => undefined;
      throw unavailable();
    };
    await expect(tree.write(POD, memory)).rejects.toMatchObject({ reason: 'SYSTEMD_UNAVAILABLE' });
    unchanged();
  });

  test('a failed limit write keeps a value that another process sets concurrently', async () => {
    systemd.onSet = () => {
      systemd.unit.set('MemoryMax', 12_288n);
      systemd.writeAll();
    };
    const error = { reason: 'CGROUP_WRITE_FAILED', context: { asked: '8192', found: '12288' } };
    await expect(tree.write(POD, memory)).rejects.toMatchObject(error);
    expect([content('memory.max'), systemd.unit.get('MemoryMax')]).toEqual(['12288', 12_288n]);
  });

  test('a failed write to the file restores the unit', async () => {
    systemd.onSet = () => {
      systemd.onSet = () => undefined;
      rmSync(join(root, POD, 'memory.max'));
    };
    await expect(tree.write(POD, memory)).rejects.toMatchObject({ reason: 'CGROUP_UNAVAILABLE' });
    unchanged();
  });

  test('a limit write that cannot be rolled back fails with UNDO_FAILED and both errors', async () => {
    let reads = 0;
    systemd.onRead = () => (systemd.isAway = (reads += 1) > 2);
    systemd.onSet = () => rmSync(join(root, POD, 'memory.max'));
    const message = expect.stringMatching(/memory\.max.*no D-Bus/s) as string;
    await expect(tree.write(POD, memory)).rejects.toMatchObject({ reason: 'UNDO_FAILED', message });
  });
});
