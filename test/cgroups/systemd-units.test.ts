import { describe, expect, test } from 'vitest';
import {
  dbusInterfaceOf,
  dbusObjectOf,
  isRoundedInUnit,
  isSameProperty,
  isSystemdUnit,
  propertiesOf,
  systemdUnitOf,
  UNSET,
} from '../../src/cgroups/systemd-units.ts';
import type { CgroupWrite } from '../../src/cgroups/values/write.ts';
import { bytes, cpuWeight, microseconds } from '../../src/core/quantities/numbers.ts';
import { criMi } from '../support/quantities/mebibytes.ts';

const SLICE = '/kubepods.slice/kubepods-podx.slice';
const cpu = (quota: number | 'max', period = 100_000) => ({
  quota: quota === 'max' ? quota : microseconds(quota),
  period: microseconds(period),
});

describe('a systemd unit', () => {
  test.each([
    ['/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice', 'kubepods-burstable-pod1_2.slice'],
    [`${SLICE}/cri-containerd-0a.scope`, 'cri-containerd-0a.scope'],
    ['/kubepods/burstable/pod1', undefined],
    ['/system.slice/containerd.service', undefined],
    ['/system.slice/a.slice.mount', undefined],
    ['/.slice', undefined],
    ['/', undefined],
  ])('the systemd unit of the cgroup %s is %s', (cgroup, unit) => {
    expect(systemdUnitOf(cgroup)).toBe(unit);
    expect(isSystemdUnit(cgroup)).toBe(unit !== undefined);
  });

  test('the D-Bus object and interface of a unit follow from its name', () => {
    expect(dbusObjectOf('kubepods-pod1_2.slice')).toBe('/org/freedesktop/systemd1/unit/kubepods_2dpod1_5f2_2eslice');
    expect(dbusObjectOf('1a\\x2db.scope')).toBe('/org/freedesktop/systemd1/unit/_31a_5cx2db_2escope');
    expect(dbusObjectOf('a\t.slice')).toBe('/org/freedesktop/systemd1/unit/a_09_2eslice');
    expect(dbusInterfaceOf('a.slice')).toBe('org.freedesktop.systemd1.Slice');
    expect(dbusInterfaceOf('a.scope')).toBe('org.freedesktop.systemd1.Scope');
  });
});

describe('the unit properties of a cgroup write', () => {
  test('the unit property for no limit is the largest 64-bit number', () =>
    expect(UNSET).toBe(18_446_744_073_709_551_615n));

  const cases: [CgroupWrite, string, [string, bigint][]][] = [
    [{ file: 'memory.max', value: bytes(1000) }, 'memory.max', [['MemoryMax', 1000n]]],
    [{ file: 'memory.max', value: 'max' }, 'memory.max', [['MemoryMax', UNSET]]],
    [{ file: 'memory.low', value: bytes(0) }, 'memory.low', [['MemoryLow', 0n]]],
    [{ file: 'memory.min', value: bytes(5) }, 'memory.min', [['MemoryMin', 5n]]],
    [{ file: 'memory.swap.max', value: bytes(0) }, 'memory.swap.max', [['MemorySwapMax', 0n]]],
    [{ file: 'cpu.weight', value: cpuWeight(39) }, 'cpu.weight', [['CPUWeight', 39n]]],
    ...(
      [
        [cpu(50_000), 500_000n, 100_000n],
        // Rounded up to whole percents of a processor: 10 ms per second.
        [cpu(50_001), 510_000n, 100_000n],
        [cpu(1000), 10_000n, 100_000n],
        [cpu(1000, 7000), 150_000n, 7000n],
        [cpu('max'), UNSET, 100_000n],
      ] as const
    ).map(([value, quota, period]): [CgroupWrite, string, [string, bigint][]] => [
      { file: 'cpu.max', value },
      'cpu.max',
      [
        ['CPUQuotaPerSecUSec', quota],
        ['CPUQuotaPeriodUSec', period],
      ],
    ]),
    [{ file: 'unified', key: 'memory.high', value: '1M' }, 'memory.high', [['MemoryHigh', criMi(1)]]],
    [{ file: 'unified', key: 'memory.high', value: 'max' }, 'memory.high', [['MemoryHigh', UNSET]]],
    [{ file: 'unified', key: 'memory.zswap.max', value: '0' }, 'memory.zswap.max', [['MemoryZSwapMax', 0n]]],
    [{ file: 'unified', key: 'cpuset.cpus', value: '0-2,8' }, 'cpuset.cpus', [['AllowedCPUs', 0b1_0000_0111n]]],
    [{ file: 'unified', key: 'cpuset.cpus', value: '8191' }, 'cpuset.cpus', [['AllowedCPUs', 1n << 8191n]]],
    [{ file: 'unified', key: 'cpuset.mems', value: '0-3:1/2\n' }, 'cpuset.mems', [['AllowedMemoryNodes', 0b101n]]],
    [{ file: 'unified', key: 'cpuset.mems', value: '' }, 'cpuset.mems', [['AllowedMemoryNodes', 0n]]],
    [{ file: 'unified', key: 'pids.max', value: ' 500' }, 'pids.max', [['TasksMax', 500n]]],
    [
      { file: 'unified', key: 'cpu.max', value: '20000' },
      'cpu.max',
      [
        ['CPUQuotaPerSecUSec', 200_000n],
        ['CPUQuotaPeriodUSec', 100_000n],
      ],
    ],
    [
      { file: 'unified', key: 'cpu.max', value: 'max 50000' },
      'cpu.max',
      [
        ['CPUQuotaPerSecUSec', UNSET],
        ['CPUQuotaPeriodUSec', 50_000n],
      ],
    ],
  ];
  test.each(cases)('maps %j to unit properties', (step, file, properties) => {
    const expected = properties.map(([name, value]) => ({ name, value }));
    expect(propertiesOf(step)).toEqual({ file, properties: expected });
  });

  test.each([
    { file: 'memory.high', value: bytes(1000) },
    { file: 'unified', key: 'memory.oom.group', value: '1' },
    { file: 'unified', key: 'io.weight', value: 'default 100' },
    { file: 'unified', key: 'cpu.max', value: '1 2 3' },
    { file: 'unified', key: 'cpu.max', value: '1000 0' },
    { file: 'unified', key: 'pids.max', value: 'many' },
    { file: 'unified', key: 'cpuset.cpus', value: '3-1' },
    { file: 'unified', key: 'cpuset.cpus', value: '0-N' },
  ] satisfies CgroupWrite[])('maps %j to no unit property', (step) => expect(propertiesOf(step)).toBeUndefined());
});

describe('the properties of a unit', () => {
  test('a unit property equals the requested one, and no period means the default period', () => {
    expect(isSameProperty({ name: 'MemoryMax', value: 5n }, 5n)).toBe(true);
    expect(isSameProperty({ name: 'MemoryMax', value: 5n }, 6n)).toBe(false);
    expect(isSameProperty({ name: 'MemoryMax', value: 5n }, undefined)).toBe(false);
    expect(isSameProperty({ name: 'CPUQuotaPeriodUSec', value: 100_000n }, UNSET)).toBe(true);
    expect(isSameProperty({ name: 'CPUQuotaPeriodUSec', value: 50_000n }, UNSET)).toBe(false);
    expect(isSameProperty({ name: 'CPUQuotaPeriodUSec', value: 100_000n }, 50_000n)).toBe(false);
    expect(isSameProperty({ name: 'CPUQuotaPeriodUSec', value: 100_000n }, undefined)).toBe(false);
    expect(isSameProperty({ name: 'MemoryMax', value: 100_000n }, UNSET)).toBe(false);
  });

  test.each([
    [34_560, 35_000, true],
    [34_560, 34_560, false],
    [34_560, 34_000, false],
    [34_560, 36_000, false],
    [35_000, 35_000, true],
    [34_000, 35_000, false],
    [34_001, 34_999, false],
    ['max', 'max', false],
    ['max', 35_000, false],
    [34_560, 'max', false],
  ] as const)('systemd rounds a quota of %s to %s: %s', (asked, found, expected) => {
    expect(isRoundedInUnit(SLICE, cpu(asked), cpu(found))).toBe(expected);
  });

  test('a quota counts as rounded only on a unit and with the requested period', () => {
    expect(isRoundedInUnit('/kubepods/podx', cpu(34_560), cpu(35_000))).toBe(false);
    expect(isRoundedInUnit(SLICE, cpu(34_560), cpu(35_000, 200_000))).toBe(false);
    // 2.03 ms of 7 ms are exactly 29 %. 2.031 ms are rounded up to 30 %, which is 2.1 ms.
    expect(isRoundedInUnit(SLICE, cpu(2030, 7000), cpu(2030, 7000))).toBe(true);
    expect(isRoundedInUnit(SLICE, cpu(2031, 7000), cpu(2100, 7000))).toBe(true);
  });
});
