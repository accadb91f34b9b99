import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';

/** Every resize is in the history, from any requester: a CRI client, or the resize API; refused ones too. */

const RESIZE = '/run/history-test/resize.sock';

let folder: string;
let shim: ShimProcess;
let cri: CriClient;
let web: RunningPod;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'history-'));
  const args = ['--resize-listen', RESIZE, '--state-folder', join(folder, 'state')];
  shim = await ShimProcess.start({ listen: 'unix:///run/history-test/cri.sock', args });
  cri = new CriClient(shim.address);
  const resources = { memory_limit_in_bytes: 64 * MiB, cpu_quota: 20_000, cpu_period: 100_000, cpu_shares: 102 };
  web = await runPod(cri, {
    name: 'web',
    containers: [{ name: 'app', command: ['sleep', '1000000'], resources, mounts: { cache: '/cache' } }],
    volumes: [{ name: 'cache', size: 32 * MiB }],
  });
});
afterAll(async () => {
  await web.remove();
  cri.close();
  expect(await shim.stop()).toBe(0);
  rmSync(folder, { recursive: true });
});

const resizectl = async (...args: string[]): Promise<{ code: number | undefined; out: string }> => {
  const program = ['dist/resizectl.js', '--endpoint', `unix://${RESIZE}`, ...args];
  const { exitCode, stdout } = await execa(process.execPath, program, { reject: false });
  return { code: exitCode, out: stdout };
};

/** The row of the pod: state of the last resize, who asked, and what changed. */
async function lastResize(): Promise<{ state: string; by: string; changes: string }> {
  const row = (await resizectl('get', 'pods', 'web', '-o', 'wide')).out.split('\n').at(1) ?? '';
  const cells = row.split(/ {3,}/);
  return { state: cells[8] ?? '', by: cells.at(-3) ?? '', changes: cells.at(-1) ?? '' };
}

test('get, describe and events show an update by a CRI client, a rejected update and a resize by the API', async () => {
  await cri.updateContainer(web.id('app'), { memory_limit_in_bytes: 80 * MiB });
  const own = new RegExp(String.raw`\b${process.pid}\b`);
  expect(await lastResize()).toEqual({
    state: 'Completed',
    by: expect.stringMatching(own) as string,
    changes: 'pod memory 64Mi -> 80Mi, container app memory 64Mi -> 80Mi',
  });

  // Files of a tmpfs cannot be reclaimed without swap.
  await cri.exec(web.id('app'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=24');
  await expect(cri.updateContainer(web.id('app'), { memory_limit_in_bytes: 16 * MiB })).rejects.toThrow(/in use/);
  expect(await lastResize()).toMatchObject({ state: 'Infeasible', changes: 'container app memory 80Mi -> 16Mi' });

  // The next success clears the error.
  expect((await resizectl('resize', 'web', 'app.memory=96Mi')).code).toBe(0);
  expect(await lastResize()).toMatchObject({
    state: 'Completed',
    by: expect.stringMatching(/^API \(resizectl, /) as string,
  });
  const { out } = await resizectl('describe', 'pod', 'web');
  const [, resizes = ''] = out.split('Last resizes:\n');
  expect(resizes.trimEnd().split('\n')).toEqual([
    expect.stringMatching(/^ *TIME {3,}RESIZE/),
    expect.stringMatching(/API \(resizectl, .*app memory 80Mi -> 96Mi.* Completed$/),
    expect.stringMatching(/app memory 80Mi -> 16Mi {3,}Infeasible: MEMORY_NOT_RECLAIMABLE: /),
    expect.stringMatching(/app memory 64Mi -> 80Mi {3,}Completed$/),
  ]);

  const events = execa(process.execPath, ['dist/resizectl.js', '--endpoint', RESIZE, 'events', 'web'], {
    reject: false,
  });
  const seen: string[] = [];
  // The command runs until it is ended: otherwise the loop would wait for it.
  for await (const line of events.iterable()) if (seen.push(line) === 3) events.kill();
  expect(seen).toEqual([
    expect.stringMatching(/ default\/web {2}Completed {2}by .* app memory 64Mi -> 80Mi/),
    expect.stringMatching(/ default\/web {2}Infeasible {2}by .* 80Mi -> 16Mi: MEMORY_NOT_RECLAIMABLE: /),
    expect.stringMatching(/ default\/web {2}Completed {2}by API .* 80Mi -> 96Mi/),
  ]);
});

test('cancel ends a deferred resize by the beginning of its id or by its pod', async () => {
  for (const target of ['id', 'pod']) {
    const { code, out } = await resizectl('resize', 'web', 'volume.cache=16Mi', '--defer');
    expect(code).toBe(4);
    const [, id = ''] = /^resize ([-0-9a-f]{36}) of/m.exec(out) ?? [];
    const canceled = await resizectl('cancel', target === 'id' ? id.slice(0, 8) : 'web');
    expect([canceled.code, canceled.out]).toEqual([
      0,
      expect.stringContaining(`${id} of default/web: Canceled`) as string,
    ]);
  }
  expect((await resizectl('cancel', 'web')).code).toBe(2);
});

test('resizectl reports that a CPU limit below the minimum becomes the minimum', async () => {
  const { out } = await resizectl('resize', 'web', 'app.cpu=1m', 'app.requests.cpu=1m');
  expect(out).toContain('note: container app.cpu: 1m becomes 10m: the smallest CPU limit is 10m');
});
