import { suggestion } from '../../core/index.ts';
import type { Messages } from '../../server/api/messages.ts';
import type { ResizeClient } from '../client.ts';
import { UsageError } from './failure.ts';
import { fullName, printable } from './text.ts';

const isUid = (text: string): boolean => /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);

/** Options for finding a pod. */
export interface FindPod {
  readonly client: Pick<ResizeClient, 'call'>;
  /** Only pods of this namespace; undefined: of all. */
  readonly namespace: string | undefined;
}

/**
 * Finds a pod by `namespace/name`, name, uid or sandbox id, or a prefix of one of these two; `pod/NAME` is a name, as
 * in kubectl. Rejects with UsageError if no pod or several pods match; the error lists the candidates.
 */
export async function findPod({ client, namespace: only }: FindPod, given: string): Promise<Messages['PodRef']> {
  const text = await withoutKind({ client, namespace: only }, given);
  const [, namespace, name] = /^([^/]+)\/([^/]+)$/.exec(text) ?? [];
  if (namespace !== undefined && name !== undefined) {
    if (only === undefined || only === namespace) return { name: { namespace, name } };
    throw new UsageError(`pod ${JSON.stringify(text)} is not in the namespace of -n, ${JSON.stringify(only)}`);
  }
  if (isUid(text)) return { uid: text };
  if (text === '' || text.includes('/'))
    throw new UsageError(
      `invalid pod ${JSON.stringify(text)}: expected NAME, NAMESPACE/NAME, a uid or sandbox id, or a prefix of one`,
    );
  return chooseFrom(await identitiesOf({ client, namespace: only }), text);
}

/** Returns the name in `pod/NAME`, unless there is a namespace that is called like the kind. */
async function withoutKind(find: FindPod, text: string): Promise<string> {
  const [, kind, name] = /^(pods?|po)\/(.+)$/.exec(text) ?? [];
  if (name === undefined) return text;
  return (await identitiesOf(find)).some(({ namespace }) => namespace === kind) ? text : name;
}

/** Finds the pod with exactly this `name`; undefined if none has it. Rejects with UsageError if several do. */
export async function findNamed(find: FindPod, name: string): Promise<Messages['PodRef'] | undefined> {
  const named = (await identitiesOf(find)).filter((pod) => pod.name === name);
  return named.length === 0 ? undefined : chooseFrom(named, name);
}

async function identitiesOf({ client, namespace: only }: FindPod): Promise<readonly Messages['PodIdentity'][]> {
  const { pods } = await client.call('ListPods', {});
  return pods.map(({ identity }) => identity).filter(({ namespace }) => only === undefined || namespace === only);
}

/** Reads the pod that {@link findPod} finds. Rejects as it does. */
export async function readPod(find: FindPod, text: string): Promise<Messages['Pod']> {
  return (await find.client.call('GetPod', { pod: await findPod(find, text) })).pod;
}

/** A full name precedes an id prefix. Sandboxes with one uid count as one pod: the shim knows which one runs. */
export function chooseFrom(pods: readonly Messages['PodIdentity'][], text: string): Messages['PodRef'] {
  const named = pods.filter(({ name }) => name === text);
  const uids = [...new Set(named.map(({ uid }) => uid))];
  if (uids.length === 1) return { uid: uids.join() };
  if (uids.length > 1) throw ambiguous(text, named);
  const byPrefix = pods.filter(({ sandbox_id: id }) => id.startsWith(text));
  const [only, ...more] = byPrefix;
  if (only !== undefined && more.length === 0) return { sandbox_id: only.sandbox_id };
  if (byPrefix.length > 0) throw ambiguous(text, byPrefix);
  const byUid = pods.filter(({ uid }) => uid.startsWith(text));
  const matchingUids = [...new Set(byUid.map(({ uid }) => uid))];
  if (matchingUids.length === 1) return { uid: matchingUids.join() };
  if (matchingUids.length > 1) throw ambiguous(text, byUid);
  const near = suggestion(
    text,
    pods.map(({ name }) => name),
  );
  throw new UsageError(`no pod on this node matches ${JSON.stringify(text)}${near}; resizectl get pods lists the pods`);
}

function ambiguous(text: string, pods: readonly Messages['PodIdentity'][]): UsageError {
  const candidates = pods.map((pod) => `  ${fullName(pod)} (${printable(pod.sandbox_id.slice(0, 13))})`);
  return new UsageError([`${JSON.stringify(text)} matches several pods, specify one of:`, ...candidates].join('\n'));
}
