import { beforeEach, describe, expect, test } from 'vitest';
import { cpuShares } from '../../../src/core/quantities/numbers.ts';
import { UnansweredUpdates } from '../../../src/sandbox/journal/unanswered.ts';
import type { ContainerStep } from '../../../src/sandbox/plan/step.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { cpu } from '../../support/resize/resized-pod.ts';

const memory = (from: number, to: number) => ({ memory: { from: mi(from), to: mi(to) } });
const quota = (from: number, to: number) => ({ cpu: { from: cpu(from), to: cpu(to) } });
const update = (changes: Omit<ContainerStep, 'kind' | 'id'>, id = 'a'): ContainerStep => ({
  kind: 'container',
  id,
  ...changes,
});

let unanswered: UnansweredUpdates;
beforeEach(() => (unanswered = new UnansweredUpdates()));

test('counts unanswered updates of one container once, at their highest limits', () => {
  for (let attempt = 0; attempt < 100; attempt += 1)
    unanswered.add('pod', [update(memory(100, 200 + attempt)), update({ ...memory(100, 150), ...quota(10, 20) })]);
  expect(unanswered.of('pod')).toEqual([update({ ...memory(100, 299), ...quota(10, 20) })]);
  expect(unanswered.of('other')).toEqual([]);
});

test('ignores steps that are not container updates', () => {
  unanswered.add('pod', [{ kind: 'pod-memory', ...memory(100, 200).memory }, { kind: 'runtime' }]);
  expect(unanswered.of('pod')).toEqual([]);
});

describe('an answer of the runtime', () => {
  const settings = { 'memory.high': { from: '1', to: '2' } };
  const shares = { from: cpuShares(2), to: cpuShares(4) };
  const all = { ...memory(100, 200), ...quota(10, 20), shares, swap: memory(0, 5).memory, settings };

  test('an answer ends the values that it sets, and with memory also swap and settings', () => {
    unanswered.add('pod', [update(all)]);
    unanswered.answered('pod', { id: 'b', memory: 1 });
    expect(unanswered.of('pod')).toEqual([update(all)]);
    unanswered.answered('pod', { id: 'a', memory: 1 });
    expect(unanswered.of('pod')).toEqual([update({ ...quota(10, 20), shares })]);
    unanswered.answered('pod', { id: 'a', cpu: 1 });
    expect(unanswered.of('pod')).toEqual([update({ shares })]);
    unanswered.answered('pod', { id: 'a', shares: 1 });
    expect(unanswered.of('pod')).toEqual([]);
  });

  test('an answer for one container does not end the updates of another one', () => {
    unanswered.add('pod', [update(all), update(memory(1, 2), 'b')]);
    unanswered.settled('pod', 'a');
    expect(unanswered.of('pod')).toEqual([update(memory(1, 2), 'b')]);
    unanswered.forget('pod');
    expect(unanswered.of('pod')).toEqual([]);
  });
});

describe('remaining steps of a transaction', () => {
  const steps = [
    { kind: 'pod-memory', ...memory(300, 400).memory } as const,
    update({ ...memory(100, 200), ...quota(10, 20), swap: memory(0, 5).memory }),
    update(memory(200, 150)),
    update(memory(1, 2), 'b'),
  ];

  test('the remaining steps of a transaction are its unanswered updates', () => {
    unanswered.add('pod', [update(memory(100, 200))]);
    expect(unanswered.left('pod', steps, [])).toEqual([
      update({ ...memory(100, 200), swap: memory(0, 5).memory }),
      update(memory(200, 150)),
    ]);
    expect(unanswered.left('other', steps, [])).toEqual([]);
  });

  test('the remaining steps of a transaction roll back to values that were applied since', () => {
    unanswered.add('pod', [update({ ...memory(100, 200), ...quota(10, 20) })]);
    expect(unanswered.left('pod', steps, [{ id: 'a', memory: mi(120), swap: mi(7) }])).toEqual([
      update({ ...memory(120, 200), ...quota(10, 20), swap: memory(7, 5).memory }),
      update(memory(120, 150)),
    ]);
  });
});
