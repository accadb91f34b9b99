import type { PodDescription } from '../runtime/index.ts';

export interface PodIdentity {
  readonly sandboxId: string;
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
}

export const identityOf = ({ sandboxId, metadata }: PodDescription): PodIdentity => ({
  sandboxId,
  uid: metadata.uid,
  namespace: metadata.namespace,
  name: metadata.name,
});
