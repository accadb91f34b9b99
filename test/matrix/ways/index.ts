import { kubelet133, kubelet136 } from './kubelet.ts';
import { resizePod } from './resize-pod.ts';
import type { Way } from './way.ts';
import { crictl } from './way.ts';

export type { Way } from './way.ts';

/** All ways in which the matrix resizes pods. */
export const ways: readonly Way[] = [kubelet133, kubelet136, crictl, resizePod];
