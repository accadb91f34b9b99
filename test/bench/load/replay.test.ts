import { mkdtemp, rm } from 'node:fs/promises';
import type { Http2Server } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Recorder } from '../../../bench/load/recorder.ts';
import type { RecordedCall } from '../../../bench/load/recording.ts';
import { openPlayer } from '../../../bench/load/replay.ts';
import { RecordedAnswers, serveRecorded } from '../../../bench/load/runtime.ts';
import { recording } from './recordings.ts';

/** The recorder, a player and the runtime that answers with recorded bytes, over sockets. */

let folder: string;
let answers: RecordedAnswers;
let runtime: Http2Server;
let recorder: Recorder;
let [backend, front] = ['', ''];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'bench-load-'));
  [backend, front] = [join(folder, 'backend'), join(folder, 'front')];
  answers = new RecordedAnswers(recording);
  runtime = serveRecorded(answers);
  await new Promise<void>((resolve) => runtime.listen(backend, resolve));
  recorder = await Recorder.start(front, backend);
});

afterEach(async () => {
  recorder.close();
  await new Promise((resolve) => runtime.close(resolve));
  await rm(folder, { recursive: true });
});

/** A call without what depends on time. */
const timeless = ({ connection, path, request, responses, status, message }: RecordedCall) => ({
  ...{ connection, path, request, responses, status, message },
});

test('a replay makes the recorded calls, gets the recorded answers, and takes the recorded time divided by the speed', async () => {
  const player = await openPlayer(front, recording.calls);
  recorder.begin();
  const begin = performance.now();
  const durations = await player.play(0.5);
  const took = performance.now() - begin;
  const { calls, left } = recorder.end();
  player.close();
  expect(left).toBe(0);
  const byRecorded = (one: RecordedCall, other: RecordedCall): number =>
    one.atMs - other.atMs || Buffer.compare(one.request, other.request);
  expect(calls.length).toBe(recording.calls.length);
  expect(calls.map(timeless)).toEqual(expect.arrayContaining(recording.calls.map(timeless)));
  // The order of calls that start at different times.
  const order = calls.filter(({ path }) => path.endsWith('ExecSync')).toSorted(byRecorded);
  expect(order.map(({ responses }) => responses.map(String))).toEqual(
    recording.calls.filter(({ path }) => path.endsWith('ExecSync')).map(({ responses }) => responses.map(String)),
  );
  expect(calls.at(-1)?.atMs).toBeGreaterThanOrEqual(119);
  expect(took).toBeGreaterThanOrEqual(120);
  expect([...durations].every((duration) => duration > 0)).toBe(true);
  expect(answers.unknown).toEqual([]);
});

test('a recording can be replayed a second time with the same backend', async () => {
  const player = await openPlayer(backend, recording.calls);
  await player.play(20);
  expect(await player.play(20)).toHaveLength(recording.calls.length);
  player.close();
});

test('a replay fails if an answer is shorter than the recorded one, or has another status', async () => {
  const [list, , , gone] = recording.calls;
  const longer = { ...list!, responses: [Buffer.alloc(100)] };
  const unknown = { ...list!, path: '/runtime.v1.RuntimeService/Other' };
  const found = { ...gone!, status: 0 };
  for (const [call, message] of [
    [longer, 'recorded were 105'],
    [unknown, 'status 12, recorded was 0'],
    [found, 'status 5, recorded was 0'],
  ] as const) {
    const player = await openPlayer(backend, [call]);
    await expect(player.play(20)).rejects.toThrow(message);
    player.close();
  }
  expect(answers.unknown).toEqual(['/runtime.v1.RuntimeService/Other with 0 bytes']);
});

test('calls that only the shim makes get their recorded answer', () => {
  const { path, request, response } = recording.answers[0]!;
  expect(answers.answer(path, request)).toEqual({ responses: [response], status: 0, message: '' });
});

test('the recorder omits calls before its start, and reports for how long no call was made', async () => {
  const player = await openPlayer(front, recording.calls);
  await player.play(20);
  expect(recorder.quietFor(['ExecSync'])).toBeLessThan(60_000);
  recorder.begin();
  expect(recorder.end().calls).toEqual([]);
  player.close();
});
