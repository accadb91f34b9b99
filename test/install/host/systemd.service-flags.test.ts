import { expect, test } from 'vitest';
import { serviceFlags, flagsIn } from '../../../src/install/host/systemd.ts';

test.each([
  ['CRI_RESIZE_SHIM_FLAGS="--config /etc/a.yaml"\n', ['--config', '/etc/a.yaml']],
  ["CRI_RESIZE_SHIM_FLAGS='--config /etc/a.yaml  --intercept=false'", ['--config', '/etc/a.yaml', '--intercept=false']],
  ['CRI_RESIZE_SHIM_FLAGS=--log-level=debug\n', ['--log-level=debug']],
  ['# CRI_RESIZE_SHIM_FLAGS="--a"\nOTHER=1\n', []],
  ['CRI_RESIZE_SHIM_FLAGS="--a"\nCRI_RESIZE_SHIM_FLAGS="--b"\n', ['--b']],
  ['CRI_RESIZE_SHIM_FLAGS="--a \\\n--b"\n', ['--a', '--b']],
  ['CRI_RESIZE_SHIM_FLAGS=""\n', []],
  ['', []],
])('reads the flags of the service in %j', (text, flags) => {
  expect(flagsIn(text)).toEqual(flags);
});

test('the service has no flags if its flags file does not exist', async () => {
  expect(await serviceFlags('/no/such/file')).toEqual([]);
  await expect(serviceFlags('/')).rejects.toThrow('EISDIR');
});
