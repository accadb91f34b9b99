import { status } from '@grpc/grpc-js';
import { beforeEach, expect, test } from 'vitest';
import { Metadata, type ServiceError } from '../../src/core/grpc.ts';
import type { Backend } from '../../src/runtime/backend.ts';
import { BackendCgroupDriver, queryCgroupDriver } from '../../src/runtime/cgroup-driver.ts';

/** The answer of the backend to each method. An Error is thrown. */
let answers: Record<string, unknown>;
let calls: string[];
const backend = {
  runtime(method: string) {
    calls.push(method);
    const answer = answers[method];
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  },
} as unknown as Pick<Backend, 'runtime'>;

const failure = (code: status): ServiceError =>
  Object.assign(new Error('failed'), { code, details: 'failed', metadata: new Metadata() });
const config = (driver: number) => ({ linux: { cgroup_driver: driver } });
const statusWith = (systemd: boolean) => ({
  info: { config: JSON.stringify({ containerd: { runtimes: { runc: { options: { SystemdCgroup: systemd } } } } }) },
});

beforeEach(() => {
  calls = [];
  answers = { RuntimeConfig: config(0) };
});

test.each([
  [0, 'SYSTEMD'],
  [1, 'CGROUPFS'],
  [7, undefined],
])('cgroup driver %s in RuntimeConfig is read as %s', async (driver, name) => {
  answers = { RuntimeConfig: config(driver) };
  expect(await queryCgroupDriver(backend)).toBe(name);
});

test.each([
  [true, 'SYSTEMD'],
  [false, 'CGROUPFS'],
])(
  'systemd: without RuntimeConfig, SystemdCgroup=%s in the configuration of the backend selects the driver %s',
  async (systemd, name) => {
    answers = { RuntimeConfig: failure(status.UNIMPLEMENTED), Status: statusWith(systemd) };
    expect(await queryCgroupDriver(backend)).toBe(name);
  },
);

test('queryCgroupDriver throws errors of RuntimeConfig other than UNIMPLEMENTED', async () => {
  answers = { RuntimeConfig: failure(status.UNAVAILABLE) };
  await expect(queryCgroupDriver(backend)).rejects.toMatchObject({ code: status.UNAVAILABLE });
  expect(calls).toEqual(['RuntimeConfig']);
});

test('the cgroup driver is requested once per connection and remembered while the backend is unavailable', async () => {
  const driver = new BackendCgroupDriver(backend);
  expect(await Promise.all([driver.name(), driver.name()])).toEqual(['SYSTEMD', 'SYSTEMD']);
  expect(calls).toHaveLength(1);
  answers = { RuntimeConfig: failure(status.UNAVAILABLE) };
  driver.reconnected();
  expect(await driver.name()).toBe('SYSTEMD');
  answers = { RuntimeConfig: config(1) };
  expect(await driver.name()).toBe('CGROUPFS');
  expect(calls).toHaveLength(3);
});

test('the cgroup driver is unknown until the backend has answered', async () => {
  answers = { RuntimeConfig: failure(status.UNAVAILABLE) };
  expect(await new BackendCgroupDriver(backend).name()).toBeUndefined();
});
