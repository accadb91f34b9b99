import { expect, test } from 'vitest';
import { canonicalResponse } from '../../../bench/load/canonical.ts';
import { bytes, integer, message } from '../../../bench/protobuf.ts';

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
