import * as z from 'zod/mini';
import { type Api, ApiRefusal, ApiUnreached, microTime, parsedResponse, readText } from '../../kubernetes/index.ts';

/** The Lease of the API server. Updates send back all fields, known or not. */
const leaseSchema = z.looseObject({
  metadata: z.looseObject({
    resourceVersion: z.exactOptional(z.string()),
    annotations: z.exactOptional(z.record(z.string(), z.string())),
  }),
  spec: z.exactOptional(
    z.looseObject({
      holderIdentity: z.exactOptional(z.string()),
      leaseDurationSeconds: z.exactOptional(z.number()),
      acquireTime: z.exactOptional(z.string()),
      renewTime: z.exactOptional(z.string()),
      leaseTransitions: z.exactOptional(z.number()),
    }),
  ),
});
export type Lease = z.infer<typeof leaseSchema>;

export interface LeaseStore {
  /** Reads the Lease, and creates it if it does not exist. */
  read(signal: AbortSignal): Promise<Lease>;
  /** Returns false if another client has written the Lease since it was read. */
  write(lease: Lease, signal: AbortSignal): Promise<boolean>;
}

const IDLE_MS = 10_000;
const LONGEST = 256 * 1024;

/** A Lease in the Kubernetes API. All methods reject like {@link Api}. */
export function leaseStore(api: Api, namespace: string, name: string): LeaseStore {
  const folder = `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/leases`;
  const one = `${folder}/${encodeURIComponent(name)}`;
  const ask = async (
    method: 'GET' | 'POST' | 'PUT',
    path: string,
    signal: AbortSignal,
    body?: object,
  ): Promise<Lease> => {
    const response = await api({ method, path, idleMs: IDLE_MS, signal, ...(body !== undefined && { body }) });
    return parsedResponse(leaseSchema, await readText(response, LONGEST), 'a Lease');
  };
  const fresh = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { namespace, name }, spec: {} };
  return {
    async read(signal) {
      const there = await orUndefined(404, ask('GET', one, signal));
      // 409: another pod has created it in the meantime.
      return there ?? (await orUndefined(409, ask('POST', folder, signal, fresh))) ?? (await ask('GET', one, signal));
    },
    async write(lease, signal) {
      return (await orUndefined(409, ask('PUT', one, signal, lease))) !== undefined;
    },
  };
}

async function orUndefined<Value>(status: number, asked: Promise<Value>): Promise<Value | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof ApiRefusal && error.status === status) return undefined;
    throw error;
  }
}

/** Annotations of the Lease. Operators read and write the first three, see docs/kubernetes.md. */

/** Halts installations of all revisions, with any text. Set by an operator or a pod of unknown revision. */
export const HALTED = 'cri-resize-shim.io/halted';
/**
 * Revisions of the DaemonSet that have failed and are halted, each with `<node>: <reason>`: a JSON object, the latest
 * failure last. Pods of another revision are not halted: they are the remedy.
 */
export const FAILED = 'cri-resize-shim.io/failed';
/** Pauses all installations, with any text. Only an operator sets and removes it. */
export const PAUSED = 'cri-resize-shim.io/paused';
/**
 * Nodes that are being changed: a JSON object. Each value has the time of the last renewal, the revision of the pod (`
 * revision=<text>`), and ` removal` if the shim is being removed.
 */
const TURNS = 'cri-resize-shim.io/turns';
/** Canary nodes that vouch for a revision: a JSON object, the latest revision last. */
export const VOUCHED = 'cri-resize-shim.io/vouched';

/** The purpose of a turn. */
export type Work = 'install' | 'uninstall';
/** The end of a turn's entry in a removal of the shim. Nothing reads the time: it only changes at renewals. */
const REMOVAL = ' removal';
/** Whether the entry of a turn is that of a removal. */
export const isRemoval = (entry: string): boolean => entry.endsWith(REMOVAL);

/** Returns the revision in the entry of a turn; undefined if it has none, as with an older installer. */
export const revisionOf = (entry: string): string | undefined => /^\S* revision=(.+?)(?: removal)?$/.exec(entry)?.[1];

/** Number of stored revisions: those that have failed, and those that canaries vouch for. */
const REVISIONS = 5;
/** The longest reason of a failure, in characters. All annotations together may take 256 KiB. */
const LONGEST_WHY = 1000;

const textsSchema = z.record(z.string(), z.string());
const vouchedSchema = z.record(z.string(), z.array(z.string()));
type Turns = z.infer<typeof textsSchema>;

const annotation = ({ metadata }: Lease, name: string): string | undefined => metadata.annotations?.[name];

/** Parses a JSON annotation. Throws ApiUnreached with the name of an invalid one: the message is safe to log. */
function parsed<Value>(lease: Lease, name: string, schema: z.ZodMiniType<Value>): Value | undefined {
  const text = annotation(lease, name);
  if (text === undefined) return undefined;
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    throw new ApiUnreached(`annotation ${name} of the Lease is not valid: remove it, or restore its JSON`);
  }
}

/**
 * Returns the nodes that are being changed, with the time of their last renewal. Without the annotation, as with an
 * installer before 0.2, the holder is one node. Throws ApiUnreached.
 */
export function turnsOf(lease: Lease): Turns {
  const { holderIdentity: holder, renewTime = '' } = lease.spec ?? {};
  if (holder === undefined || holder === '') return {};
  const turns = parsed(lease, TURNS, textsSchema);
  return turns !== undefined && Object.keys(turns).join(',') === holder ? turns : { [holder]: renewTime };
}

/** Returns the reason why an operator has paused the rollout; undefined if it is not paused. */
export const pauseOf = (lease: Lease): string | undefined => annotation(lease, PAUSED);

/**
 * Returns why installations of a revision are halted; undefined if they are not. A pod that does not know its revision
 * is halted by the failure of any. Throws ApiUnreached.
 */
export function haltOf(lease: Lease, revision: string): string | undefined {
  const failed = parsed(lease, FAILED, textsSchema) ?? {};
  return annotation(lease, HALTED) ?? (revision === '' ? Object.values(failed).at(-1) : failed[revision]);
}

/** Returns the canary nodes that vouch for a revision. Throws ApiUnreached. */
export const vouchedOf = (lease: Lease, revision: string): readonly string[] =>
  parsed(lease, VOUCHED, vouchedSchema)?.[revision] ?? [];

/** Returns the Lease with other annotations; undefined removes one. */
function annotated(lease: Lease, changes: Readonly<Record<string, string | undefined>>): Lease {
  const all = Object.entries({ ...lease.metadata.annotations, ...changes });
  const annotations = Object.fromEntries(all.flatMap(([name, text]) => (text === undefined ? [] : [[name, text]])));
  return { ...lease, metadata: { ...lease.metadata, annotations } };
}

/** Returns the Lease with these turns. @param at milliseconds since the epoch */
function withTurns(lease: Lease, turns: Turns, at: number): Lease {
  const { holderIdentity: before, ...rest } = lease.spec ?? {};
  const holder = Object.keys(turns).join(',');
  const changed = annotated(lease, { [TURNS]: holder === '' ? undefined : JSON.stringify(turns) });
  if (holder === '') return { ...changed, spec: rest };
  const now = microTime(at);
  const isNew = holder !== before && { acquireTime: now, leaseTransitions: (rest.leaseTransitions ?? 0) + 1 };
  return { ...changed, spec: { ...rest, holderIdentity: holder, renewTime: now, ...isNew } };
}

/**
 * Begins or renews the turn of a node.
 * @param durationMs after this time without a renewal the turn is over
 * @param revision of the pod that has the turn; empty if unknown
 * @param at milliseconds since the epoch
 */
export function takenBy(
  lease: Lease,
  node: string,
  { durationMs, work, revision }: { readonly durationMs: number; readonly work: Work; readonly revision: string },
  at: number,
): Lease {
  const known = revision === '' ? '' : ` revision=${revision}`;
  const entry = `${microTime(at)}${known}${work === 'uninstall' ? REMOVAL : ''}`;
  const next = withTurns(lease, { ...turnsOf(lease), [node]: entry }, at);
  // The API server accepts whole seconds, at least one.
  return { ...next, spec: { ...next.spec, leaseDurationSeconds: Math.max(1, Math.ceil(durationMs / 1000)) } };
}

/** Ends the turn of a node. @param at milliseconds since the epoch */
export function releasedBy(lease: Lease, node: string, at: number): Lease {
  const others = Object.entries(turnsOf(lease)).filter(([name]) => name !== node);
  return withTurns(lease, Object.fromEntries(others), at);
}

/**
 * Halts a revision, or all of them if it is empty. The failures of other revisions, and the text of an operator, stay.
 * Throws ApiUnreached.
 */
export function halted(lease: Lease, reason: string, revision: string): Lease {
  const why = reason.slice(0, LONGEST_WHY);
  if (revision === '') return annotated(lease, { [HALTED]: annotation(lease, HALTED) ?? why });
  const others = Object.entries(parsed(lease, FAILED, textsSchema) ?? {}).filter(([name]) => name !== revision);
  return annotated(lease, { [FAILED]: latest({ ...Object.fromEntries(others), [revision]: why }) });
}

/** Returns an annotation with the latest revisions. */
const latest = (revisions: Readonly<Record<string, unknown>>): string =>
  JSON.stringify(Object.fromEntries(Object.entries(revisions).slice(-REVISIONS)));

/** Records that a canary node vouches for a revision, unless enough do already. Throws ApiUnreached. */
export function vouchedFor(lease: Lease, revision: string, node: string, canaries: number): Lease {
  const { [revision]: nodes = [], ...others } = parsed(lease, VOUCHED, vouchedSchema) ?? {};
  if (nodes.includes(node) || nodes.length >= canaries) return lease;
  return annotated(lease, { [VOUCHED]: latest({ ...others, [revision]: [...nodes, node] }) });
}
