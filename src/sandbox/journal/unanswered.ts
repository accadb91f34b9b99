import { compareCpu, compareLimits } from '../plan/amounts.ts';
import type { Change, ContainerStep, Step } from '../plan/step.ts';
import type { ContainerLimits } from '../pods/pod-state.ts';

/**
 * Updates of containers that the runtime has not answered, by pod and container: they may still arrive, so the pod
 * limit needs room for them. An answered update also settles earlier updates of the same values: the runtime applies
 * the updates of one container one after the other.
 *
 * In memory. The journal has the steps: after a restart, each update of a transaction that has not ended counts as
 * unanswered.
 */
export class UnansweredUpdates {
  /** By sandbox id and container id, with a container's updates merged. Removed together with the pod's record. */
  readonly #pods = new Map<string, Map<string, ContainerStep>>();
  /** How often a wait for an update has ended without an answer, by sandbox id and container id. */
  readonly #waits = new Map<string, Map<string, number>>();

  /** Records updates that the runtime has not answered. */
  add(sandboxId: string, steps: readonly Step[]): void {
    const updates = this.#pods.get(sandboxId) ?? new Map<string, ContainerStep>();
    for (const step of steps) {
      if (step.kind !== 'container') continue;
      const known = updates.get(step.id);
      updates.set(step.id, known === undefined ? step : joined(known, step));
    }
    if (updates.size > 0) this.#pods.set(sandboxId, updates);
  }

  /** Records that the runtime has answered an update of a container that sets these values. */
  answered(sandboxId: string, values: { readonly id: string } & { readonly [Field in Settable]?: unknown }): void {
    const updates = this.#pods.get(sandboxId);
    const known = updates?.get(values.id);
    if (updates === undefined || known === undefined) return;
    const left = without(known, values);
    if (left === undefined) this.settled(sandboxId, known.id);
    else updates.set(known.id, left);
  }

  /** Records that no earlier update of a container can arrive any more. */
  settled(sandboxId: string, id: string): void {
    const updates = this.#pods.get(sandboxId);
    updates?.delete(id);
    this.#waits.get(sandboxId)?.delete(id);
    if (updates?.size === 0) this.forget(sandboxId);
  }

  /** Records that a wait for an update of a container has ended without an answer. */
  waited(sandboxId: string, id: string): void {
    const waits = this.#waits.get(sandboxId) ?? new Map<string, number>();
    waits.set(id, this.waitsFor(sandboxId, id) + 1);
    this.#waits.set(sandboxId, waits);
  }

  /** Returns how often a wait for an update of a container has ended without an answer. */
  waitsFor(sandboxId: string, id: string): number {
    return this.#waits.get(sandboxId)?.get(id) ?? 0;
  }

  of(sandboxId: string): readonly ContainerStep[] {
    return [...(this.#pods.get(sandboxId)?.values() ?? [])];
  }

  forget(sandboxId: string): void {
    this.#pods.delete(sandboxId);
    this.#waits.delete(sandboxId);
  }

  /**
   * Returns the updates among these steps that have no answer, to roll them back to the newest values.
   * @param newest the values applied since
   */
  left(sandboxId: string, steps: readonly Step[], newest: readonly ContainerLimits[]): ContainerStep[] {
    const updates = this.#pods.get(sandboxId);
    return steps.flatMap((step) => {
      const open = step.kind === 'container' ? updates?.get(step.id) : undefined;
      if (open === undefined || step.kind !== 'container') return [];
      const now = newest.find(({ id }) => id === step.id);
      return leftOf(step, open, now) ?? [];
    });
  }
}

type Settable = 'memory' | 'cpu' | 'shares';

/** Merges two updates of one container, with the highest limits of both. */
const joined = (one: ContainerStep, other: ContainerStep): ContainerStep => ({
  ...one,
  ...other,
  ...highest('memory', one.memory, other.memory, compareLimits),
  ...highest('cpu', one.cpu, other.cpu, compareCpu),
  ...((one.settings ?? other.settings) && { settings: { ...one.settings, ...other.settings } }),
});

function highest<Name extends 'memory' | 'cpu', Value>(
  name: Name,
  one: Change<Value> | undefined,
  other: Change<Value> | undefined,
  compare: (a: Value, b: Value) => number,
): { readonly [Field in Name]?: Change<Value> } {
  const found = one === undefined || (other !== undefined && compare(other.to, one.to) > 0) ? other : one;
  return found === undefined ? {} : ({ [name]: found } as { readonly [Field in Name]?: Change<Value> });
}

/** Returns an update without the values that another update sets. Swap and settings belong to memory. */
function without(
  { kind, id, memory, cpu, shares, swap, settings }: ContainerStep,
  values: { readonly [Field in Settable]?: unknown },
): ContainerStep | undefined {
  const left = {
    ...(memory && values.memory === undefined && { memory, ...(swap && { swap }), ...(settings && { settings }) }),
    ...(cpu && values.cpu === undefined && { cpu }),
    ...(shares && values.shares === undefined && { shares }),
  };
  return Object.keys(left).length === 0 ? undefined : { kind, id, ...left };
}

/** Returns the unanswered values of a step, as a step to roll them back to the newest values. */
function leftOf(
  { kind, id, memory, cpu, shares, swap, settings }: ContainerStep,
  open: ContainerStep,
  newest: ContainerLimits | undefined,
): ContainerStep | undefined {
  const left = {
    ...(memory && open.memory && { memory: { ...memory, from: newest?.memory ?? memory.from } }),
    ...(memory && open.memory && swap && { swap: { ...swap, from: newest?.swap ?? swap.from } }),
    ...(settings && newest === undefined && { settings }),
    ...(cpu && open.cpu && { cpu: { ...cpu, from: newest?.cpu ?? cpu.from } }),
    ...(shares && open.shares && { shares: { ...shares, from: newest?.shares ?? shares.from } }),
  };
  return Object.keys(left).length === 0 ? undefined : { kind, id, ...left };
}
