import { expect, test } from 'vitest';
import { podStart } from '../../../src/kubernetes/pods/pod-watch.ts';

const fields = '"name":"web","generateName":"web-","namespace":"shop","uid":"u1","resourceVersion":"7",';
const start = { pod: { uid: 'u1', namespace: 'shop', name: 'web' }, version: '7' };

test.each([
  ['an event', `{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{${fields}"labels":{"a`],
  ['an item', `{"metadata":{${fields}"generation":1`],
])('reads names and version from the beginning of %s', (_, text) => {
  expect(podStart(text)).toEqual(start);
});

test.each([
  ['another order', `{"spec":{"metadata":{${fields}"labels":{`],
  ['a field that its author chooses', `{"metadata":{"labels":{"metadata":{${fields}"a":1`],
  ['no version', '{"metadata":{"name":"web","namespace":"shop","uid":"u1","labels":{'],
  ['no pod', 'null'],
])('reads no names from the beginning of an object with %s', (_, text) => {
  expect(podStart(text)).toBeUndefined();
});
