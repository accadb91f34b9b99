import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { CriClient } from '../../support/cri/client.ts';
import type { RunningPod } from '../../support/cri/pod.ts';
import { limit, SLEEP, sizeOf, VolumeStage } from '../../support/e2e/stages.ts';
import { type Answer, type ResizeClient, refusal } from '../../support/resize-api/client.ts';
import { PodWatcher } from '../../watch/watcher.ts';

/** Memory-backed volumes in a resize of their pod: KEP-6030 on a real kernel, through the shim. */

let stage: VolumeStage;
let cri: CriClient;
let api: ResizeClient;

beforeAll(async () => {
  stage = await VolumeStage.start('volumes-test', 256);
  ({ cri, api } = stage.served);
});
afterEach(() => stage.removePods());
afterAll(() => stage.served.stop());

interface Change {
  readonly memory?: string;
  readonly cache?: string;
  readonly defer?: boolean;
}

function resize(running: RunningPod, { memory, cache, defer = false }: Change): Promise<Answer> {
  return api.call('ResizePod', {
    pod: { sandbox_id: running.sandboxId },
    containers: memory === undefined ? {} : { a: { limits: { memory } } },
    volumes: cache === undefined ? {} : { cache },
    defer,
  });
}

const stepsOf = (answer: Answer): string[] =>
  (answer['resize']!['steps'] as unknown as { kind: string }[]).map(({ kind }) => kind);
const limitsOf = (running: RunningPod): string[] => [running.read('memory.max'), running.read('memory.max', 'a')];

describe('the order of volume and limit', () => {
  // The limit starts at 256 MiB and the volume at 64 MiB. `first` is the first change in the table of the KEP.
  test.each([
    {
      what: 'volume up, limit up',
      memory: 320,
      cache: 96,
      first: 'limit',
      steps: ['POD_MEMORY', 'CONTAINER', 'VOLUME'],
    },
    {
      what: 'volume down, limit down',
      memory: 192,
      cache: 32,
      first: 'volume',
      steps: ['VOLUME', 'CONTAINER', 'POD_MEMORY'],
    },
    { what: 'volume up, limit unchanged', memory: 256, cache: 96, first: 'volume', steps: ['VOLUME'] },
    { what: 'volume down, limit unchanged', memory: 256, cache: 32, first: 'volume', steps: ['VOLUME'] },
    {
      what: 'volume up, limit down',
      memory: 192,
      cache: 96,
      first: 'limit',
      steps: ['CONTAINER', 'POD_MEMORY', 'VOLUME'],
    },
    {
      what: 'volume down, limit up',
      memory: 320,
      cache: 32,
      first: 'volume',
      steps: ['VOLUME', 'POD_MEMORY', 'CONTAINER'],
    },
    { what: 'limit up, volume unchanged', memory: 320, cache: 64, first: 'limit', steps: ['POD_MEMORY', 'CONTAINER'] },
    {
      what: 'limit down, volume unchanged',
      memory: 192,
      cache: 64,
      first: 'limit',
      steps: ['CONTAINER', 'POD_MEMORY'],
    },
  ])('the order of volume and limit follows the KEP for $what', async ({ memory, cache, first, steps }) => {
    const running = await stage.pod();
    const watcher = await PodWatcher.watch(running);
    const answer = await resize(running, { memory: `${memory}Mi`, cache: `${cache}Mi` });
    const { states } = await watcher.report();
    const seen = states.map((now) => `${now['pod memory.max']},${now['a memory.max']} ${now['volume cache']}`);
    expect(stepsOf(answer)).toEqual(steps);
    const state = (pod: number, container: number, volume: number): string =>
      `${pod * MiB},${container * MiB} ${volume * MiB}`;
    expect([seen[0], seen.at(-1)]).toEqual([state(256, 256, 64), state(memory, memory, cache)]);
    // The second change is never visible without the first one, because a call to the runtime is between them.
    const [early, late] =
      first === 'limit' ? [`${256 * MiB} ${cache * MiB}`, 'volume'] : [`${memory * MiB} ${64 * MiB}`, 'limit'];
    if (memory !== 256 && cache !== 64)
      expect(
        seen.filter((line) => line.endsWith(`,${early}`)),
        late,
      ).toEqual([]);
  });

  test('KEP-6030: in a request with several volumes, those that shrink come first, then cgroups, then those that grow', async () => {
    const names = ['one', 'two', 'three', 'four'];
    const mounts = Object.fromEntries(names.map((name) => [name, `/${name}`]));
    const running = await stage.pod({
      containers: [{ name: 'a', command: SLEEP, resources: limit(256), mounts }],
      volumes: names.map((name) => ({ name, size: 64 * MiB })),
    });
    const answer = await api.call('ResizePod', {
      pod: { sandbox_id: running.sandboxId },
      containers: { a: { limits: { memory: '320Mi' } } },
      volumes: { one: '96Mi', two: '32Mi', three: '80Mi', four: '16Mi' },
    });
    const targets = (answer['resize']!['steps'] as unknown as { target: string }[]).map(({ target }) => target);
    expect(new Set(targets.slice(0, 2))).toEqual(new Set(['two', 'four']));
    // The step of the pod itself has no container name.
    expect(targets.slice(2, 4)).toEqual([undefined, 'a']);
    expect(new Set(targets.slice(4))).toEqual(new Set(['one', 'three']));
    expect(names.map((name) => sizeOf(running, name))).toEqual([96, 32, 80, 16]);
  });
});

describe('a volume in use', () => {
  test('KEP-6030: a volume shrinks above its stored files; a smaller size is rejected, or deferred until files are removed', async () => {
    const running = await stage.pod({ volumes: [{ name: 'cache', size: 256 * MiB }] });
    const store = async (name: string, mebibytes: number): Promise<string> => {
      await cri.exec(running.id('a'), 'dd', 'if=/dev/urandom', `of=/cache/${name}`, 'bs=1M', `count=${mebibytes}`);
      return cri.exec(running.id('a'), 'sha256sum', `/cache/${name}`);
    };
    const sum = await store('first', 64);
    await resize(running, { cache: '128Mi' });
    expect(sizeOf(running)).toBe(128);
    expect(await cri.exec(running.id('a'), 'sha256sum', '/cache/first')).toBe(sum);

    await resize(running, { cache: '256Mi' });
    const other = await store('second', 136);
    const refused = await refusal(resize(running, { cache: '128Mi' }));
    expect(refused).toMatchObject({ code: 9, reason: 'VOLUME_IN_USE' });
    expect(refused.about).toMatchObject({ asked: String(128 * MiB), found: String(200 * MiB) });
    expect(running.volume('cache')).toMatchObject({ size: 256 * MiB, used: 200 * MiB });
    expect(await cri.exec(running.id('a'), 'sha256sum', '/cache/first', '/cache/second')).toBe(`${sum}${other}`);

    const { resize: deferred } = await resize(running, { cache: '128Mi', defer: true });
    expect(deferred).toMatchObject({ state: 'DEFERRED', reason: 'VOLUME_IN_USE' });
    const id = (deferred as unknown as { id: string }).id;
    // The pause between retries has reached its maximum. Unit tests check its length.
    const tries = async (): Promise<unknown> => (await api.call('GetResize', { id }))['resize']?.['tries'];
    await expect.poll(tries, { interval: 100 }).toBeGreaterThanOrEqual(4);
    expect(running.volume('cache')).toMatchObject({ size: 256 * MiB, used: 200 * MiB });
    await cri.exec(running.id('a'), 'rm', '/cache/second');
    await expect.poll(() => sizeOf(running), { interval: 100 }).toBe(128);
    expect(await cri.exec(running.id('a'), 'sha256sum', '/cache/first')).toBe(sum);
    await expect.poll(() => api.call('GetResize', { id })).toMatchObject({ resize: { state: 'COMPLETED' } });
  });

  test('KEP-6030: a volume grows under a writer that fills it, with no error but ENOSPC, no lost byte and no closed file', async () => {
    const running = await stage.pod({
      containers: [{ name: 'a', command: SLEEP, resources: limit(512), mounts: { cache: '/cache' } }],
    });
    const request = { container_id: running.id('a'), cmd: ['sh', '-c', WRITER], timeout: 280 };
    const writing = cri.call<{ stdout: Buffer; exit_code: number }>('ExecSync', request, 290_000);
    for (let size = 96; size <= 256; size += 32) {
      // The volume is nearly full, so the next write needs the growth.
      const full = (): boolean => running.volume('cache').used > (size - 40) * MiB;
      await expect.poll(full, { interval: 50 }).toBe(true);
      await resize(running, { cache: `${size}Mi` });
    }
    const { stdout, exit_code } = await writing;
    expect([exit_code, stdout.toString()]).toEqual([0, 'all there\n']);
    expect(sizeOf(running)).toBe(256);
    expect(running.oomKills()).toBe(0);
  });

  test('KEP-6030: a volume of two containers has one size in both', async () => {
    const mounts = { cache: '/cache' };
    const running = await stage.pod({
      containers: ['a', 'b'].map((name) => ({ name, command: SLEEP, resources: limit(128), mounts })),
    });
    await cri.exec(running.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/of-a', 'bs=1M', 'count=24');
    await cri.exec(running.id('b'), 'dd', 'if=/dev/zero', 'of=/cache/of-b', 'bs=1M', 'count=24');
    expect(await refusal(resize(running, { cache: '40Mi' }))).toMatchObject({ reason: 'VOLUME_IN_USE' });
    await resize(running, { cache: '96Mi' });
    for (const name of ['a', 'b']) expect(await cri.exec(running.id(name), 'df', '-m', '/cache')).toMatch(/\s96\s/);
  });
});

test('KEP-6030: files that an init container leaves in a volume count when the limits of the pod are lowered', async () => {
  const mounts = { cache: '/cache' };
  const running = await stage.pod({
    containers: [
      {
        name: 'fill',
        init: true,
        command: ['dd', 'if=/dev/zero', 'of=/cache/left', 'bs=1M', 'count=48'],
        resources: limit(128),
        mounts,
      },
      { name: 'a', command: SLEEP, resources: limit(128), mounts },
    ],
    podMemory: 128 * MiB,
  });
  // These pages are charged to the pod, not to the running container.
  expect(Number(running.read('memory.current', 'a'))).toBeLessThan(24 * MiB);
  const lower = api.call('ResizePod', {
    pod: { sandbox_id: running.sandboxId },
    resources: { limits: { memory: '40Mi' } },
    containers: { a: { limits: { memory: '40Mi' } } },
  });
  const refused = await refusal(lower);
  expect(refused).toMatchObject({ code: 9, reason: 'MEMORY_NOT_RECLAIMABLE' });
  expect(Number(refused.about['found'])).toBeGreaterThan(48 * MiB);
  expect(limitsOf(running)).toEqual([String(128 * MiB), String(128 * MiB)]);
  await resize(running, { memory: '96Mi' });
  expect(running.oomKills()).toBe(0);
});

test('KEP-6030: a volume of 50% follows fifty resizes in kubelet’s order while a container uses it', async () => {
  const annotations = { 'volume.cri-resize-shim.io/cache': '50%' };
  const running = await stage.pod({ annotations, volumes: [{ name: 'cache', size: 128 * MiB }] });
  const request = { container_id: running.id('a'), cmd: ['sh', '-c', WORKER], timeout: 280 };
  const working = cri.call<{ stdout: Buffer; exit_code: number }>('ExecSync', request, 290_000);
  // A fixed sequence, so that a failure can be reproduced.
  let random = 12345;
  const next = (): number => (random = (random * 1103515245 + 12345) % 2 ** 31) / 2 ** 31;
  let memory = 256;
  for (let round = 0; round < 50; round += 1) {
    const to = 96 + 4 * Math.floor(next() * 60);
    await resizeAsKubelet(running, memory, to);
    memory = to;
    expect(sizeOf(running), `${round}: ${to} MiB`).toBe((Math.floor((to * MiB) / 2 / 4096) * 4096) / MiB);
    expect(limitsOf(running)).toEqual([String(to * MiB), String(to * MiB)]);
  }
  await cri.exec(running.id('a'), 'touch', '/tmp/enough');
  const { stdout, exit_code } = await working;
  expect([exit_code, stdout.toString()]).toEqual([0, 'no other error\n']);
  expect(running.oomKills()).toBe(0);
});

/**
 * Calls as kubelet 1.36 does: the pod if raised, the container, the pod if lowered. Each call precedes kubelet's own
 * write.
 */
async function resizeAsKubelet(running: RunningPod, from: number, to: number): Promise<void> {
  const setPod = async (): Promise<void> => {
    await cri.updatePod(running.sandboxId, limit(to), { overhead: {} });
    writeFileSync(join(running.cgroup, 'memory.max'), String(to * MiB));
  };
  if (to > from) await setPod();
  await cri.updateContainer(running.id('a'), limit(to));
  if (to < from) await setPod();
}

/**
 * Writes 56 different files of 4 MiB and keeps one file open. A write without space is retried, and any other error
 * ends the script. At the end all files are compared with their intended content.
 */
const WRITER = `
dd if=/dev/urandom of=/tmp/random bs=1M count=4 2>/dev/null
content() { echo $1; cat /tmp/random; }
exec 3>/cache/open
i=0
while [ $i -lt 56 ]; do
  if content $i >/cache/f$i 2>/tmp/err && [ ! -s /tmp/err ]; then
    echo $i >&3; i=$((i + 1))
  else
    grep -q 'No space left' /tmp/err || { cat /tmp/err; exit 1; }
    rm -f /cache/f$i
  fi
done
i=0
while [ $i -lt 56 ]; do content $i | cmp - /cache/f$i || exit 2; i=$((i + 1)); done
[ $(wc -l </cache/open) = 56 ] && echo all there`;

/** Fills and empties the volume, within a quarter of the pod's lowest limit, until the file /tmp/enough exists. */
const WORKER = `
while [ ! -e /tmp/enough ]; do
  dd if=/dev/zero of=/cache/work bs=1M count=24 2>/tmp/err || grep -q 'No space left' /tmp/err || { cat /tmp/err; exit 1; }
  rm -f /cache/work
done
echo no other error`;
