import { expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { AdmittedRequests } from '../../../src/sandbox/admission/node-room.ts';

const requests = (milliCpu: number) => ({ memory: bytes(0), milliCpu });

test('undoing a record of requests restores the previous one', () => {
  const admitted = new AdmittedRequests();
  admitted.record('u', requests(100), undefined);
  admitted.record('u', requests(200), undefined)();
  expect(admitted.of('u', undefined)).toEqual(requests(100));
});

test('undoing a record of requests after its pod was forgotten leaves no record', () => {
  const admitted = new AdmittedRequests();
  admitted.record('u', requests(100), undefined);
  const undo = admitted.record('u', requests(200), undefined);
  admitted.forget('u');
  undo();
  expect([admitted.of('u', undefined), admitted.uids]).toEqual([undefined, []]);
});

test('undoing an older record of requests keeps the newer one', () => {
  const admitted = new AdmittedRequests();
  const undo = admitted.record('u', requests(100), undefined);
  admitted.record('u', requests(200), undefined);
  undo();
  expect(admitted.of('u', undefined)).toEqual(requests(200));
});
