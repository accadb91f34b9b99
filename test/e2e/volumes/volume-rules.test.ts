import { randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { status } from '@grpc/grpc-js';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { CriClient } from '../../support/cri/client.ts';
import { createContainer, KUBELET_ROOT, type RunningPod } from '../../support/cri/pod.ts';
import type { LogLine, ShimProcess } from '../../support/cri/shim.ts';
import { Kubelet, removeFiles } from '../../support/e2e/kubelet.ts';
import { CACHE, limit, SLEEP, sizeOf, VolumeStage } from '../../support/e2e/stages.ts';
import { isKnownOption } from '../../support/kubelet-folder.ts';
import { type ResizeClient, refusal } from '../../support/resize-api/client.ts';

/** The rules of volumes (design of KEP-6030, docs/volumes.md) one by one, on a real kernel, through the shim. */

let stage: VolumeStage;
let shim: ShimProcess;
let cri: CriClient;
let api: ResizeClient;

beforeAll(async () => {
  stage = await VolumeStage.start('volume-rules-test', 128);
  ({ shim, cri, api } = stage.served);
});
afterEach(() => stage.removePods());
afterAll(async () => {
  await stage.served.stop();
  // Counts the remounts of all tests above, without pod names.
  const remounts = (await shim.waitForLog(({ msg }) => msg === 'stopped'))['remounts'] as string[];
  for (const wanted of [/^grow done \d+$/, /^shrink done \d+$/, /^shrink refused \d+$/])
    expect(remounts).toContainEqual(expect.stringMatching(wanted));
});

const setPod = (running: RunningPod, mebibytes: number): void =>
  writeFileSync(join(running.cgroup, 'memory.max'), String(mebibytes * MiB));

interface VolumeInfo {
  readonly policy?: string;
  readonly warning?: string;
  readonly lastError?: { readonly reason: string; readonly message: string };
}
interface Info {
  readonly annotationErrors?: readonly string[];
  readonly volumes: Readonly<Record<string, VolumeInfo>>;
}
async function info(running: RunningPod): Promise<Info> {
  const request = { pod_sandbox_id: running.sandboxId, verbose: true };
  const { info: given } = await cri.call<{ info: Record<string, string> }>('PodSandboxStatus', request);
  return JSON.parse(given['cri-resize-shim']!) as Info;
}

test('KEP-6030: an invalid annotation is reported in the status and once in the log, and the pod runs', async () => {
  const bad = {
    [CACHE]: 'plenty',
    'volume.cri-resize-shim.io/none': '0',
    'volume.cri-resize-shim.io/../cache': '8Mi',
    'volume.cri-resize-shim.io/': '8Mi',
  };
  const running = await stage.pod({ annotations: { ...bad, 'volume.cri-resize-shim.io/other': '32Mi' } });
  const { annotationErrors = [] } = await info(running);
  expect(annotationErrors).toHaveLength(4);
  for (const [key, value] of Object.entries(bad))
    expect(annotationErrors).toContainEqual(expect.stringContaining(`annotation ${key}: ${JSON.stringify(value)}: `));
  await cri.updateContainer(running.id('a'), limit(96));
  expect(await info(running)).toMatchObject({ annotationErrors });
  const logged = shim.log.filter(({ msg, pod: id }) => msg === 'annotation ignored' && id === running.sandboxId);
  expect(new Set(logged.map(({ error }) => error))).toEqual(new Set(annotationErrors));
  expect(logged).toHaveLength(4);
  expect([running.read('memory.max'), sizeOf(running)]).toEqual([String(96 * MiB), 64]);
});

describe('mount options and flags', () => {
  const options = [
    'noswap',
    'nr_inodes=1234',
    'mode=0750,uid=12,gid=13',
    'huge=within_size',
    'mpol=prefer:0',
    'nosuid',
    'nodev',
    'noexec',
    'noatime',
    'ro',
  ].filter(isKnownOption);

  test(`KEP-6030: a resize keeps other mount options on the node and in the containers: ${options.join(' ')}`, async () => {
    const volumes = options.map((option, index) => ({ name: `v${index}`, size: 16 * MiB, options: option }));
    const mounts = Object.fromEntries(volumes.map(({ name }) => [name, `/volumes/${name}`]));
    const running = await stage.pod({
      containers: [{ name: 'a', command: SLEEP, resources: limit(128), mounts }],
      volumes,
    });
    const lines = async (): Promise<readonly string[]> => [
      await cri.exec(running.id('a'), 'grep', '/volumes/', '/proc/self/mountinfo'),
      ...readFileSync('/proc/self/mountinfo', 'utf8')
        .split('\n')
        .filter((line) => line.includes(running.uid)),
    ];
    const before = await lines();
    for (const size of [24, 8]) {
      await stage.resize(running, Object.fromEntries(volumes.map(({ name }) => [name, `${size}Mi`])));
      const sized = (text: string): string => text.replaceAll(`size=${16 * 1024}k`, `size=${size * 1024}k`);
      expect(await lines()).toEqual(before.map(sized));
      expect(volumes.map(({ name }) => sizeOf(running, name))).toEqual(volumes.map(() => size));
    }
  });
});

test('KEP-6030: a volume larger than the memory limit is allowed, with a warning in the status, in GetPod and in the log', async () => {
  const running = await stage.pod();
  const isWarning = ({ msg, pod: id }: LogLine): boolean =>
    msg === 'volume larger than the memory limit of its pod' && id === running.sandboxId;
  const warnings = (): readonly LogLine[] => shim.log.filter(isWarning);
  const warned = (number: number): Promise<LogLine> => shim.waitForLog(isWarning, number);
  await stage.resize(running, { cache: '160Mi' });
  expect(sizeOf(running)).toBe(160);
  const warning = 'has 160Mi, more than the memory limit of the pod, 128Mi: a process may be killed before';
  expect((await info(running)).volumes['cache']?.warning).toContain(warning);
  expect(await api.call('GetPod', { pod: { uid: running.uid } })).toMatchObject({
    pod: { values: { volumes: [{ warning: expect.stringContaining(warning) as string }] } },
  });
  expect(await warned(1)).toMatchObject({
    level: 'warn',
    volume: 'cache',
    size: 160 * MiB,
    memoryLimit: 128 * MiB,
  });
  // Lowering the limit below the volume warns too, and raising it above the volume does not.
  await cri.updateContainer(running.id('a'), limit(96));
  await cri.updateContainer(running.id('a'), limit(192));
  await warned(2);
  expect(warnings()).toHaveLength(2);
  expect((await info(running)).volumes['cache']).not.toHaveProperty('warning');
});

test('KEP-6030: a volume that kubelet resizes itself keeps its size, and an annotation or a request for it is refused', async () => {
  const uid = randomUUID();
  const kubelet = new Kubelet(cri);
  mkdirSync(KUBELET_ROOT, { recursive: true });
  // kubelet writes what it admits before it creates the sandbox.
  kubelet.runs({ uid }, { containers: { a: 128 }, volumes: { cache: 64 } });
  const running = await stage.pod({ uid, annotations: { [CACHE]: '50%' } });
  const why = 'pod default/web: volume cache: kubelet sets its size from the sizeLimit in the spec';
  expect(await info(running)).toMatchObject({
    annotationErrors: [expect.stringContaining(why)],
    volumes: { cache: { policy: 'kubelet' } },
  });
  for (const dry_run of [true, false])
    expect(await refusal(stage.resize(running, { cache: '96Mi' }, { dry_run }))).toMatchObject({
      code: status.FAILED_PRECONDITION,
      reason: 'VOLUME_RESIZED_BY_KUBELET',
    });
  await cri.updateContainer(running.id('a'), limit(96));
  expect([running.read('memory.max'), sizeOf(running)]).toEqual([String(96 * MiB), 64]);
  removeFiles();
  await stage.resize(running, { cache: '32Mi' });
  expect(sizeOf(running)).toBe(32);
});

test('KEP-6030: the last error of a volume is reported until the next resize of the volume', async () => {
  const running = await stage.pod();
  await cri.exec(running.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=24');
  expect(await refusal(stage.resize(running, { cache: '16Mi' }))).toMatchObject({ reason: 'VOLUME_IN_USE' });
  const lastError = { reason: 'VOLUME_IN_USE', message: expect.stringContaining(String(24 * MiB)) as string };
  expect((await info(running)).volumes['cache']).toMatchObject({ lastError });
  // A resize of other parts of the pod does not clear it.
  await cri.updateContainer(running.id('a'), limit(96));
  expect(await api.call('GetPod', { pod: { uid: running.uid } })).toMatchObject({
    pod: { values: { volumes: [{ last_error: lastError }] } },
  });
  await stage.resize(running, { cache: '32Mi' });
  expect((await info(running)).volumes['cache']).not.toHaveProperty('lastError');
});

test('KEP-6030: a subPath of a volume that kubelet binds into a container has the size of the volume', async () => {
  const running = await stage.pod();
  const place = join(KUBELET_ROOT, 'pods', running.uid, 'volume-subpaths/cache/b/0');
  await execa('mkdir', ['-p', join(running.volumePath('cache'), 'inner'), place]);
  await execa('mount', ['--bind', join(running.volumePath('cache'), 'inner'), place]);
  try {
    const { sandboxId, uid, config } = running;
    const id = await createContainer(
      cri,
      { sandboxId, uid, config },
      { name: 'b', command: SLEEP, resources: limit(32), binds: { [place]: '/inner' } },
    );
    await cri.call('StartContainer', { container_id: id });
    for (const size of [96, 32]) {
      await stage.resize(running, { cache: `${size}Mi` });
      expect(await cri.exec(id, 'df', '-m', '/inner')).toMatch(new RegExp(`\\s${size}\\s`));
    }
    await cri.exec(id, 'dd', 'if=/dev/zero', 'of=/inner/file', 'bs=1M', 'count=20');
    expect(await refusal(stage.resize(running, { cache: '16Mi' }))).toMatchObject({ reason: 'VOLUME_IN_USE' });
  } finally {
    await cri.call('StopPodSandbox', { pod_sandbox_id: running.sandboxId });
    await execa('umount', [place]);
  }
});

test('KEP-6030: ResizePod resizes a volume without limits, and rejects a shrink below the stored files with both sizes', async () => {
  const running = await stage.pod();
  const to = (size: string): Promise<unknown> => stage.resize(running, { cache: size });
  await cri.exec(running.id('a'), 'sh', '-c', 'dd if=/dev/urandom of=/cache/file bs=1M count=20');
  const sum = await cri.exec(running.id('a'), 'sha256sum', '/cache/file');
  await to('96Mi');
  expect(sizeOf(running)).toBe(96);
  await to('24Mi');
  expect(sizeOf(running)).toBe(24);
  await expect(to('16Mi')).rejects.toMatchObject({
    code: 9,
    details: expect.stringMatching(new RegExp(`${16 * MiB}.*${20 * MiB}`)) as string,
  });
  expect([sizeOf(running), running.read('memory.max')]).toEqual([24, String(128 * MiB)]);
  expect(await cri.exec(running.id('a'), 'sha256sum', '/cache/file')).toBe(sum);
});

describe('kubelet’s sequence of calls', () => {
  const two = (): Promise<RunningPod> =>
    stage.pod({
      containers: ['a', 'b'].map((name) => ({ name, command: SLEEP, resources: limit(64) })),
      volumes: [{ name: 'cache', size: 128 * MiB }],
      annotations: { 'volume.cri-resize-shim.io/cache': 'follow' },
    });

  test('KEP-6030: a volume grows after kubelet has updated the last container, when the pod is tight again', async () => {
    const running = await two();
    setPod(running, 192);
    await cri.updateContainer(running.id('a'), limit(96));
    expect(sizeOf(running)).toBe(128);
    await cri.updateContainer(running.id('b'), limit(96));
    expect(sizeOf(running)).toBe(192);
  });

  test('KEP-6030: a volume grows 2 s after the last update of a pod that stays loose, and each update restarts the delay', async () => {
    const running = await two();
    setPod(running, 256);
    await cri.updateContainer(running.id('a'), limit(96));
    // Waits by the clock for most of the delay, to see that the volume does not grow earlier.
    await pause(1200);
    expect(sizeOf(running)).toBe(128);
    await cri.updateContainer(running.id('b'), limit(96));
    const last = Date.now();
    await pause(1200);
    expect(sizeOf(running)).toBe(128);
    await expect.poll(() => sizeOf(running), { timeout: 10_000, interval: 20 }).toBe(256);
    expect(Date.now() - last).toBeGreaterThan(1900);
  });

  test('KEP-6030: a volume shrinks before the container update that lowers the limit; an infeasible shrink rejects the update', async () => {
    const running = await two();
    await cri.updateContainer(running.id('a'), limit(32));
    expect([sizeOf(running), running.read('memory.max')]).toEqual([96, String(96 * MiB)]);
    const line = await shim.waitForLog(({ msg, pod: id }) => msg === 'pod resized' && id === running.sandboxId);
    const steps = (line['steps'] as { step: string }[]).map(({ step }) => step.split(' ')[0]);
    expect(steps).toEqual(['volume', 'runtime', 'pod']);
    writeFileSync(join(running.volumePath('cache'), 'file'), Buffer.alloc(80 * MiB));
    await expect(cri.updateContainer(running.id('b'), limit(32))).rejects.toMatchObject({
      code: 9,
      details: expect.stringContaining(`${80 * MiB} are stored in it`) as string,
    });
    const limits = [running.read('memory.max'), running.read('memory.max', 'b')];
    expect([sizeOf(running), ...limits]).toEqual([96, String(96 * MiB), String(64 * MiB)]);
  });
});

test('KEP-6030: a deferred shrink is applied immediately when it is requested again after files were removed', async () => {
  const running = await stage.pod();
  await cri.exec(running.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=40');
  const { resize: deferred } = await stage.resize(running, { cache: '32Mi' }, { defer: true });
  const { id, state } = deferred as unknown as { id: string; state: string };
  expect(state).toBe('DEFERRED');
  await cri.exec(running.id('a'), 'rm', '/cache/file');
  expect(await stage.resize(running, { cache: '32Mi' }, { defer: true })).toMatchObject({
    resize: { state: 'COMPLETED' },
  });
  expect(sizeOf(running)).toBe(32);
  // The first resize was superseded, or completed just before that.
  const { resize: first } = await api.call('GetResize', { id });
  expect(['CANCELED', 'COMPLETED']).toContain((first as unknown as { state: string }).state);
});

test('KEP-6030: two hundred volumes of a node are resized concurrently', async () => {
  const names = Array.from({ length: 50 }, (_, index) => `v${index}`);
  const all = await Promise.all(
    ['one', 'two', 'three', 'four'].map((name) =>
      stage.pod({
        name,
        containers: [{ name: 'a', command: SLEEP, resources: limit(64) }],
        volumes: names.map((volume) => ({ name: volume, size: 4 * MiB })),
      }),
    ),
  );
  const sizes = (index: number): number => 2 + (index % 5) * 2;
  const volumes = Object.fromEntries(names.map((name, index) => [name, `${sizes(index)}Mi`]));
  const answers = await Promise.all(all.map((running) => stage.resize(running, volumes)));
  for (const [index, running] of all.entries()) {
    expect(answers[index]).toMatchObject({ resize: { state: 'COMPLETED' } });
    expect(names.map((name) => sizeOf(running, name))).toEqual(names.map((_, order) => sizes(order)));
  }
});
