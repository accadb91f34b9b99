import { mkdtempSync, rmSync } from 'node:fs';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, expect, test } from 'vitest';
import { type LoopReport, serveLoopReports } from '../../../bench/inside/loop.ts';

const folder = mkdtempSync(join(tmpdir(), 'loop-'));
const socket = join(folder, 'socket');
afterAll(() => rmSync(folder, { recursive: true }));

const report = async (): Promise<LoopReport> => JSON.parse(await text(createConnection(socket))) as LoopReport;

test('a report contains the longest event loop turn since the previous report, and the CPU time of that turn', async () => {
  serveLoopReports(socket);
  expect((await report()).heapBytes).toBeGreaterThan(1_000_000);
  const { user } = process.threadCpuUsage();
  // 400 ms of work in one turn: much more than a turn without work takes on a slow machine.
  while (process.threadCpuUsage().user - user < 400_000);
  const busy = await report();
  expect(busy.longestTurnMs).toBeGreaterThanOrEqual(380);
  expect(busy.longestCpuMs).toBeGreaterThanOrEqual(380);
  const quiet = await report();
  expect(quiet.longestCpuMs).toBeLessThan(busy.longestCpuMs);
});
