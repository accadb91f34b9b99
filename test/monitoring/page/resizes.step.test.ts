import { expect, test } from 'vitest';
import { bytes, cpuShares, cpuWeight, microseconds } from '../../../src/core/quantities/numbers.ts';
import { stepText } from '../../../src/monitoring/page/resizes.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';

const cpu = { quota: 'max' as const, period: microseconds(100_000) };

const half = { quota: microseconds(50_000), period: microseconds(100_000) };
test.each<[Step, string]>([
  [{ kind: 'pod-cpu', from: cpu, to: half }, 'pod cpu.max: no limit → 500m'],
  [{ kind: 'pod-weight', from: cpuWeight(39), to: cpuWeight(100) }, 'pod cpu.weight: 39 → 100'],
  [{ kind: 'pod-unified', key: 'memory.low', from: '0', to: '4096' }, 'pod memory.low: 0 → 4096'],
  [
    { kind: 'container', id: 'c1', cpu: { from: half, to: cpu }, shares: { from: cpuShares(2), to: cpuShares(512) } },
    'app cpu.max: 500m → no limit, cpu shares: 2 → 512',
  ],
  [
    { kind: 'container', id: 'c0123456789abcdef', memory: { from: bytes(1), to: bytes(2) } },
    'c0123456789ab memory.max: 1 B → 2 B',
  ],
])('describes step %j as text', (step, text) => {
  expect(stepText(step, new Map([['c1', 'app']]))).toBe(text);
});
