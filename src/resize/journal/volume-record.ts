/** The journal's record of one volume: its size policy, where the policy comes from, and the last known mount. */
import * as z from 'zod/mini';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import { type Bytes, bytes } from '../../core/quantities/index.ts';

export interface VolumeRecord {
  readonly policy: VolumePolicy;
  /**
   * Where the policy comes from: `seen`, the mount when the shim first saw the volume; `asked`, a request or an annotation at
   * run time; `found`, a remount by another program.
   */
  readonly source: 'seen' | 'asked' | 'found';
  /** Whether an annotation added at run time sets the size: then a remount by another program does not change the policy. */
  readonly annotated: boolean;
  /** Absent until the shim has seen the volume mounted, and after a reboot. */
  readonly mount?: VolumeMount;
  /** The largest size with which it was mounted, by kubelet: its size limit is no smaller. Absent in records of 0.1.0. */
  readonly mounted?: Bytes;
}

/** The last known mount of a volume. */
export interface VolumeMount {
  /** The file system's device, `major:minor`. A new mount usually has a different one. */
  readonly device: string;
  readonly size: Bytes;
}

/** The volume policy that a request asks for. */
export type RequestedVolume = Pick<VolumeRecord, 'policy' | 'annotated'>;

const amount = z.int().check(z.nonnegative());
export const inBytes = z.pipe(
  amount,
  z.transform((value: number) => bytes(value)),
);

/** The name of a volume or a container in Kubernetes: a DNS label (RFC 1123). */
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

export const requestedVolume: z.ZodMiniType<RequestedVolume> = z.strictObject({ policy, annotated: z.boolean() });

export const volumeRecord: z.ZodMiniType<VolumeRecord> = z.strictObject({
  policy,
  source: z.enum(['seen', 'asked', 'found']),
  annotated: z.boolean(),
  mount: z.exactOptional(mount),
  mounted: z.exactOptional(inBytes),
});
