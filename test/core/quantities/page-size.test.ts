import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { PAGE_SIZE, pageSizeIn, readPageSize } from '../../../src/core/quantities/page-size.ts';

const auxv = (...entries: readonly (readonly [type: number, value: number])[]): Buffer => {
  const buffer = Buffer.alloc(entries.length * 16);
  for (const [at, [type, value]] of entries.entries()) {
    buffer.writeBigUInt64LE(BigInt(type), at * 16);
    buffer.writeBigUInt64LE(BigInt(value), at * 16 + 8);
  }
  return buffer;
};

test('the page size is that of the kernel', () => {
  expect(PAGE_SIZE).toBe(Number(execFileSync('getconf', ['PAGESIZE'], { encoding: 'utf8' })));
});

test('the page size is found among other entries of the auxiliary vector', () => {
  expect(pageSizeIn(auxv([33, 6], [16, 4096], [6, 64 * 1024], [17, 100], [0, 0]))).toBe(64 * 1024);
});

test('an auxiliary vector without a page size is an error', () => {
  expect(() => pageSizeIn(auxv([33, 6], [0, 0]))).toThrow('/proc/self/auxv has no AT_PAGESZ');
  expect(() => pageSizeIn(Buffer.alloc(8))).toThrow('/proc/self/auxv has no AT_PAGESZ');
});

test('the page size is 4096 if the kernel does not report it', () => {
  expect(readPageSize('/proc/self/no-such-file')).toBe(4096);
});
