import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync, brotliDecompressSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { canonicalResponse } from '../../bench/load/canonical.ts';
import { compare, cpuShare } from '../../bench/load/comparison.ts';
import type { RecordedCall } from '../../bench/load/recording.ts';
import { decodeRecording, encodeRecording, readRecording, writeRecording } from '../../bench/load/recording.ts';
import { bytes, integer, message } from '../../bench/protobuf.ts';
import { recording } from './results.ts';

const RUNTIME = '/runtime.v1.RuntimeService';
const label = (key: string): Buffer => message(8, bytes(1, key), bytes(2, 'value'));
const annotation = (key: string): Buffer => message(9, bytes(1, key), bytes(2, 'value'));
const container = (id: string, ...rest: readonly Buffer[]): Buffer => message(1, bytes(1, id), integer(6, 1), ...rest);

test('answers that differ only in the order of containers, labels and annotations become equal and keep their length', () => {
  const one = Buffer.concat([
    container('b', label('x'), label('y'), annotation('p'), annotation('q')),
    container('a', label('x')),
  ]);
  const other = Buffer.concat([
    container('a', label('x')),
    container('b', label('y'), label('x'), annotation('q'), annotation('p')),
  ]);
  const found = canonicalResponse(`${RUNTIME}/ListContainers`, one);
  expect(found).toEqual(canonicalResponse(`${RUNTIME}/ListContainers`, other));
  expect(found.length).toBe(one.length);
  expect(found).toEqual(
    Buffer.concat([
      container('a', label('x')),
      container('b', label('x'), label('y'), annotation('p'), annotation('q')),
    ]),
  );
});

test('sorts the labels in the attributes of container stats', () => {
  const stats = (...keys: readonly string[]): Buffer => {
    const labels = keys.map((key) => message(3, bytes(1, key)));
    return message(1, message(1, bytes(1, 'id'), ...labels), message(2, integer(1, 7)));
  };
  expect(canonicalResponse(`${RUNTIME}/ListContainerStats`, stats('y', 'x'))).toEqual(stats('x', 'y'));
});

test('returns a Version answer unchanged', () => {
  const response = Buffer.concat([bytes(2, 'b'), bytes(1, 'a')]);
  expect(canonicalResponse(`${RUNTIME}/Version`, response)).toBe(response);
});

test('compares each call with its direct counterpart by the median of the replays', () => {
  // The second call is slow on both sides, and the third only through the shim.
  const direct = [
    [100, 5000, 100],
    [110, 5100, 100],
    [90, 4900, 9000],
  ];
  const shim = [
    [150, 5200, 2100],
    [9000, 5250, 2100],
    [160, 5300, 2000],
  ];
  const found = compare(direct, shim);
  expect(found).toMatchObject({ addedP50: 250, addedP99: 2000, addedMost: 2000, slowest: 2 });
  expect(found.direct).toEqual({ p50: 110, p99: 9000, most: 9000 });
  expect(found.shim).toEqual({ p50: 2100, p99: 9000, most: 9000 });
});

test('one slow call of many raises the maximum of the added times, and not their 99th percentile', () => {
  const direct = [new Float64Array(200).fill(100)];
  const shim = [new Float64Array(200).fill(150)];
  shim[0]![77] = 6100;
  expect(compare(direct, shim)).toMatchObject({ addedP50: 50, addedP99: 50, addedMost: 6000, slowest: 77 });
});

test('a call that the shim makes faster has a negative added time', () => {
  expect(compare([[100]], [[60]])).toMatchObject({ addedP50: -40, addedMost: -40 });
});

test('rejects sides with a different number of calls, or without replays', () => {
  expect(() => compare([[1, 2]], [[1]])).toThrow('no call 1');
  expect(() => compare([], [])).toThrow(RangeError);
});

test('compares CPU times relative to the yardstick of each machine', () => {
  const containerd = { cpuMs: 1000, yardstickMs: 10 };
  expect(cpuShare({ cpuMs: 250, yardstickMs: 10 }, containerd)).toBeCloseTo(0.25);
  // A machine that is twice as slow.
  expect(cpuShare({ cpuMs: 500, yardstickMs: 20 }, containerd)).toBeCloseTo(0.25);
  expect(() => cpuShare(containerd, { cpuMs: 0, yardstickMs: 10 })).toThrow('no CPU time of containerd');
});

describe('recordings', () => {
  let folder: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'bench-recording-'));
  });

  afterEach(() => {
    rmSync(folder, { recursive: true });
  });

  /** Encodes a recording whose JSON was changed. */
  function changed(change: (document: Record<string, unknown>) => void): Buffer {
    const bytes = brotliDecompressSync(encodeRecording(recording));
    const end = 4 + bytes.readUInt32BE();
    const document = JSON.parse(bytes.toString('utf8', 4, end)) as Record<string, unknown>;
    change(document);
    const json = Buffer.from(JSON.stringify(document));
    const length = Buffer.alloc(4);
    length.writeUInt32BE(json.length);
    return brotliCompressSync(Buffer.concat([length, json, bytes.subarray(end)]));
  }

  test('a recording has the same content after it is written and read', () => {
    const file = join(folder, 'some.recording');
    writeRecording(file, recording);
    expect(readRecording(file)).toEqual(recording);
  });

  test('a recording stores identical contents once', () => {
    const [long] = recording.calls.filter(({ responses }) => (responses[0]?.length ?? 0) > 100_000);
    const calls = Array.from({ length: 50 }, (_, index): RecordedCall => ({ ...long!, atMs: index }));
    const size = (of: readonly RecordedCall[]): number =>
      brotliDecompressSync(encodeRecording({ ...recording, calls: of })).length;
    expect(size(calls)).toBeLessThan(size(calls.slice(0, 1)) + 50 * 40);
  });

  test.each([
    ['another program', Buffer.from('{}'), 'not compressed with brotli'],
    ['nothing', brotliCompressSync(Buffer.alloc(0)), 'it is empty'],
    ['a cut-off file', encodeRecording(recording).subarray(0, 100), 'cut off'],
    ['a header that is too short', brotliCompressSync(Buffer.from([0, 0, 9, 0, 1])), 'cut off'],
    ['no JSON', brotliCompressSync(Buffer.from([0, 0, 0, 1, 0x7b])), 'no recording: '],
    ['another format', changed((document) => (document['format'] = 'cri-recording 9')), 'found "cri-recording 9"'],
    ['a missing field', changed((document) => delete document['calls']), 'calls'],
    ['missing contents', changed((document) => (document['contents'] = [7])), 'expected 7 bytes of contents'],
    ['a wrong number', changed((document) => (document['answers'] = [[0, 0, 99]])), 'content 99 does not exist'],
  ])('rejects a recording with %s, and names the file and the remedy', (_, content, message) => {
    const file = join(folder, 'bad.recording');
    writeFileSync(file, content);
    expect(() => decodeRecording(content)).toThrow(message);
    expect(() => readRecording(file)).toThrow(/bad\.recording: .*npm run nightly -- --only record-load/s);
  });

  test('rejects a recording that does not exist, and names the file', () => {
    expect(() => readRecording(join(folder, 'none'))).toThrow(/none: ENOENT/);
  });
});
