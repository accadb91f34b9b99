import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { LogReader } from '../../bench/log-reader.ts';

test('finds log lines by their message as they are written, also in pieces', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'log-reader-'));
  const file = join(folder, 'log');
  writeFileSync(file, '{"msg":"serving"}\n{"msg":"found","pods":1}\n{"msg":"fo');
  const log = new LogReader(file);
  expect(await log.line('found')).toEqual({ msg: 'found', pods: 1 });
  const next = log.line('found');
  appendFileSync(file, 'und","pods":2}');
  appendFileSync(file, '\n');
  expect(await next).toEqual({ msg: 'found', pods: 2 });
  log.close();
  rmSync(folder, { recursive: true });
});
