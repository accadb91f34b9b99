import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync, brotliDecompressSync } from 'node:zlib';
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  type RecordedCall,
  decodeRecording,
  encodeRecording,
  readRecording,
  writeRecording,
} from '../../../bench/load/recording.ts';
import { recording } from './recordings.ts';

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
