import type { ResizeClient } from '../client.ts';
import { UsageError } from './failure.ts';
import { printable } from './text.ts';
import type { WirePod, WirePodIdentity, WirePodRef } from '../../api/wire/index.ts';

const isUid = (text: string): boolean => /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);

/**
 * Whom a text names: `namespace/name`, a uid, a name, or the beginning of a sandbox id. Rejects with UsageError when nobody or
 * several are meant, and says who might be.
 */
export async function findPod(client: ResizeClient, text: string): Promise<WirePodRef> {
  const [, namespace, name] = /^([^/]+)\/([^/]+)$/.exec(text) ?? [];
  if (namespace !== undefined && name !== undefined) return { name: { namespace, name } };
  if (isUid(text)) return { uid: text };
  if (text === '' || text.includes('/'))
    throw new UsageError(
      `${JSON.stringify(text)} names no pod: want NAME, NAMESPACE/NAME, a uid or the beginning of a sandbox id`,
    );
  const { pods } = await client.call('ListPods', {});
  return chooseFrom(
    pods.map(({ identity }) => identity),
    text,
  );
}

/** A whole name goes before the beginning of an id. Several sandboxes of one pod are that pod: the shim knows which one runs. */
export function chooseFrom(pods: readonly WirePodIdentity[], text: string): WirePodRef {
  const named = pods.filter(({ name }) => name === text);
  const uids = [...new Set(named.map(({ uid }) => uid))];
  if (uids.length === 1) return { uid: uids.join() };
  if (uids.length > 1) throw ambiguous(text, named);
  const begun = pods.filter(({ sandbox_id: id }) => id.startsWith(text));
  const [only, ...more] = begun;
  if (only !== undefined && more.length === 0) return { sandbox_id: only.sandbox_id };
  if (begun.length > 0) throw ambiguous(text, begun);
  const uid = pods.filter((pod) => pod.uid.startsWith(text));
  const whole = [...new Set(uid.map((pod) => pod.uid))];
  if (whole.length === 1) return { uid: whole.join() };
  if (whole.length > 1) throw ambiguous(text, uid);
  throw new UsageError(
    `no pod of this node is named ${JSON.stringify(text)}, or has an id that begins so; resizectl get pods lists them`,
  );
}

function ambiguous(text: string, pods: readonly WirePodIdentity[]): UsageError {
  const candidates = pods.map(
    ({ namespace, name, sandbox_id: id }) => `  ${printable(`${namespace}/${name}`)} (${printable(id.slice(0, 13))})`,
  );
  return new UsageError([`${JSON.stringify(text)} may be any of these pods; say which:`, ...candidates].join('\n'));
}

export const nameOf = ({ identity }: Pick<WirePod, 'identity'>): string => `${identity.namespace}/${identity.name}`;
