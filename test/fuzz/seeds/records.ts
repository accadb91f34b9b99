import { encodeRecord } from '../../../src/sandbox/journal/record.ts';
import { numbered } from '../../support/journal/numbered.ts';

const change = (from: unknown, to: unknown): object => ({ from, to });
const cpu = { quota: 50_000, period: 100_000 };

const full = {
  version: 4,
  bootId: 'fuzz-boot',
  podUid: '1b4e28ba-2fa1-11d2-883f-0016d3cca427',
  sandboxId: 'p1',
  transaction: {
    id: 't1',
    startedAt: 1,
    steps: [
      { kind: 'volume', volume: 'cache', from: 4096, to: 8192 },
      { kind: 'pod-memory', from: 'max', to: 8192 },
      { kind: 'pod-cpu', from: cpu, to: { quota: 'max', period: 100_000 } },
      { kind: 'pod-weight', from: 1, to: 10_000 },
      { kind: 'pod-unified', key: 'memory.high', from: 'max', to: '1' },
      { kind: 'container', id: 'c1', memory: change(4096, 'max'), cpu: change(cpu, cpu), shares: change(2, 512) },
      { kind: 'runtime' },
    ],
    allocated: { cache: { policy: { kind: 'container-share', hundredths: 5000, container: 'web' }, annotated: true } },
    undoing: false,
    highs: [{ cgroup: '/kubepods/pod1', memoryHigh: 4096 }],
  },
  holds: [{ cgroup: '/kubepods/pod1/c1', memoryHigh: 'max' }],
  volumes: {
    cache: { policy: { kind: 'follow' }, source: 'seen', annotated: false, mount: { device: '0:42', size: 1 } },
  },
  resizes: [{ any: ['value'] }],
};

/** The forms of journal records, as JSON values: all kinds of steps, of the previous and of a newer version. */
export const recordForms: readonly object[] = [
  full,
  { ...full, version: 3 },
  { ...full, version: 5 },
  JSON.parse(encodeRecord(numbered(3), 'fuzz-boot').toString()) as object,
];
