import type * as Fs from 'node:fs';
import { type FSWatcher, mkdtempSync, rmSync, watch as watchFolder, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createCounters } from '../../src/core/observe/counters.ts';
import { type LogFields, noLog } from '../../src/core/observe/interfaces.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { KubeletFiles } from '../../src/kubelet/checkpoints.ts';
import { checkpointText, withMemory } from '../support/checkpoint-text.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { LONG_WAIT } from '../support/long-wait.ts';

type Watch = (...given: Parameters<typeof watchFolder>) => FSWatcher;
vi.mock('node:fs', async (original) => ({ ...(await original<typeof Fs>()), watch: vi.fn<Watch>() }));
const watch = vi.mocked<Watch>(watchFolder);

const SECOND = 1000;

let root: string;
let clock: FakeClock;
let files: KubeletFiles;
let counters: ReturnType<typeof createCounters>;
let changes: number;
let lines: string[];
/** The results of inotify. */
let fault: NodeJS.ErrnoException | undefined;

beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'folder-watch-'));
  clock = new FakeClock();
  counters = createCounters();
  [changes, lines, fault] = [0, [], undefined];
  const record = ({ error = '' }: LogFields, msg: string): void => void lines.push(`${msg}: ${error as string}`);
  const { watch: real } = await vi.importActual<typeof Fs>('node:fs');
  watch.mockReset();
  watch.mockImplementation((...given) => {
    if (fault !== undefined) throw fault;
    return real(...given);
  });
  files = new KubeletFiles({
    kubeletRoot: root,
    clock,
    log: { ...noLog, info: record, warn: record },
    counters,
  });
  files.onChange(() => void (changes += 1));
});
afterEach(() => {
  files.close();
  rmSync(root, { recursive: true });
});

const failure = (code: string): NodeJS.ErrnoException => Object.assign(new Error(`${code}: no watch left`), { code });
const write = (limit: string): void =>
  writeFileSync(join(root, 'allocated_pods_state'), checkpointText({ u: withMemory({ a: limit }) }));
const memory = (): number => (files.allocated('u')?.containers.get('a')?.memory ?? 0) / MiB;

/** Advances the clock and fires the timers. Returns the number of attempts to watch the folder. */
function pass(ms: number): number {
  const before = watch.mock.calls.length;
  const end = clock.now() + ms;
  while (clock.next !== undefined && clock.now() + clock.next <= end) clock.pass(clock.next);
  clock.pass(end - clock.now());
  return watch.mock.calls.length - before;
}

describe.each(['ENOSPC', 'EMFILE'])('inotify error %s', (code) => {
  test('watches the kubelet folder again once inotify works, and reads the changes made in the meantime', async () => {
    fault = failure(code);
    files.begin();
    write('64Mi');
    expect([pass(10 * SECOND) > 1, changes]).toEqual([true, 0]);
    fault = undefined;
    pass(60 * SECOND);
    expect([memory(), changes]).toEqual([64, 1]);
    expect(lines).toEqual([
      `kubelet folder not watched; its checkpoints are read at CRI calls only until it can be watched again: ${code}: no watch left`,
      'kubelet folder watched again: ',
    ]);
    // From here on, the watch reports changes.
    const timer = clock.next;
    write('32Mi');
    await expect.poll(() => clock.next, { ...LONG_WAIT, interval: 5 }).not.toBe(timer);
    pass(SECOND);
    expect([memory(), changes]).toEqual([32, 2]);
  });

  test('retries the watch of the kubelet folder with pauses of up to a minute, and reports the failure once', () => {
    fault = failure(code);
    files.begin();
    expect(pass(60 * SECOND)).toBeLessThanOrEqual(6);
    expect(pass(60 * 60 * SECOND)).toBeLessThanOrEqual(60);
    expect(pass(60 * 60 * SECOND)).toBeGreaterThanOrEqual(59);
    expect([lines.length, counters.snapshot().foresight]).toEqual([1, { unreadable: 1 }]);
  });

  test('a CRI call reads the checkpoints while the watch fails, and does not bring the next attempt forward', () => {
    fault = failure(code);
    files.begin();
    pass(120 * SECOND);
    const before = watch.mock.calls.length;
    write('64Mi');
    files.refresh();
    expect([memory(), pass(0)]).toEqual([64, 0]);
    expect([changes, watch.mock.calls.length]).toEqual([1, before]);
  });
});

test('retries a watch that fails later, with growing pauses until the watch has reported a change', async () => {
  files.begin();
  const fail = (): void => {
    const last = watch.mock.results.at(-1);
    if (last?.type === 'return') last.value.emit('error', failure('EIO'));
  };
  let attempts = 0;
  for (let minute = 0; minute < 60; minute += 1) {
    fail();
    attempts += pass(60 * SECOND);
  }
  expect(attempts).toBeLessThan(70);
  fail();
  expect(pass(30 * SECOND)).toBe(0);
  pass(60 * SECOND);
  const timer = clock.next;
  write('64Mi');
  await expect.poll(() => clock.next, { ...LONG_WAIT, interval: 5 }).not.toBe(timer);
  pass(SECOND);
  fail();
  expect(pass(2 * SECOND)).toBeGreaterThan(0);
});

test('does not retry a failed watch after it is closed', () => {
  fault = failure('ENOSPC');
  files.begin();
  files.close();
  expect([pass(600 * SECOND), changes]).toEqual([0, 0]);
});
