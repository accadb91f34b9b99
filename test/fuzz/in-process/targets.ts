import { criTarget, journalTarget } from '../parsers/cri.ts';
import { cgroupTarget, kubeletTarget, procTarget } from '../parsers/kernel.ts';
import { proxyTarget } from '../proxy/target.ts';
import type { Target } from '../target.ts';

/** The targets that run in the fuzzer's own process, and their percentage of all inputs. */
export const inProcess = {
  proxy: { open: proxyTarget, share: 20 },
  messages: { open: criTarget, share: 8 },
  kubelet: { open: kubeletTarget, share: 6 },
  journal: { open: journalTarget, share: 6 },
  proc: { open: procTarget, share: 5 },
  cgroups: { open: cgroupTarget, share: 5 },
} as const satisfies Readonly<Record<string, { readonly open: () => Target; readonly share: number }>>;

export type InProcessName = keyof typeof inProcess;
export const inProcessNames = Object.keys(inProcess) as InProcessName[];
