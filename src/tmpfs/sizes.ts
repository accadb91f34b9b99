/** A volume's size: the policy in its annotation, and the size from that and the current limits. Pure. */

import { Reason, ShimError, suggestion } from '../core/errors.ts';
import { Code } from '../core/grpc.ts';
import { parseQuantity } from '../core/quantities/kubernetes.ts';
import { type Bytes, bytes, type Limit } from '../core/quantities/numbers.ts';
import { PAGE_SIZE } from '../core/quantities/page-size.ts';

/** Prefix of the annotation's key; the volume's name follows. */
export const VOLUME_ANNOTATION = 'volume.cri-resize-shim.io/';

export type VolumePolicy =
  /** `256Mi`: this size. */
  | { readonly kind: 'absolute'; readonly size: Bytes }
  /** `50%`: of the pod's memory limit; in hundredths of a percent, so that 12.5% is exact. */
  | { readonly kind: 'share'; readonly hundredths: number }
  /** `50%/web`: of one container's memory limit. */
  | { readonly kind: 'container-share'; readonly hundredths: number; readonly container: string }
  /** `follow`: the pod's memory limit; at most `atMost`: the spec's sizeLimit, or without it the mount's size. */
  | { readonly kind: 'follow'; readonly atMost?: Bytes }
  /** `fixed`: as it was mounted, or as kubelet resizes it (KEP-6030). */
  | { readonly kind: 'fixed'; readonly by?: 'kubelet' };

/** The volume policies in a pod's annotations, and the errors in them. */
export interface AnnotatedVolumes {
  readonly policies: ReadonlyMap<string, VolumePolicy>;
  /** Errors with the reason INVALID_ANNOTATION. The pod runs anyway; the caller reports them. */
  readonly errors: readonly ShimError[];
}

/** Reads all volume annotations and ignores the others. */
export function readVolumeAnnotations(annotations: Readonly<Record<string, string>>): AnnotatedVolumes {
  const policies = new Map<string, VolumePolicy>();
  const errors: ShimError[] = [];
  for (const [key, value] of Object.entries(annotations)) {
    if (!key.startsWith(VOLUME_ANNOTATION)) continue;
    try {
      const { volume, policy } = parseVolumeAnnotation(key, value);
      policies.set(volume, policy);
    } catch (error) {
      if (!(error instanceof ShimError)) throw error;
      errors.push(error);
    }
  }
  return { policies, errors };
}

/** Parses `256Mi`, `50%`, `50%/<container>`, `follow`, `fixed`. Throws INVALID_ANNOTATION with key and value. */
export function parseVolumeAnnotation(
  key: string,
  value: string,
): { readonly volume: string; readonly policy: VolumePolicy } {
  const volume = key.startsWith(VOLUME_ANNOTATION) ? key.slice(VOLUME_ANNOTATION.length) : '';
  if (!isDnsLabel(volume)) throw invalid(key, value, 'the key does not end in the name of a volume');
  return { volume, policy: policyOf(key, value) };
}

function policyOf(key: string, value: string): VolumePolicy {
  if (value === 'follow' || value === 'fixed') return { kind: value };
  if (value.includes('%')) return shareOf(key, value);
  const size = parseQuantity(value);
  if (size === undefined) {
    const near = suggestion(value, ['follow', 'fixed']);
    throw invalid(key, value, `expected 256Mi, 50%, 50%/<container>, follow or fixed${near}`);
  }
  // The kernel reads size=0 as no limit, and then accepts no other size.
  if (size === 0) throw invalid(key, value, 'a volume needs a size');
  if (size < PAGE_SIZE) throw invalid(key, value, `a volume has at least a page, ${PAGE_SIZE} bytes`);
  if (Math.ceil(size / PAGE_SIZE) * PAGE_SIZE > Number.MAX_SAFE_INTEGER)
    throw invalid(key, value, 'a volume has less than 8Pi');
  return { kind: 'absolute', size };
}

function shareOf(key: string, value: string): VolumePolicy {
  const [, whole, fraction = '', container] = /^(\d{1,4})(?:\.(\d{1,2}))?%(?:\/(.*))?$/s.exec(value) ?? [];
  if (whole === undefined) throw invalid(key, value, 'a share is a number with at most two decimals, and %');
  const hundredths = Number(whole) * 100 + Number(fraction.padEnd(2, '0'));
  if (hundredths === 0 || hundredths > 100_000) throw invalid(key, value, 'a share is more than 0% and at most 1000%');
  if (container === undefined) return { kind: 'share', hundredths };
  if (!isDnsLabel(container)) throw invalid(key, value, `not the name of a container: ${JSON.stringify(container)}`);
  return { kind: 'container-share', hundredths, container };
}

/**
 * KEP-6030: whether what a volume stores, in bytes, fits in a size. The kernel rounds the size up to whole pages.
 */
export const fitsIn = (
  size: Bytes,
  { used, pageSize }: { readonly used: number; readonly pageSize: number },
): boolean => Math.ceil(used / pageSize) <= Math.ceil(size / pageSize);

/**
 * Returns the size that a policy requires (KEP-6030). Undefined if it requires none: `fixed`, or the limit that it
 * depends on is `max` or unknown (the container does not exist yet).
 *
 * Shares are rounded down to whole pages, with a minimum of one page: a volume is never larger than its share, and the
 * kernel, which rounds up to pages, sets exactly that size. An absolute size and `follow` are not rounded.
 */
export function targetSize(
  policy: VolumePolicy,
  podLimit: Limit<Bytes> | undefined,
  containerLimits: ReadonlyMap<string, Limit<Bytes>>,
  pageSize: Bytes = PAGE_SIZE,
): Bytes | undefined {
  switch (policy.kind) {
    case 'absolute':
      return policy.size;
    case 'share':
      return share(podLimit, policy.hundredths, pageSize);
    case 'container-share':
      return share(containerLimits.get(policy.container), policy.hundredths, pageSize);
    case 'follow': {
      // kubelet pkg/volume/emptydir/empty_dir.go, calculateEmptyDirMemorySize: the smaller of both limits.
      const limit =
        podLimit === undefined || podLimit === 'max' ? policy.atMost : Math.min(podLimit, policy.atMost ?? podLimit);
      return limit === undefined ? undefined : bytes(Math.max(limit, pageSize));
    }
    case 'fixed':
      return undefined;
  }
}

/**
 * Returns the policy of a volume without annotation: `follow` if its mounted size equals the pod's memory limit when
 * first seen (kubelet sized it from that limit), otherwise `fixed`. The kernel rounds the volume up to a page and
 * memory.max down, so both can differ by a page although kubelet used one number.
 */
export function policyAtFirstSight(
  mounted: Bytes,
  podLimit: Limit<Bytes> | undefined,
  pageSize: Bytes = PAGE_SIZE,
): VolumePolicy {
  const follows = podLimit !== undefined && podLimit !== 'max' && Math.abs(mounted - podLimit) <= pageSize;
  return { kind: follows ? 'follow' : 'fixed' };
}

/** Whether a tmpfs of this size matches the requested size. The kernel rounds up to whole pages (tmpfs(5), size). */
export function isSameSize(asked: Bytes, mounted: Bytes, pageSize: Bytes = PAGE_SIZE): boolean {
  return Math.ceil(asked / pageSize) === Math.ceil(mounted / pageSize);
}

/** Names of volumes and containers (RFC 1123). */
export function isDnsLabel(name: string): boolean {
  return /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/.test(name);
}

function share(limit: Limit<Bytes> | undefined, hundredths: number, pageSize: Bytes): Bytes | undefined {
  if (limit === undefined || limit === 'max') return undefined;
  const exact = (BigInt(limit) * BigInt(hundredths)) / 10_000n;
  const largest = BigInt(Number.MAX_SAFE_INTEGER);
  const size = Number(exact > largest ? largest : exact);
  return bytes(Math.max(size - (size % pageSize), pageSize));
}

function invalid(key: string, value: string, why: string): ShimError {
  const asked = value.slice(0, 80);
  const message = `annotation ${key}: ${JSON.stringify(asked)}: ${why}`;
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_ANNOTATION, message, { file: key, asked });
}
