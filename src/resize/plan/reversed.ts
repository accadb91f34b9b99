import type { Change, ContainerStep, Step } from '../model/index.ts';

/** The step that takes this one back. The caller's own call cannot be taken back by a step. */
export function reversed(step: Exclude<Step, { kind: 'runtime' }>): Step {
  if (step.kind === 'container') return reversedContainer(step);
  return { ...step, from: step.to, to: step.from } as Step;
}

/** The update that takes this one back. */
export function reversedContainer({ id, memory, cpu, shares }: ContainerStep): ContainerStep {
  return {
    kind: 'container',
    id,
    ...(memory && { memory: swapped(memory) }),
    ...(cpu && { cpu: swapped(cpu) }),
    ...(shares && { shares: swapped(shares) }),
  };
}

const swapped = <Value>({ from, to }: Change<Value>): Change<Value> => ({ from: to, to: from });
