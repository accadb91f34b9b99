/** A container's request and limit of one resource: CPU in thousandths of a processor, memory in MiB. */
export interface Amount {
  readonly request?: number;
  readonly limit?: number;
}

/** A container's requests and limits, as in the manifest of its pod. */
export interface Amounts {
  readonly cpu?: Amount;
  readonly memory?: Amount;
}

/** The requests and limits of each container of a pod, by name. */
export type PodAmounts = Readonly<Record<string, Amounts>>;

export const resourceNames = ['memory', 'cpu'] as const;
export type ResourceName = (typeof resourceNames)[number];

/** A request that equals the limit. */
export const equal = (amount: number): Required<Amount> => ({ request: amount, limit: amount });

/** Returns the amounts of container `name`. Throws if there are none. */
export function amountsOf(amounts: PodAmounts, name: string): Amounts {
  const found = amounts[name];
  if (found === undefined) throw new Error(`no amounts for container ${name}`);
  return found;
}

/** Whether `from` has a limit that `to` lacks. */
export const removesLimits = (from: PodAmounts, to: PodAmounts): boolean =>
  Object.entries(from).some(([name, { cpu, memory }]) => {
    const then = amountsOf(to, name);
    return isRemoved(cpu, then.cpu) || isRemoved(memory, then.memory);
  });

const isRemoved = (from: Amount | undefined, to: Amount | undefined): boolean =>
  from?.limit !== undefined && to?.limit === undefined;
