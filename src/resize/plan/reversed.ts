import type { Change, ContainerStep, Step } from '../model/index.ts';

/**
 * Returns the step that rolls this one back. No step rolls back the caller's own call. A rollback runs these steps in reverse,
 * so the order of KEP-1287 and KEP-6030 holds for it too.
 */
export function reversed(step: Exclude<Step, { kind: 'runtime' }>): Step {
  if (step.kind === 'container') return reversedContainer(step);
  return { ...step, from: step.to, to: step.from } as Step;
}

/** Returns the update that rolls this one back. */
export function reversedContainer({ id, memory, cpu, shares, swap, settings }: ContainerStep): ContainerStep {
  return {
    kind: 'container',
    id,
    ...(memory && { memory: swapped(memory) }),
    ...(cpu && { cpu: swapped(cpu) }),
    ...(shares && { shares: swapped(shares) }),
    ...(swap && { swap: swapped(swap) }),
    ...(settings && {
      settings: Object.fromEntries(Object.entries(settings).map(([file, change]) => [file, swapped(change)])),
    }),
  };
}

const swapped = <Value>({ from, to }: Change<Value>): Change<Value> => ({ from: to, to: from });
