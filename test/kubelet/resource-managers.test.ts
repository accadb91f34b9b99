import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type LogFields, noLog } from '../../src/core/observe/interfaces.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { ManagerFiles } from '../../src/kubelet/resource-managers.ts';

let folder: string;
let warnings: LogFields[];
let unreadable: number;
let managers: ManagerFiles;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'managers-'));
  warnings = [];
  unreadable = 0;
  managers = new ManagerFiles(folder, {
    log: { ...noLog, warn: (fields) => void warnings.push(fields) },
    counters: { foresight: (event) => void (unreadable += event === 'unreadable' ? 1 : 0) },
  });
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Replaces a file as kubelet does. */
function write(name: 'cpu_manager_state' | 'memory_manager_state', text: string): void {
  writeFileSync(join(folder, '.new'), text);
  renameSync(join(folder, '.new'), join(folder, name));
}
const cpu = (state: object): void => write('cpu_manager_state', JSON.stringify({ checksum: 1, ...state }));
const memory = (state: object): void => write('memory_manager_state', JSON.stringify({ checksum: 1, ...state }));

describe('the state of the CPU manager', () => {
  test('the CPU manager state assigns CPUs to a container', () => {
    cpu({ policyName: 'static', defaultCpuSet: '0,3', entries: { u: { app: '1-2' } } });
    expect(managers.exclusiveCpus('u', 'app')).toBe('1-2');
    expect(managers.exclusiveCpus('u', 'proxy')).toBeUndefined();
    expect(managers.exclusiveCpus('v', 'app')).toBeUndefined();
    expect(managers.exclusiveCpus('u', 'constructor')).toBeUndefined();
    expect(managers.exclusiveCpus('constructor', 'name')).toBeUndefined();
  });

  test('the CPU manager state assigns CPUs to a whole pod', () => {
    cpu({ policyName: 'static', defaultCpuSet: '0', podEntries: { u: { cpuSet: '4-6' } } });
    expect(managers.exclusiveCpus('u', 'app')).toBe('4-6');
  });

  test('the CPU manager state assigns no CPUs with the policy none', () => {
    cpu({ policyName: 'none', defaultCpuSet: '', entries: { u: { app: '1' } } });
    expect(managers.exclusiveCpus('u', 'app')).toBeUndefined();
    expect(managers.isStatic('cpu')).toBe(false);
  });

  test('the state of each manager shows whether its policy is static', () => {
    cpu({ policyName: 'static', defaultCpuSet: '0' });
    expect([managers.isStatic('cpu'), managers.isStatic('memory')]).toEqual([true, false]);
    memory({ policyName: 'Static', entries: {} });
    expect(managers.isStatic('memory')).toBe(true);
    memory({ policyName: 'None' });
    expect(managers.isStatic('memory')).toBe(false);
  });

  test('the CPU manager state is read again after kubelet has replaced or removed it', () => {
    expect(managers.exclusiveCpus('u', 'app')).toBeUndefined();
    cpu({ policyName: 'static', entries: { u: { app: '1' } } });
    expect(managers.exclusiveCpus('u', 'app')).toBe('1');
    cpu({ policyName: 'static', entries: {} });
    expect(managers.exclusiveCpus('u', 'app')).toBeUndefined();
    cpu({ policyName: 'static', entries: { u: { app: '3' } } });
    expect(managers.exclusiveCpus('u', 'app')).toBe('3');
    rmSync(join(folder, 'cpu_manager_state'));
    expect(managers.exclusiveCpus('u', 'app')).toBeUndefined();
    expect(warnings).toEqual([]);
  });

  test.each([
    ['nothing', '', /JSON/],
    ['a torn file', '{"policyName":"static","entr', /JSON/],
    ['another JSON', '[1]', /^it is not a JSON object$/],
    ['no policy', '{"entries":{"u":{"app":"1"}}}', /^it has no string "policyName"$/],
  ])('a CPU manager state is ignored with one warning if it is %s', (_, text, fault) => {
    write('cpu_manager_state', text);
    expect([managers.exclusiveCpus('u', 'app'), managers.exclusiveCpus('u', 'app')]).toEqual([undefined, undefined]);
    expect(warnings).toEqual([{ file: 'cpu_manager_state', error: expect.stringMatching(fault) as string }]);
    expect(unreadable).toBe(1);
  });

  // As kubelet 1.37 writes it (kubelet pkg/kubelet/cm/cpumanager/state/checkpoint.go, CPUManagerCheckpointV4).
  const since137 = (state: object, data: unknown = JSON.stringify(state)): void =>
    cpu({
      policyName: 'static',
      defaultCpuSet: '0,7-9',
      entries: { u: { app: '1-2' } },
      data,
      dataChecksum: 1420829534,
    });

  test('the CPU manager state of kubelet 1.37 assigns the CPUs in its string “data” to containers and pods', () => {
    since137({
      policyName: 'static',
      defaultCpuSet: '7-9',
      entries: { u: { app: '3' } },
      podEntries: { v: { cpuSet: '4-6' }, w: {} },
      baselines: { u: { app: { baseline: '3' } } },
    });
    const of = (uid: string): string | undefined => managers.exclusiveCpus(uid, 'app');
    expect(['u', 'v', 'w', 'x'].map(of)).toEqual(['3', '4-6', undefined, undefined]);
    since137({ policyName: 'none', defaultCpuSet: '' });
    expect(of('u')).toBeUndefined();
    expect([warnings, unreadable]).toEqual([[], 0]);
  });

  test.each([
    ['no JSON', '{"policyName', /^"data": .*JSON/],
    ['no text', { policyName: 'static' }, /^"data": it is not a JSON object$/],
    ['no object', '[]', /^"data": it is not a JSON object$/],
  ])(
    'the CPU manager state of 1.37 falls back to the earlier form, with one warning, if “data” is %s',
    (_, data, fault) => {
      since137({}, data);
      expect(managers.exclusiveCpus('u', 'app')).toBe('1-2');
      expect(warnings).toEqual([{ file: 'cpu_manager_state', error: expect.stringMatching(fault) as string }]);
      expect(unreadable).toBe(1);
    },
  );

  test('a CPU manager state with an empty “data” is read in the earlier form without a warning', () => {
    since137({}, '');
    expect(managers.exclusiveCpus('u', 'app')).toBe('1-2');
    expect(warnings).toEqual([]);
  });

  test('CPU manager values of unknown shape assign nothing and are counted; the other values apply', () => {
    const entries = { u: { app: '1', proxy: 7, none: null }, v: '2', w: null };
    since137({ policyName: 'static', entries, podEntries: { x: '3', y: { cpuSet: 4 }, z: { cpuSet: '5' } } });
    expect(managers.exclusiveCpus('u', 'app')).toBe('1');
    expect(managers.exclusiveCpus('z', 'app')).toBe('5');
    for (const uid of ['v', 'x', 'y']) expect(managers.exclusiveCpus(uid, 'app')).toBeUndefined();
    expect(warnings).toEqual([{ file: 'cpu_manager_state', error: '4 values of an unknown shape' }]);
    expect(unreadable).toBe(1);
  });

  test.each([
    ['entries by container id (v1)', { c0ffee: '1' }],
    ['no object', '1-2'],
    ['CPUs that are not a string', { u: { app: 7 } }],
    ['no CPUs', { u: { app: '' } }],
  ])('the CPU manager state assigns nothing with %s', (_, entries) => {
    cpu({ policyName: 'static', entries });
    expect(managers.exclusiveCpus('u', 'app')).toBeUndefined();
  });

  test('a CPU manager state of more than 16 MiB is ignored with a warning', () => {
    write('cpu_manager_state', `{"policyName":"static","entries":{"u":{"app":"1"}}}${' '.repeat(16 * MiB)}`);
    expect(managers.exclusiveCpus('u', 'app')).toBeUndefined();
    expect(warnings).toHaveLength(1);
  });
});

describe('the state of the memory manager', () => {
  const block = (type: string, numaAffinity: unknown) => ({ type, numaAffinity, size: 1 });

  test('the memory manager state pins the memory of a container or of its pod to NUMA nodes', () => {
    memory({
      policyName: 'Static',
      machineState: {},
      entries: {
        u: { app: [block('hugepages-2Mi', [5]), block('memory', [0, 1])], huge: [block('hugepages-1Gi', [0])] },
      },
      podEntries: { v: { memoryBlocks: [block('memory', [1])] } },
    });
    expect(managers.memoryNodes('u', 'app')).toBe('0,1');
    expect(managers.memoryNodes('u', 'huge')).toBeUndefined();
    expect(managers.memoryNodes('v', 'app')).toBe('1');
  });

  test('the memory manager state of kubelet 1.37 pins the memory listed in its string “data”', () => {
    const data = JSON.stringify({
      policyName: 'Static',
      machineState: {},
      entries: { u: { app: [block('memory', [1])] } },
      podEntries: { v: { memoryBlocks: [block('hugepages-2Mi', [0]), block('memory', [0, 1])] }, w: {} },
    });
    memory({ policyName: 'Static', entries: { u: { app: [block('memory', [0])] } }, data, dataChecksum: 1849615440 });
    expect(['u', 'v', 'w'].map((uid) => managers.memoryNodes(uid, 'app'))).toEqual(['1', '0,1', undefined]);
    expect(warnings).toEqual([]);
    memory({
      policyName: 'Static',
      entries: { u: { app: [null, { type: 'memory' }], other: [block('memory', [1])] } },
    });
    expect(managers.memoryNodes('u', 'other')).toBe('1');
    expect(warnings).toEqual([{ file: 'memory_manager_state', error: '1 values of an unknown shape' }]);
  });

  test('the memory manager state skips NUMA nodes of unknown shape, including objects without a text form', () => {
    const nodes = [{ toString: 1, valueOf: 1 }, 1, null, '2'];
    memory({ policyName: 'Static', entries: { u: { app: [block('memory', nodes)] } } });
    expect(managers.memoryNodes('u', 'app')).toBe('1');
    expect(warnings).toEqual([{ file: 'memory_manager_state', error: '1 values of an unknown shape' }]);
  });

  test.each([
    ['None', { u: { app: [block('memory', [0])] } }],
    ['Static', { u: { app: 'memory' } }],
    ['Static', { u: { app: [null, 1, block('memory', 'x')] } }],
  ])('the memory manager state pins nothing with policy %s and %j', (policyName, entries) => {
    memory({ policyName, entries });
    expect(managers.memoryNodes('u', 'app')).toBeUndefined();
  });
});
