import { expect, test } from 'vitest';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { directionOf } from '../../../src/sandbox/plan/value-changes.ts';

const memory = (mebibytes: number) => ({ memory: bytes(mebibytes * MiB) });
const cpu = (quota: number | 'max', period = 100_000) => ({
  cpu: { quota: quota === 'max' ? quota : microseconds(quota), period: microseconds(period) },
});
const containers = (limits: object) => ({ containers: new Map([['a', limits]]) });
const volumes = (size: number) => ({ volumes: new Map([['v', bytes(size)]]) });

test.each([
  ['up', { pod: memory(2) }, { pod: memory(1) }],
  ['up', { pod: { memory: 'max' as const } }, { pod: memory(1) }],
  ['down', containers(cpu(5000)), containers(cpu(10_000))],
  ['same', containers(cpu(5000, 50_000)), containers(cpu(10_000, 100_000))],
  ['same', containers(cpu('max', 50_000)), containers(cpu('max'))],
  ['up', containers(cpu('max')), containers(cpu(10_000))],
  ['both', { pod: memory(2), ...volumes(1) }, { pod: memory(1), ...volumes(2) }],
  ['both', containers({ ...memory(1), ...cpu(2000) }), containers({ ...memory(2), ...cpu(1000) })],
  ['down', volumes(1), volumes(2)],
  ['same', {}, { pod: memory(1) }],
  ['same', containers(memory(5)), {}],
  ['same', volumes(1), {}],
])('directionOf returns %s for a change to %j from %j', (direction, to, from) => {
  expect(directionOf(to, from)).toBe(direction);
});
