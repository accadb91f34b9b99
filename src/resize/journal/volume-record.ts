/** What the journal says of one volume: what decides its size, who has said so, and how it was mounted last. */
import * as z from 'zod/mini';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import { type Bytes, bytes } from '../../core/quantities/index.ts';

export interface VolumeRecord {
  readonly policy: VolumePolicy;
  /**
   * Who has decided: `seen`, the way it was mounted when it was first met; `asked`, a request or an annotation at run time;
   * `found`, somebody else who has remounted it.
   */
  readonly source: 'seen' | 'asked' | 'found';
  /** An annotation that has come since the pod was made says its size: nobody else's remount changes that. */
  readonly annotated: boolean;
  /** Absent until it has been met, and after another boot. */
  readonly mount?: VolumeMount;
}

/** A volume as it was last known. */
export interface VolumeMount {
  /** The file system, `major:minor`: a volume that is mounted anew mostly has another one. */
  readonly device: string;
  readonly size: Bytes;
}

/** What a request has asked for a volume. */
export type AskedVolume = Pick<VolumeRecord, 'policy' | 'annotated'>;

const amount = z.int().check(z.nonnegative());
export const inBytes = z.pipe(
  amount,
  z.transform((value: number) => bytes(value)),
);

/** As Kubernetes names volumes and containers: a DNS label (RFC 1123). */
export const label = z.string().check(z.regex(/^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/));

const policies = {
  absolute: z.strictObject({ kind: z.literal('absolute'), size: inBytes }),
  share: z.strictObject({ kind: z.literal('share'), hundredths: amount }),
  'container-share': z.strictObject({ kind: z.literal('container-share'), hundredths: amount, container: label }),
  follow: z.strictObject({ kind: z.literal('follow') }),
  fixed: z.strictObject({ kind: z.literal('fixed') }),
} satisfies { [Kind in VolumePolicy['kind']]: z.ZodMiniType<Extract<VolumePolicy, { kind: Kind }>> };

const policy: z.ZodMiniType<VolumePolicy> = z.discriminatedUnion('kind', [
  policies.absolute,
  policies.share,
  policies['container-share'],
  policies.follow,
  policies.fixed,
]);

const mount = z.strictObject({ device: z.string().check(z.regex(/^\d{1,10}:\d{1,10}$/)), size: inBytes });

export const askedVolume: z.ZodMiniType<AskedVolume> = z.strictObject({ policy, annotated: z.boolean() });

export const volumeRecord: z.ZodMiniType<VolumeRecord> = z.strictObject({
  policy,
  source: z.enum(['seen', 'asked', 'found']),
  annotated: z.boolean(),
  mount: z.exactOptional(mount),
});
