import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { Served } from '../../support/e2e/served.ts';
import { refusal } from '../../support/resize-api/client.ts';

/**
 * A container that is starting: the OCI runtime creates its cgroup with the previous limits, and containerd 1.7 only
 * stores an update (UpdateContainerResources of a container that does not run).
 */

const direct = new CriClient('unix:///run/containerd/containerd.sock');
let served: Served;
let pod: RunningPod;
let started: Promise<unknown>;

beforeAll(async () => {
  served = await Served.start({ name: 'starting-container', args: ['--foresight=false'] });
});
afterAll(async () => {
  await served.stop();
  direct.close();
});

const podLimit = (): number => Number(pod.read('memory.max')) / MiB;
const limits = (): number[] => [podLimit(), Number(pod.read('memory.max', 'app')) / MiB];
const freeze = (value: '0' | '1'): void => writeFileSync(join(pod.cgroup, 'cgroup.freeze'), value);

beforeEach(async () => {
  const app = { name: 'app', command: ['sleep', '1000000'], starts: false } as const;
  const resources = { memory_limit_in_bytes: 128 * MiB };
  pod = await runPod(served.cri, { name: 'starting', containers: [{ ...app, resources }] });
});

interface Hold {
  readonly begin: () => Promise<void>;
  readonly end: () => void;
  /** Returns a file that exists once the start has reached this point. */
  readonly reaches: () => string;
}

/** The first process of a container cannot leave the runtime's `create` as long as the cgroup of its pod is frozen. */
const withCgroup: Hold = {
  begin() {
    freeze('1');
    return Promise.resolve();
  },
  end: () => freeze('0'),
  reaches: () => join(pod.containerCgroup('app'), 'memory.max'),
};

let containerdShim: number;
/** containerd has read the values of the container, and its shim, which is stopped, has not called the OCI runtime. */
const withoutCgroup: Hold = {
  async begin() {
    const request = { pod_sandbox_id: pod.sandboxId, verbose: true };
    const { info } = await direct.call<{ info: Record<string, string> }>('PodSandboxStatus', request);
    const { pid } = JSON.parse(info['info']!) as { pid: number };
    containerdShim = Number(/^PPid:\s*(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]);
    process.kill(containerdShim, 'SIGSTOP');
  },
  end: () => void process.kill(containerdShim, 'SIGCONT'),
  reaches: () => join('/run/containerd/io.containerd.runtime.v2.task/k8s.io', pod.id('app'), 'config.json'),
};

let hold: Hold;
async function start(how: Hold): Promise<void> {
  hold = how;
  await hold.begin();
  started = served.cri.call('StartContainer', { container_id: pod.id('app') });
  await expect.poll(() => existsSync(hold.reaches())).toBe(true);
}
afterEach(async () => {
  hold.end();
  await started;
  await pod.remove();
});

const resize = (mebibytes: number, more: object = {}) =>
  served.api.call('ResizePod', {
    pod: { sandbox_id: pod.sandboxId },
    containers: { app: { limits: { memory: `${mebibytes}Mi` } } },
    ...more,
  });

test.each([
  [48, 'has its cgroup', withCgroup],
  [192, 'has its cgroup', withCgroup],
  [48, 'has no cgroup yet', withoutCgroup],
])(
  'a ResizePod to %i Mi of a container that is being started and %s is rejected, and changes nothing',
  async (mebibytes, _, how) => {
    await start(how);
    expect(await refusal(resize(mebibytes))).toMatchObject({ reason: 'NO_RUNNING_CONTAINER' });
    expect(podLimit()).toBe(128);
    hold.end();
    await started;
    expect(limits()).toEqual([128, 128]);
    await resize(mebibytes);
    expect(limits()).toEqual([mebibytes, mebibytes]);
  },
);

test('a deferred ResizePod of a container that is being started is applied when it runs', async () => {
  await start(withCgroup);
  const { resize: deferred } = await resize(48, { defer: true });
  expect(deferred).toMatchObject({ state: 'DEFERRED', reason: 'NO_RUNNING_CONTAINER' });
  expect(podLimit()).toBe(128);
  hold.end();
  await started;
  await served.shim.waitForLog((line) => line.msg === 'deferred resize retried' && line['state'] === 'Completed');
  expect(limits()).toEqual([48, 48]);
});
