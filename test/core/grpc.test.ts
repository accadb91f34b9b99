import { status } from '@grpc/grpc-js';
import { expect, test } from 'vitest';
import { Code, grpcCodeName } from '../../src/core/grpc.ts';

test('the status codes and their names are those of gRPC', () => {
  const numbers = Object.entries(status).filter(([, code]) => typeof code === 'number');
  expect(Object.entries(Code)).toEqual(numbers);
  expect(numbers).toHaveLength(17);
  for (const [name, code] of numbers) expect(grpcCodeName(Number(code))).toBe(name);
});

test('the name of an unknown status code is its number', () => {
  expect(grpcCodeName(17)).toBe('17');
  expect(grpcCodeName(-1)).toBe('-1');
});
