import type { LinuxContainerResources } from '../../runtime/index.ts';
import { touchesCpu, touchesMemory } from '../admission/parse-limits.ts';
import type { DesiredPod } from '../plan/resize-request.ts';

/** A value of a pod that a request can set, such as `container web, limits.memory`. */
export type PodField = string;

/** Returns the field of a container's amount, or of the pod's own (name undefined). */
export function amountField(
  container: string | undefined,
  amount: 'limits.memory' | 'limits.cpu' | 'requests.memory' | 'requests.cpu',
): PodField {
  return container === undefined ? `pod, ${amount}` : `container ${container}, ${amount}`;
}

/** Returns the field of a volume's size. */
export const volumeField = (volume: string): PodField => `volume ${volume}`;

/** A request that sets values of a pod. */
export interface Writer {
  /** Its place among all requests: see {@link NewestValues.arrival}. */
  readonly arrival: number;
  /** The request in a message, such as `resize 1234` or `an update of container web`. */
  readonly text: string;
}

/** Called after a request was applied. Must not reject. */
export type AppliedListener = (sandboxId: string) => Promise<void>;

/**
 * The order of all requests that write a pod's values: updates of the CRI, ResizePod, annotations and deferred requests
 * are one sequence, and the newest request of each field wins, from any client. In memory only: after a restart, only
 * deferred requests remain, which lose a field when a newer request for it is applied.
 */
export class NewestValues {
  #last = 0;
  /** Newest applied request per field, by sandbox id. Fields are names of the pod's own containers and volumes. */
  readonly #pods = new Map<string, Map<PodField, Writer>>();
  readonly #listeners: AppliedListener[] = [];

  /** Returns the place of a request that has just arrived. Earlier requests have lower places. */
  arrival(): number {
    return (this.#last += 1);
  }

  onApplied(listener: AppliedListener): void {
    this.#listeners.push(listener);
  }

  /**
   * Records that a request was applied. The caller holds the pod's lock. Resolves when the older requests are stored
   * without these fields.
   */
  async applied(sandboxId: string, writer: Writer, fields: Iterable<PodField>): Promise<void> {
    const newest = this.#pods.get(sandboxId) ?? new Map<PodField, Writer>();
    for (const field of fields) if ((newest.get(field)?.arrival ?? 0) < writer.arrival) newest.set(field, writer);
    if (newest.size === 0) return;
    this.#pods.set(sandboxId, newest);
    for (const listener of this.#listeners) await listener(sandboxId);
  }

  /** Returns the newest request that set this field, if it arrived later than `arrival`; otherwise undefined. */
  newerWriter(sandboxId: string, field: PodField, arrival: number): Writer | undefined {
    const writer = this.#pods.get(sandboxId)?.get(field);
    return writer !== undefined && writer.arrival > arrival ? writer : undefined;
  }

  /** Removes a pod that no longer exists. */
  forget(sandboxId: string): void {
    this.#pods.delete(sandboxId);
  }
}

/** Returns the fields that a CRI message sets for a container, or for the pod itself (name undefined). */
export const criFields = (container: string | undefined, resources: LinuxContainerResources | null): PodField[] =>
  resources === null
    ? []
    : [
        ...(touchesMemory(resources) ? [amountField(container, 'limits.memory')] : []),
        ...(touchesCpu(resources) ? [amountField(container, 'limits.cpu')] : []),
        ...(resources.cpu_shares === 0n ? [] : [amountField(container, 'requests.cpu')]),
      ];

/** Returns the fields that ResizePod sets. */
export function desiredFields({ pod, containers, volumes, memoryRequests }: DesiredPod): PodField[] {
  const all: [string | undefined, DesiredPod['pod']][] = [[undefined, pod], ...containers];
  return [
    ...all.flatMap(([name, { memory, cpu, shares }]) => [
      ...(memory === undefined ? [] : [amountField(name, 'limits.memory')]),
      ...(cpu === undefined ? [] : [amountField(name, 'limits.cpu')]),
      ...(shares === undefined ? [] : [amountField(name, 'requests.cpu')]),
    ]),
    ...Object.keys(memoryRequests?.containers ?? {}).map((name) => amountField(name, 'requests.memory')),
    ...(memoryRequests?.pod === undefined ? [] : [amountField(undefined, 'requests.memory')]),
    ...[...volumes.keys()].map(volumeField),
  ];
}
