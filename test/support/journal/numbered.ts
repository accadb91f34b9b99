import { bytes } from '../../../src/core/quantities/numbers.ts';
import type { PodRecord, VolumeRecord } from '../../../src/sandbox/journal/record.ts';

export const podUid = '1b4e28ba-2fa1-11d2-883f-0016d3cca427';

/** A volume record whose policy and mount have a size of `number` bytes. */
export const volumeOf = (number: number): VolumeRecord => ({
  policy: { kind: 'absolute', size: bytes(number) },
  source: 'asked',
  annotated: number % 2 === 0,
  mount: { device: `0:${number}`, size: bytes(number) },
  mounted: bytes(number),
});

/** Returns the size of a record's volume `cache`, i.e. the record's number. */
export const numberIn = ({ volumes }: PodRecord): number => Number(volumes.get('cache')?.mount?.size ?? -1);

/** A record with `number` in every part, so that records, and parts of different records, are distinguishable. */
export function numbered(number: number, uid: string = podUid): PodRecord {
  const to = bytes(number);
  return {
    podUid: uid,
    sandboxId: `sandbox-${number}`,
    transaction: {
      id: `t${number}`,
      startedAt: number,
      steps: Array.from({ length: 20 }, (_, index) => ({
        kind: 'volume',
        volume: `v${index}`,
        from: bytes(0),
        to,
      })),
      undoing: number % 2 === 1,
      highs: [{ cgroup: '/kubepods/pod', memoryHigh: 'max' }],
    },
    volumes: new Map([['cache', volumeOf(number)]]),
  };
}
