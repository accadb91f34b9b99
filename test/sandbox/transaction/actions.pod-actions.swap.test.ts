import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ShimError } from '../../../src/core/errors.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { PodActions } from '../../../src/sandbox/transaction/actions.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { FakeRuntime, SANDBOX, containerId } from '../../support/fake-runtime.ts';
import { FakeStoringRuntime } from '../../support/fake-storing-runtime.ts';

/** Steps that lower a memory limit of what has memory in swap. */

const text = (count: number): string => String(count * MiB);
const CONTAINER = `/kubepods/pod1/${containerId(0)}`;

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(text(200), [200 * MiB]);
  mkdirSync(join(runtime.procRoot, 'sys/vm'), { recursive: true });
  writeFileSync(join(runtime.procRoot, 'meminfo'), `MemTotal:  16000000 kB\nSwapFree:  ${512 * 1024} kB\n`);
  const store = new FakeStoringRuntime(runtime);
  store.create(0, { memory_limit_in_bytes: BigInt(200 * MiB), unified: { 'memory.swap.max': 'max' } });
  for (const cgroup of ['/kubepods', '/kubepods/pod1']) runtime.writeFile(cgroup, 'memory.swap.max', 'max');
  for (const cgroup of ['/kubepods/pod1', CONTAINER]) {
    const stat = `anon ${text(60)}\nfile 0\nshmem 0\nactive_anon ${text(60)}\ninactive_anon 0\nunevictable 0`;
    runtime.writeFile(cgroup, 'memory.stat', stat);
    runtime.writeFile(cgroup, 'memory.current', text(60));
    runtime.writeFile(cgroup, 'memory.swap.current', text(40));
  }
});
afterEach(() => runtime.close());

async function apply(step: Step): Promise<unknown> {
  const pod = (await runtime.node.registry.pod(SANDBOX))!;
  const updates = step.kind === 'container' ? [step] : [];
  const actions = new PodActions(runtime.node, pod, { updates, until: performance.now() + 60_000 });
  return actions.apply(step).then(
    () => 'applied',
    (error: unknown) => (error instanceof ShimError ? error.reason : error),
  );
}

describe('A8: a pod limit above the usage and below usage and swap together', () => {
  const step = { kind: 'pod-memory', from: bytes(200 * MiB), to: bytes(80 * MiB) } as const;

  test('KEP-1287: a pod limit below usage and swap together is not lowered once the pod has lost its swap', async () => {
    runtime.writeFile('/kubepods/pod1', 'memory.swap.max', '0');
    expect(await apply(step)).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(runtime.read('memory.max')).toBe(text(200));
  });

  test('KEP-1287: a pod limit below usage and swap together is not lowered once a container has lost its swap', async () => {
    runtime.writeFile(CONTAINER, 'memory.swap.max', text(10));
    expect(await apply(step)).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(runtime.read('memory.max')).toBe(text(200));
  });

  test('a pod limit below usage and swap together is lowered while the pod keeps its swap', async () => {
    expect(await apply(step)).toBe('applied');
    expect(runtime.read('memory.max')).toBe(text(80));
  });
});

describe('A8: a step that removes the swap of a container and lowers its memory limit', () => {
  const memory = { from: bytes(200 * MiB), to: bytes(80 * MiB) };
  const step = { kind: 'container', id: containerId(0), memory } as const;

  test('rejects a step that lowers a memory limit and removes the swap in its own field', async () => {
    expect(await apply({ ...step, swap: { from: 'max', to: bytes(0) } })).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(runtime.limitOf(0)).toBe(200 * MiB);
  });

  test('rejects a step that lowers a memory limit and takes swap by memory.swap.max in its settings', async () => {
    const settings = { 'memory.swap.max': { from: 'max', to: text(10) } };
    expect(await apply({ ...step, settings })).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(runtime.limitOf(0)).toBe(200 * MiB);
  });

  test('applies a step that lowers a memory limit and keeps memory.swap.max', async () => {
    expect(await apply({ ...step, settings: { 'memory.swap.max': { from: 'max', to: 'max' } } })).toBe('applied');
    expect(runtime.limitOf(0)).toBe(80 * MiB);
  });
});
