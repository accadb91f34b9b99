import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Busctl } from '../../src/cgroups/busctl.ts';

// A script replaces busctl, and records its arguments. test/e2e/systemd/systemd.test.ts uses the real one.
let folder: string;
let busctl: Busctl;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'busctl-'));
  busctl = new Busctl(join(folder, 'busctl'));
});
afterEach(() => rmSync(folder, { recursive: true }));

function writeScript(script: string): void {
  writeFileSync(busctl.program, `#!/bin/sh\nprintf '%s\\n' "$@" >${folder}/args\n${script}\n`);
  chmodSync(busctl.program, 0o755);
}

const args = (): string[] => readFileSync(join(folder, 'args'), 'utf8').trimEnd().split('\n');

test('busctl reads the cgroup and the properties of a unit, including 64-bit numbers', async () => {
  writeScript(`echo '{"type":"s","data":"/a.slice/a-b.slice"}
{"type":"t","data":268435456}
{"type":"t","data":18446744073709551615}'`);
  expect(await busctl.read('a-b.slice', ['MemoryMax', 'MemoryHigh'])).toEqual({
    cgroup: '/a.slice/a-b.slice',
    properties: new Map([
      ['MemoryMax', 268_435_456n],
      ['MemoryHigh', 18_446_744_073_709_551_615n],
    ]),
  });
  expect(args()).toEqual([
    ...['--system', '--json=short', 'get-property', 'org.freedesktop.systemd1'],
    ...['/org/freedesktop/systemd1/unit/a_2db_2eslice', 'org.freedesktop.systemd1.Slice'],
    ...['ControlGroup', 'MemoryMax', 'MemoryHigh'],
  ]);
});

test('busctl sets all properties at runtime by one call', async () => {
  writeScript('');
  await busctl.set('-b.slice', [
    { name: 'CPUQuotaPerSecUSec', value: 500_000n },
    { name: 'CPUQuotaPeriodUSec', value: 2n ** 64n - 1n },
  ]);
  expect(args()).toEqual([
    ...['--system', 'call', 'org.freedesktop.systemd1', '/org/freedesktop/systemd1'],
    ...['org.freedesktop.systemd1.Manager', 'SetUnitProperties', 'sba(sv)', '--', '-b.slice', 'true', '2'],
    ...['CPUQuotaPerSecUSec', 't', '500000', 'CPUQuotaPeriodUSec', 't', '18446744073709551615'],
  ]);
});

test('busctl encodes sets of CPUs and memory nodes as bytes, the lowest numbers first', async () => {
  writeScript(`echo '{"type":"s","data":"/a.slice"}
{"type":"ay","data":[15,0,1]}
{"type":"ay","data":[]}'`);
  const { properties } = await busctl.read('a.slice', ['AllowedCPUs', 'AllowedMemoryNodes']);
  expect([...properties.values()]).toEqual([0x1_000fn, 0n]);
  await busctl.set('a.slice', [
    { name: 'AllowedCPUs', value: 0x1_000fn },
    { name: 'AllowedMemoryNodes', value: 0n },
    { name: 'MemoryMax', value: 1n },
  ]);
  expect(args().slice(-13)).toEqual([
    ...['3', 'AllowedCPUs', 'ay', '3', '15', '0', '1'],
    ...['AllowedMemoryNodes', 'ay', '0', 'MemoryMax', 't', '1'],
  ]);
});

test.each([
  ['D-Bus is unavailable', 'echo "Failed to connect to bus: Connection refused" >&2; exit 1', 'Connection refused'],
  ['access is denied', 'echo "Call failed: Access denied" >&2; exit 1', 'Access denied'],
  ['busctl fails without a message', 'exit 1', 'exit code 1'],
  ['busctl is killed', 'kill -9 $$', 'SIGKILL'],
])('the error is SYSTEMD_UNAVAILABLE when %s', async (_when, script, words) => {
  writeScript(script);
  const error = { code: 14, reason: 'SYSTEMD_UNAVAILABLE', message: expect.stringContaining(words) as string };
  await expect(busctl.read('a.slice', ['MemoryMax'])).rejects.toMatchObject(error);
  await expect(busctl.set('a.slice', [{ name: 'MemoryMax', value: 1n }])).rejects.toMatchObject(error);
});

test.each([
  ['no output', 'true'],
  ['a value of another type', `echo '{"type":"b","data":true}'`],
  ['too few values', `echo '{"type":"s","data":"/a.slice"}'`],
  ['a value that is not a number', `echo '{"type":"s","data":"/a.slice"}\n{"type":"t","data":"x"}'`],
  ['a number where a set is expected', `echo '{"type":"s","data":"/a.slice"}\n{"type":"t","data":1}'`, 'AllowedCPUs'],
  ['a set of no bytes', `echo '{"type":"s","data":"/a.slice"}\n{"type":"ay","data":["x"]}'`, 'AllowedCPUs'],
])('the error is SYSTEMD_UNAVAILABLE when busctl prints %s', async (_what, script, name = 'MemoryMax') => {
  writeScript(script);
  const error = { reason: 'SYSTEMD_UNAVAILABLE', message: expect.stringContaining('unexpected response') as string };
  await expect(busctl.read('a.slice', [name])).rejects.toMatchObject(error);
});

test('the error is SYSTEMD_UNAVAILABLE when busctl is not installed', async () => {
  const message = expect.stringContaining('is not installed') as string;
  await expect(busctl.read('a.slice', [])).rejects.toMatchObject({ reason: 'SYSTEMD_UNAVAILABLE', message });
});

test('the error is UNIT_UNAVAILABLE when systemd does not know the unit', async () => {
  writeScript('echo "Call failed: Unit a.slice not loaded." >&2; exit 1');
  const setting = busctl.set('a.slice', [{ name: 'MemoryMax', value: 1n }]);
  await expect(setting).rejects.toMatchObject({ code: 9, reason: 'UNIT_UNAVAILABLE' });
});
