import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { CriClient, type Resources } from '../cri/client.ts';
import { KUBELET_ROOT, type PodSpec, type RunningPod, createContainer, runPod } from '../cri/pod.ts';
import { ShimProcess } from '../cri/shim.ts';
import { type Answer, ResizeClient, refusal } from '../server/resize-api-client.ts';
import { isKnownOption } from '../tmpfs/kubelet-folder.ts';

/** The rules of volumes one by one (design of KEP-6030, docs/volumes.md), on a real kernel, through the shim. */

const MI = 1024 * 1024;
const RESIZE = '/run/volume-rules-test/resize.sock';
const SLEEP = ['sleep', '1000000'];
const CACHE = 'volume.cri-resize-shim.io/cache';

let shim: ShimProcess;
let cri: CriClient;
let api: ResizeClient;
const pods: RunningPod[] = [];

beforeAll(async () => {
  shim = await ShimProcess.start({ args: ['--resize-listen', RESIZE] });
  cri = new CriClient(shim.address);
  api = new ResizeClient(RESIZE);
});
afterEach(async () => {
  for (const pod of pods.splice(0)) await pod.remove();
});
afterAll(async () => {
  cri.close();
  api.close();
  expect(await shim.stop()).toBe(0);
  // By what all these tests have done, without a pod's name.
  const told = shim.log.find(({ msg }) => msg === 'stopped')?.['remounts'] as string[];
  for (const wanted of [/^grow done \d+$/, /^shrink done \d+$/, /^shrink refused \d+$/])
    expect(told).toContainEqual(expect.stringMatching(wanted));
});

const limit = (mebibytes: number): Resources => ({ memory_limit_in_bytes: mebibytes * MI });

async function pod(spec: Partial<PodSpec> = {}): Promise<RunningPod> {
  const running = await runPod(cri, {
    name: 'web',
    containers: [{ name: 'a', command: SLEEP, resources: limit(128), mounts: { cache: '/cache' } }],
    volumes: [{ name: 'cache', size: 64 * MI }],
    ...spec,
  });
  pods.push(running);
  return running;
}

const resize = (running: RunningPod, volumes: Readonly<Record<string, string>>, more: object = {}): Promise<Answer> =>
  api.call('ResizePod', { pod: { sandbox_id: running.sandboxId }, volumes, ...more });
const sizeOf = (running: RunningPod, name = 'cache'): number => running.volume(name).size / MI;
const setPod = (running: RunningPod, mebibytes: number): void =>
  writeFileSync(join(running.cgroup, 'memory.max'), String(mebibytes * MI));

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

test('annotations that make no sense: told in the status and once in the log, and the pod runs', async () => {
  const bad = {
    [CACHE]: 'plenty',
    'volume.cri-resize-shim.io/none': '0',
    'volume.cri-resize-shim.io/../cache': '8Mi',
    'volume.cri-resize-shim.io/': '8Mi',
  };
  const running = await pod({ annotations: { ...bad, 'volume.cri-resize-shim.io/other': '32Mi' } });
  const { annotationErrors = [] } = await info(running);
  expect(annotationErrors).toHaveLength(4);
  for (const [key, value] of Object.entries(bad))
    expect(annotationErrors).toContainEqual(expect.stringContaining(`annotation ${key}: ${JSON.stringify(value)}: `));
  await cri.updateContainer(running.id('a'), limit(96));
  expect(await info(running)).toMatchObject({ annotationErrors });
  const logged = shim.log.filter(({ msg, pod: id }) => msg === 'annotation left aside' && id === running.sandboxId);
  expect(new Set(logged.map(({ error }) => error))).toEqual(new Set(annotationErrors));
  expect(logged).toHaveLength(4);
  expect([running.read('memory.max'), sizeOf(running)]).toEqual([String(96 * MI), 64]);
});

describe('every other option and flag', () => {
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

  test(`stays on the node and in the containers: ${options.join(' ')}`, async () => {
    const volumes = options.map((option, index) => ({ name: `v${index}`, size: 16 * MI, options: option }));
    const mounts = Object.fromEntries(volumes.map(({ name }) => [name, `/volumes/${name}`]));
    const running = await pod({
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
      await resize(running, Object.fromEntries(volumes.map(({ name }) => [name, `${size}Mi`])));
      const sized = (text: string): string => text.replaceAll(`size=${16 * 1024}k`, `size=${size * 1024}k`);
      expect(await lines()).toEqual(before.map(sized));
      expect(volumes.map(({ name }) => sizeOf(running, name))).toEqual(volumes.map(() => size));
    }
  });
});

test('a volume that is larger than the limit: allowed, with a warning in the status, in GetPod and in the log', async () => {
  const running = await pod();
  const warnings = (): number => shim.log.filter(({ msg }) => msg.startsWith('volume has 160Mi, more than')).length;
  await resize(running, { cache: '160Mi' });
  expect(sizeOf(running)).toBe(160);
  const warning = 'has 160Mi, more than the memory limit of the pod, 128Mi: a process may be killed before';
  expect((await info(running)).volumes['cache']?.warning).toContain(warning);
  expect(await api.call('GetPod', { pod: { uid: running.uid } })).toMatchObject({
    pod: { values: { volumes: [{ warning: expect.stringContaining(warning) as string }] } },
  });
  expect(await shim.waitForLog(({ msg }) => msg.startsWith('volume has 160Mi'))).toMatchObject({
    ...{ level: 'warn', pod: running.sandboxId, volume: 'cache', size: 160 * MI, memoryLimit: 128 * MI },
  });
  // The limit that goes below a volume is as good a reason, and one that goes past it none.
  await cri.updateContainer(running.id('a'), limit(96));
  await cri.updateContainer(running.id('a'), limit(192));
  expect(warnings()).toBe(2);
  expect((await info(running)).volumes['cache']).not.toHaveProperty('warning');
});

test('what went wrong last is told of the volume, until it is asked for anew', async () => {
  const running = await pod();
  await cri.exec(running.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=24');
  expect(await refusal(resize(running, { cache: '16Mi' }))).toMatchObject({ reason: 'VOLUME_IN_USE' });
  const lastError = { reason: 'VOLUME_IN_USE', message: expect.stringContaining(String(24 * MI)) as string };
  expect((await info(running)).volumes['cache']).toMatchObject({ lastError });
  // What is done for the rest of the pod does not take it away.
  await cri.updateContainer(running.id('a'), limit(96));
  expect(await api.call('GetPod', { pod: { uid: running.uid } })).toMatchObject({
    pod: { values: { volumes: [{ last_error: lastError }] } },
  });
  await resize(running, { cache: '32Mi' });
  expect((await info(running)).volumes['cache']).not.toHaveProperty('lastError');
});

test('a subPath of a volume, bound into a container by kubelet, has the size of the volume', async () => {
  const running = await pod();
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
      await resize(running, { cache: `${size}Mi` });
      expect(await cri.exec(id, 'df', '-m', '/inner')).toMatch(new RegExp(`\\s${size}\\s`));
    }
    await cri.exec(id, 'dd', 'if=/dev/zero', 'of=/inner/file', 'bs=1M', 'count=20');
    expect(await refusal(resize(running, { cache: '16Mi' }))).toMatchObject({ reason: 'VOLUME_IN_USE' });
  } finally {
    await cri.call('StopPodSandbox', { pod_sandbox_id: running.sandboxId });
    await execa('umount', [place]);
  }
});

test('a volume alone by UpdatePodSandboxResources: grown, shrunk, refused with both figures, its files as they were', async () => {
  const running = await pod();
  const to = (size: string): Promise<unknown> =>
    cri.updatePod(running.sandboxId, {}, { annotations: { [CACHE]: size } });
  await cri.exec(running.id('a'), 'sh', '-c', 'dd if=/dev/urandom of=/cache/file bs=1M count=20');
  const sum = await cri.exec(running.id('a'), 'sha256sum', '/cache/file');
  await to('96Mi');
  expect(sizeOf(running)).toBe(96);
  await to('24Mi');
  expect(sizeOf(running)).toBe(24);
  await expect(to('16Mi')).rejects.toMatchObject({
    code: 9,
    details: expect.stringMatching(new RegExp(`${16 * MI}.*${20 * MI}`)) as string,
  });
  expect([sizeOf(running), running.read('memory.max')]).toEqual([24, String(128 * MI)]);
  expect(await cri.exec(running.id('a'), 'sha256sum', '/cache/file')).toBe(sum);
});

describe('in kubelet’s flow', () => {
  const two = (): Promise<RunningPod> =>
    pod({
      containers: ['a', 'b'].map((name) => ({ name, command: SLEEP, resources: limit(64) })),
      // As large as the pod's limit: it follows.
      volumes: [{ name: 'cache', size: 128 * MI }],
    });

  test('a volume grows when the pod is tight again, after the last of its containers', async () => {
    const running = await two();
    setPod(running, 192);
    await cri.updateContainer(running.id('a'), limit(96));
    expect(sizeOf(running)).toBe(128);
    await cri.updateContainer(running.id('b'), limit(96));
    expect(sizeOf(running)).toBe(192);
  });

  test('and 2 s after the last update where it stays loose; each update begins the time anew', async () => {
    const running = await two();
    setPod(running, 256);
    await cri.updateContainer(running.id('a'), limit(96));
    // Most of the time, by the clock: that it does not grow earlier is what is to be seen.
    await pause(1200);
    expect(sizeOf(running)).toBe(128);
    await cri.updateContainer(running.id('b'), limit(96));
    const last = Date.now();
    await pause(1200);
    expect(sizeOf(running)).toBe(128);
    await expect.poll(() => sizeOf(running), { timeout: 10_000, interval: 20 }).toBe(256);
    expect(Date.now() - last).toBeGreaterThan(1900);
    expect(Date.now() - last).toBeLessThan(4000);
  });

  test('a volume shrinks before the container update that lowers, and a shrink that files forbid refuses it', async () => {
    const running = await two();
    await cri.updateContainer(running.id('a'), limit(32));
    expect([sizeOf(running), running.read('memory.max')]).toEqual([96, String(96 * MI)]);
    const line = shim.log.findLast(({ msg, pod: id }) => msg === 'pod resized' && id === running.sandboxId);
    const steps = (line?.['steps'] as { step: string }[]).map(({ step }) => step.split(' ')[0]);
    expect(steps).toEqual(['volume', 'runtime', 'pod']);
    writeFileSync(join(running.volumePath('cache'), 'file'), Buffer.alloc(80 * MI));
    await expect(cri.updateContainer(running.id('b'), limit(32))).rejects.toMatchObject({
      code: 9,
      details: expect.stringContaining(`${80 * MI} are stored in it`) as string,
    });
    const limits = [running.read('memory.max'), running.read('memory.max', 'b')];
    expect([sizeOf(running), ...limits]).toEqual([96, String(96 * MI), String(64 * MI)]);
  });
});

test('a shrink that waits for files to go is done at once when it is asked for again', async () => {
  const running = await pod();
  await cri.exec(running.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=40');
  const { resize: deferred } = await resize(running, { cache: '32Mi' }, { defer: true });
  const { id, state } = deferred as unknown as { id: string; state: string };
  expect(state).toBe('DEFERRED');
  await cri.exec(running.id('a'), 'rm', '/cache/file');
  expect(await resize(running, { cache: '32Mi' }, { defer: true })).toMatchObject({ resize: { state: 'COMPLETED' } });
  expect(sizeOf(running)).toBe(32);
  // It is either superseded, or was done just before.
  const { resize: first } = await api.call('GetResize', { id });
  expect(['CANCELED', 'COMPLETED']).toContain((first as unknown as { state: string }).state);
});

test('two hundred volumes of a node, resized at once', async () => {
  const names = Array.from({ length: 50 }, (_, index) => `v${index}`);
  const all = await Promise.all(
    ['one', 'two', 'three', 'four'].map((name) =>
      pod({
        name,
        containers: [{ name: 'a', command: SLEEP, resources: limit(64) }],
        volumes: names.map((volume) => ({ name: volume, size: 4 * MI })),
      }),
    ),
  );
  const sizes = (index: number): number => 2 + (index % 5) * 2;
  const volumes = Object.fromEntries(names.map((name, index) => [name, `${sizes(index)}Mi`]));
  const answers = await Promise.all(all.map((running) => resize(running, volumes)));
  for (const [index, running] of all.entries()) {
    expect(answers[index]).toMatchObject({ resize: { state: 'COMPLETED' } });
    expect(names.map((name) => sizeOf(running, name))).toEqual(names.map((_, order) => sizes(order)));
  }
});

describe('hostile', () => {
  const secrets: string[] = [];
  afterEach(async () => {
    for (const secret of secrets.splice(0)) await execa('umount', [secret]);
  });

  /** A secret of the pod: a tmpfs, too. */
  async function mountSecret(running: RunningPod): Promise<string> {
    const secret = join(KUBELET_ROOT, 'pods', running.uid, 'volumes/kubernetes.io~secret/cache');
    await execa('mkdir', ['-p', secret]);
    await execa('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', secret]);
    secrets.push(secret);
    writeFileSync(join(secret, 'token'), 'secret');
    return secret;
  }
  const megabytesAt = async (folder: string): Promise<number> => {
    const { stdout } = await execa('stat', ['-f', '-c', '%b %S', folder]);
    const [blocks, size] = stdout.split(' ').map(Number);
    return (blocks! * size!) / MI;
  };

  test('the volumes’ folder exchanged for a link to the secrets’, again and again, through whole resizes', async () => {
    const running = await pod();
    const secret = await mountSecret(running);
    const real = join(KUBELET_ROOT, 'pods', running.uid, 'volumes/kubernetes.io~empty-dir');
    const stop = '/tmp/volume-rules-stop';
    const racer = execa('sh', ['-c', RACER, real, join(secret, '..'), stop]);
    const seen = new Map<string, number>();
    const count = (outcome: string): number => seen.get(outcome) ?? 0;
    try {
      // At least so often, and until both have been met: the volume, and the link in the act.
      for (let round = 0; round < 16 || ((count('done') === 0 || count('refused') === 0) && round < 1000); round += 1) {
        const to = 96 + (round % 2) * 32;
        const more = { containers: { a: { limits: { memory: `${to}Mi` } } } };
        const outcome = await resize(running, { cache: `${16 + (round % 8)}Mi` }, more).then(
          () => 'done',
          (error: unknown) => {
            expect(String(error)).toMatch(/volume/);
            return 'refused';
          },
        );
        seen.set(outcome, count(outcome) + 1);
        const limits = [running.read('memory.max'), running.read('memory.max', 'a')];
        // All of it or nothing.
        expect(limits[0]).toBe(limits[1]);
        if (outcome === 'done') expect(limits[0]).toBe(String(to * MI));
        expect(await megabytesAt(secret)).toBe(4);
      }
    } finally {
      writeFileSync(stop, '');
      await racer;
      await execa('rm', [stop]);
    }
    expect([count('done') > 0, count('refused') > 0], JSON.stringify([...seen])).toEqual([true, true]);
    await resize(running, { cache: '40Mi' });
    expect([sizeOf(running), await megabytesAt(secret)]).toEqual([40, 4]);
    expect(readFileSync(join(secret, 'token'), 'utf8')).toBe('secret');
  });

  test('a secret bound over the volume: refused, and neither is touched', async () => {
    const running = await pod({ annotations: { [CACHE]: '50%' } });
    const secret = await mountSecret(running);
    await execa('mount', ['--bind', secret, running.volumePath('cache')]);
    try {
      const refused = await refusal(resize(running, { cache: '96Mi' }));
      expect(refused).toMatchObject({ code: 3, reason: 'UNKNOWN_VOLUME' });
      // Nor in kubelet's flow.
      await cri.updateContainer(running.id('a'), limit(160));
      expect(await megabytesAt(secret)).toBe(4);
    } finally {
      await execa('umount', [running.volumePath('cache')]);
    }
    expect(sizeOf(running)).toBe(64);
    await resize(running, { cache: '96Mi' });
    expect(sizeOf(running)).toBe(96);
  });

  test('names that lead elsewhere, and the volume of another pod', async () => {
    const running = await pod();
    const other = await pod({
      name: 'other',
      volumes: [{ name: 'theirs', size: 32 * MI }],
      containers: [{ name: 'a', command: SLEEP, resources: limit(32) }],
    });
    const secret = await mountSecret(running);
    for (const name of [
      '..',
      '../cache',
      'cache/..',
      '../kubernetes.io~secret/cache',
      `../../../${other.uid}/theirs`,
    ]) {
      expect(await refusal(resize(running, { [name]: '8Mi' })), name).toMatchObject({ reason: 'INVALID_VALUE' });
      const annotations = { [`volume.cri-resize-shim.io/${name}`]: '8Mi' };
      await expect(cri.updatePod(running.sandboxId, {}, { annotations }), name).rejects.toMatchObject({ code: 3 });
    }
    expect(await refusal(resize(running, { theirs: '8Mi' }))).toMatchObject({ reason: 'UNKNOWN_VOLUME' });
    expect([sizeOf(running), sizeOf(other, 'theirs'), await megabytesAt(secret)]).toEqual([64, 32, 4]);
  });

  test('a pod whose uid is none, or leads to another pod, has no volumes', async () => {
    const running = await pod();
    for (const uid of ['..', `x/../${running.uid}`]) {
      const config = structuredClone(running.config) as { metadata: { uid: string; name: string } };
      Object.assign(config.metadata, { uid, name: 'stranger' });
      const { pod_sandbox_id } = await cri.call<{ pod_sandbox_id: string }>('RunPodSandbox', { config });
      try {
        const asked = api.call('ResizePod', { pod: { sandbox_id: pod_sandbox_id }, volumes: { cache: '8Mi' } });
        expect(await refusal(asked)).toMatchObject({ reason: 'UNKNOWN_VOLUME' });
        const annotations = { [CACHE]: '8Mi' };
        await expect(cri.updatePod(pod_sandbox_id, {}, { annotations })).rejects.toMatchObject({ code: 3 });
        expect(sizeOf(running)).toBe(64);
      } finally {
        await cri.call('StopPodSandbox', { pod_sandbox_id });
        await cri.call('RemovePodSandbox', { pod_sandbox_id });
      }
    }
  });
});

/** Exchanges the folder $0 for a link to $1 and back, until there is $2. */
const RACER = `
ln -s "$1" "$0-link"
while [ ! -e "$2" ]; do
  mv -T "$0" "$0-real"; mv -T "$0-link" "$0"; mv -T "$0" "$0-link"; mv -T "$0-real" "$0"
  sleep 0.01
done
rm "$0-link"`;
