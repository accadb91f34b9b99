import { once } from 'node:events';
import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';

/** The view of clients when containerd stops and returns. */

const LISTEN = 'unix:///run/backend-test/cri.sock';
const BACKEND = '/run/containerd/containerd.sock';
const UNAVAILABLE = 14;

let shim: ShimProcess;
let cri: CriClient;

beforeAll(async () => {
  shim = await ShimProcess.start({ listen: LISTEN });
  cri = new CriClient(LISTEN);
});

afterAll(async () => {
  cri.close();
  expect(await shim.stop()).toBe(0);
});

const codeOf = (promise: Promise<unknown>): Promise<number> =>
  promise.then(
    () => 0,
    (error: unknown) => (error as { code: number }).code,
  );

const makePod = (): Promise<RunningPod> =>
  runPod(cri, {
    name: 'survivor',
    containers: [{ name: 'a', command: ['sleep', '1000000'], resources: { memory_limit_in_bytes: 64 * MiB } }],
  });

test('the CRI socket has the mode and owner of the containerd socket, and its folder grants no more access', () => {
  const [ours, theirs] = [LISTEN.slice('unix://'.length), BACKEND].map((path) => statSync(path));
  expect([ours!.mode, ours!.uid, ours!.gid]).toEqual([theirs!.mode, theirs!.uid, theirs!.gid]);
  const folder = statSync(dirname(LISTEN.slice('unix://'.length))).mode & 0o777;
  expect(folder & ~statSync(dirname(BACKEND)).mode).toBe(0);
});

test('KEP-1287: calls and streams end UNAVAILABLE when containerd is killed, and work again when it is back', async () => {
  const pod = await makePod();
  const pid = await cri.pidOf(pod.id('a'));
  const compared = (times: number): Promise<unknown> =>
    shim.waitForLog(({ msg }) => msg === 'registry compared with the backend', times);
  await compared(1);
  const containers = cri.stream('GetContainerEvents', {});
  // containerd 1.6 does not have this call, so there is no stream to cut.
  const ended = once(containers, 'error').then(([error]) => (error as { code: number }).code);
  await execa('node-containerd', ['kill']);
  expect([UNAVAILABLE, 12]).toContain(await ended);
  expect(await codeOf(cri.version())).toBe(UNAVAILABLE);
  await execa('node-containerd', ['start']);
  await cri.ready(120_000);
  expect((await cri.version()).runtime_name).toBe('containerd');
  // After the registry has been compared with the new backend, a pod from before the kill can be resized.
  await compared(2);
  await cri.updateContainer(pod.id('a'), { memory_limit_in_bytes: 96 * MiB });
  expect(pod.read('memory.max')).toBe(String(96 * MiB));
  expect(pod.read('memory.max', 'a')).toBe(String(96 * MiB));
  expect(await cri.pidOf(pod.id('a'))).toBe(pid);
  await pod.remove();
});

test('calls end UNAVAILABLE until containerd starts after the shim, and then work without a restart of the shim', async () => {
  await execa('node-containerd', ['stop']);
  const client = new CriClient('unix:///run/early-test/cri.sock');
  const early = await ShimProcess.start({ listen: client.address, wait: 'serving' });
  try {
    expect(await codeOf(client.version())).toBe(UNAVAILABLE);
    await execa('node-containerd', ['start']);
    await client.ready(120_000);
    expect((await client.version()).runtime_name).toBe('containerd');
    await early.waitForLog(({ msg }) => msg === 'registry compared with the backend');
  } finally {
    client.close();
    expect(await early.stop()).toBe(0);
  }
});

test('a shim that is stopped completes a running call before it exits', async () => {
  const pod = await makePod();
  // On a busy machine, the end of the call may take longer than the default of 30 s.
  const args = ['--shutdown-timeout', '120s'];
  const passing = await ShimProcess.start({ listen: 'unix:///run/stop-test/cri.sock', args });
  const client = new CriClient(passing.address);
  const command = 'echo started >/dev/shm/started; until [ -e /dev/shm/end ]; do sleep 0.1; done; echo done';
  const running = client.exec(pod.id('a'), 'sh', '-c', command);
  // The command itself reports that the call has reached the container.
  while (!(await cri.tryExec(pod.id('a'), 'cat', '/dev/shm/started')).stdout.includes('started'));
  const stopped = passing.stop();
  await passing.waitForLog(({ msg }) => msg === 'stopping');
  // Through the other shim.
  await cri.exec(pod.id('a'), 'touch', '/dev/shm/end');
  expect(await running).toBe('done\n');
  expect(await stopped).toBe(0);
  expect(await codeOf(client.version())).toBe(UNAVAILABLE);
  client.close();
  await pod.remove();
});
