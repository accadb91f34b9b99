import { expect, test } from 'vitest';
import type { Bytes, CpuMax, Limit } from '../../../src/core/quantities/numbers.ts';
import { compareLimits } from '../../../src/sandbox/plan/amounts.ts';
import { any, holds } from './plan-cases.ts';
import { containersSum, excess, podDirection, resources } from './pods.ts';

// The property tests of the plan prove as much as their random pods cover.

test('the random pods cover every size, kind and direction', () => {
  const seen = new Set<string>();
  const way = (from: number | 'max', to: number | 'max'): string => {
    const sign = Math.sign(compareLimits(to as Limit<Bytes>, from as Limit<Bytes>));
    return sign === 0 ? 'same' : sign > 0 ? 'up' : 'down';
  };
  holds(4000, any, ({ state, end, steps, target }) => {
    seen.add(`${state.containers.length} containers`);
    seen.add(state.overhead.memory > 0 ? 'overhead' : 'no overhead');
    for (const resource of resources) {
      const over = excess(state, resource);
      const isUnlimited = containersSum(state, resource) >= 2 ** 48;
      const podIs =
        over === -Infinity ? 'none' : isUnlimited ? 'below none' : over > 0 ? 'under' : over < 0 ? 'loose' : 'tight';
      seen.add(`pod ${resource} ${podIs}`);
      for (const step of steps) {
        const direction = podDirection(step, resource);
        if (direction !== undefined) seen.add(`pod ${resource} ${direction > 0 ? 'up' : 'down'}`);
      }
    }
    for (const [index, { id, memory, cpu, shares: known }] of state.containers.entries()) {
      const then = end.containers[index]!;
      const rate = ({ quota, period }: CpuMax): number => (quota === 'max' ? Infinity : quota / period);
      seen.add(`container memory ${way(memory, then.memory)}, cpu ${Math.sign(rate(then.cpu) - rate(cpu)) || 0}`);
      if (known !== then.shares) seen.add('shares change');
      if (!target.containers?.some((change) => change.id === id)) seen.add('a container is not part of the request');
    }
    for (const [index, { size }] of state.volumes.entries())
      seen.add(`volume ${way(size, end.volumes[index]!.size)}, pod memory ${way(state.memory, end.memory)}`);
  });
  const ways = ['up', 'down', 'same'];
  const kinds = ['none', 'below none', 'under', 'loose', 'tight', 'up', 'down'];
  expect([...seen]).toEqual(
    expect.arrayContaining([
      ...Array.from({ length: 10 }, (_, index) => `${index + 1} containers`),
      'overhead',
      'no overhead',
      ...resources.flatMap((resource) => kinds.map((kind) => `pod ${resource} ${kind}`)),
      ...ways.flatMap((memory) => [-1, 0, 1].map((cpu) => `container memory ${memory}, cpu ${cpu}`)),
      'shares change',
      'a container is not part of the request',
      // All combinations of directions of a volume and the pod limit.
      ...ways.flatMap((volume) => ways.map((memory) => `volume ${volume}, pod memory ${memory}`)),
    ]),
  );
});

test('the random pods declare containers of every kind in every state, with and without limits, overhead and pod-level limits', () => {
  const seen = new Set<string>();
  holds(4000, any, ({ state: { containers, declared, overhead, cpu, memory } }) => {
    if (declared === undefined) return void seen.add('only running containers are known');
    const limitOfPod = declared.limits === undefined ? 'without' : 'with';
    seen.add(`${limitOfPod} pod-level limits`);
    if (overhead.memory > 0) {
      seen.add('overhead, declared');
      if (memory === 'max') seen.add('overhead without a memory limit');
      if (cpu.quota === 'max') seen.add('overhead without a CPU limit');
    }
    for (const { id, kind, state, limits } of declared.containers) {
      const live = containers.find((container) => container.id === id);
      const has = (limit: unknown): string => (limit === undefined || limit === 'max' ? 'without' : 'with');
      seen.add(`${state} ${kind}, ${has(live ? live.memory : limits?.memory)} memory limit`);
      seen.add(`${state} ${kind}, ${has(live ? live.cpu.quota : limits?.milliCpu)} CPU limit`);
    }
  });
  const states = ['declared', 'created', 'ended', 'running'];
  const kinds = ['app', 'sidecar', 'init', 'ephemeral'];
  const limits = ['memory', 'CPU'].flatMap((resource) => [`with ${resource} limit`, `without ${resource} limit`]);
  const all = states.flatMap((state) => kinds.flatMap((kind) => limits.map((limit) => `${state} ${kind}, ${limit}`)));
  // kubelet counts a running container without a limit as 0, and its first limit increases the needs of the pod.
  const isLeftOut = (what: string): boolean => /^running (sidecar|init), without/.test(what);
  expect([...seen]).toEqual(
    expect.arrayContaining([
      ...all.filter((what) => !isLeftOut(what)),
      'only running containers are known',
      'with pod-level limits',
      'without pod-level limits',
      'overhead, declared',
      'overhead without a memory limit',
      'overhead without a CPU limit',
    ]),
  );
});

test('the random pods have the settings that each configuration of kubelet derives, also if there are none', () => {
  const seen = new Set<string>();
  holds(4000, any, ({ state: { containers, memory, cpu } }) => {
    for (const { settings = {}, memory: limit, cpu: own } of containers) {
      for (const [file, text] of Object.entries(settings))
        seen.add(`${file} ${text === '0' ? 'none' : text === 'max' ? 'max' : 'set'}`);
      if (limit === 'max' && own.quota === 'max') seen.add(`no limits, ${settings['memory.high'] ?? 'no memory.high'}`);
    }
    if (memory === 'max' && cpu.quota === 'max') seen.add('a pod without limits');
  });
  expect([...seen]).toEqual(
    expect.arrayContaining([
      'memory.high set',
      'memory.high max',
      'memory.min none',
      'memory.min set',
      'memory.low none',
      'memory.low set',
      'memory.swap.max none',
      'memory.swap.max set',
      'cpuset.cpus set',
      // BestEffort.
      'no limits, max',
      'no limits, no memory.high',
      'a pod without limits',
    ]),
  );
});
