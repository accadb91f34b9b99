import { rmSync } from 'node:fs';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { CriClient, Resources } from '../support/cri/client.ts';
import { type RunningPod, runPod } from '../support/cri/pod.ts';
import { Served } from '../support/e2e/served.ts';
import { refusal } from '../support/resize-api/client.ts';

/** Limits on huge pages of 2 MiB, of which the node has 32. */

const FILE = '/dev/hugepages/stock-kernel-test';

let served: Served;
let cri: CriClient;
let running: RunningPod;

beforeAll(async () => {
  served = await Served.start({ name: 'huge-pages-test', args: ['--foresight=false'] });
  ({ cri } = served);
});
afterEach(async () => {
  rmSync(FILE, { force: true });
  await running.remove();
});
afterAll(() => served.stop());

const huge = (mebibytes: number): Resources => ({ hugepage_limits: [{ page_size: '2MB', limit: mebibytes * MiB }] });
const memory = (mebibytes: number): Resources => ({ memory_limit_in_bytes: mebibytes * MiB });
async function pod(resources: Resources = {}): Promise<void> {
  running = await runPod(cri, {
    name: 'huge',
    containers: [{ name: 'app', command: ['sleep', '1000000'], resources: { ...memory(64), ...resources } }],
  });
}
/** The limits in MiB: of huge pages in use, and of reserved ones. */
const limits = (container?: string): unknown[] =>
  ['hugetlb.2MB.max', 'hugetlb.2MB.rsvd.max']
    .map((file) => running.read(file, container))
    .map((text) => (text === 'max' ? text : Number(text) / MiB));
/** Whether a process in the container can allocate this much memory in huge pages. */
async function gets(mebibytes: number): Promise<boolean> {
  rmSync(FILE, { force: true });
  const script = `echo $$ >${running.containerCgroup('app')}/cgroup.procs && exec fallocate -l ${mebibytes * MiB} ${FILE}`;
  const { exitCode } = await execa('sh', ['-c', script], { reject: false });
  return exitCode === 0;
}

describe('UpdatePodSandboxResources with limits on huge pages', () => {
  test('KEP-1287: UpdatePodSandboxResources limits the huge pages that the containers of a pod can use', async () => {
    await pod();
    expect(limits()).toEqual(['max', 'max']);
    await cri.updatePod(running.sandboxId, huge(4));
    expect([limits(), await gets(8), await gets(4)]).toEqual([[4, 4], false, true]);
    await cri.updatePod(running.sandboxId, { ...huge(8), ...memory(96) });
    expect([limits(), running.read('memory.max'), await gets(8)]).toEqual([[8, 8], String(96 * MiB), true]);
  });

  test('KEP-1287: a pod limit on huge pages below their usage is refused by the kernel and changes nothing', async () => {
    await pod();
    expect(await gets(8)).toBe(true);
    const call = cri.updatePod(running.sandboxId, { ...huge(4), ...memory(96) });
    expect(await refusal(call)).toMatchObject({ code: 9, reason: 'CGROUP_WRITE_FAILED' });
    expect([limits(), running.read('memory.max')]).toEqual([['max', 'max'], String(64 * MiB)]);
  });

  test('a pod limit on huge pages includes the overhead of the pod', async () => {
    await pod();
    await cri.updatePod(running.sandboxId, huge(4), { overhead: huge(2) });
    expect(limits()).toEqual([6, 6]);
  });

  test('KEP-1287: a pod limit on huge pages is rolled back if the kernel refuses another field', async () => {
    await pod();
    await cri.updatePod(running.sandboxId, huge(4));
    const call = cri.updatePod(running.sandboxId, { ...huge(8), ...memory(96), unified: { 'cpuset.mems': '5' } });
    expect(await refusal(call)).toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect([limits(), running.read('memory.max')]).toEqual([[4, 4], String(64 * MiB)]);
  });

  test('a pod limit on huge pages is rejected for a page size that the kernel does not have', async () => {
    await pod();
    const call = cri.updatePod(running.sandboxId, { hugepage_limits: [{ page_size: '3MB', limit: 6 * MiB }] });
    expect(await refusal(call)).toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    expect(limits()).toEqual(['max', 'max']);
  });
});

describe('UpdateContainerResources with limits on huge pages', () => {
  // containerd ignores them unless disable_hugetlb_controller is false. runc ignores them in an update.
  test('UpdateContainerResources with limits on huge pages succeeds with a warning if containerd ignores them', async () => {
    await pod(huge(4));
    expect(limits('app')).toEqual(['max', 'max']);
    await cri.updateContainer(running.id('app'), { ...huge(8), ...memory(96) });
    expect([limits('app'), running.read('memory.max', 'app')]).toEqual([['max', 'max'], String(96 * MiB)]);
    const warning = await served.shim.waitForLog(({ files }) => String(files).includes('hugetlb.2MB.max'));
    expect(warning.level).toBe('warn');
  });

  test('UpdateContainerResources applies a unified key for huge pages, and rolls it back if the runtime refuses another key', async () => {
    await pod();
    await cri.updateContainer(running.id('app'), { unified: { 'hugetlb.2MB.max': String(6 * MiB) } });
    expect(limits('app')).toEqual([6, 'max']);
    const refused = cri.updateContainer(running.id('app'), {
      ...memory(96),
      unified: { 'hugetlb.2MB.max': String(8 * MiB), 'memory.nonsense': '1' },
    });
    await expect(refused).rejects.toMatchObject({ details: expect.stringContaining('memory.nonsense') as string });
    expect([limits('app'), running.read('memory.max')]).toEqual([[6, 'max'], String(64 * MiB)]);
  });
});
