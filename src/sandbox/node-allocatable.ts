import type { Amounts } from './declared/index.ts';

/** What the pods of this node may request in all, as the API server has it in the status of the Node. */
export interface NodeAllocatable {
  /** Returns undefined while it is not known. */
  amounts(): Amounts | undefined;
}

/** Without a connection to the API server, or without the right to read the Node. */
export const noNodeAllocatable: NodeAllocatable = { amounts: () => undefined };
