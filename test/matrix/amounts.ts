/** What a container asks for of one resource: CPU in thousandths of a processor, memory in MiB. Absent: none. */
export interface Amount {
  readonly request?: number;
  readonly limit?: number;
}

/** What a container asks for, as its pod's manifest says. */
export interface Amounts {
  readonly cpu?: Amount;
  readonly memory?: Amount;
}

/** What each container of a pod asks for, by name. */
export type PodAmounts = Readonly<Record<string, Amounts>>;

export const resourceNames = ['memory', 'cpu'] as const;
export type ResourceName = (typeof resourceNames)[number];

/** As much at most as at least. */
export const equal = (amount: number): Required<Amount> => ({ request: amount, limit: amount });

/** What `name` asks for. Throws for a container that `amounts` does not have. */
export function amountsOf(amounts: PodAmounts, name: string): Amounts {
  const found = amounts[name];
  if (found === undefined) throw new Error(`no amounts for container ${name}`);
  return found;
}

/** Whether a limit that `from` has is not in `to`. */
export const removesLimits = (from: PodAmounts, to: PodAmounts): boolean =>
  Object.entries(from).some(([name, { cpu, memory }]) => {
    const then = amountsOf(to, name);
    return isGone(cpu, then.cpu) || isGone(memory, then.memory);
  });

const isGone = (from: Amount | undefined, to: Amount | undefined): boolean =>
  from?.limit !== undefined && to?.limit === undefined;
